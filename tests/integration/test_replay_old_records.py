"""Records of an earlier version of a project: a replay names why the role doesn't run, or why it fails."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rolecall.workbench.project.scaffold import NewKind, create_api, init_project, sealed
from tests.support.world import TIMEOUT_SECONDS

FIX = "Replace it with a record of 'rolecall demo --record-dir DIR'"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a new project, with three more records: of a paused object, and of one with and one without labels."""
    init_project(tmp_path, "web", "example.com").write()
    create_api(tmp_path, NewKind("apps", "v1", "Website")).write()
    record = tmp_path / "tests/records/website.jsonl"
    head, *rest = record.read_text().splitlines()
    for name, metadata in {
        "labeled": {"labels": {"team": "a"}},
        "paused": {"labels": {"team": "a"}, "annotations": {"rolecall.dev/paused": "true"}},
    }.items():
        changed = json.loads(head)
        changed["object"]["metadata"] |= metadata
        record.with_name(f"{name}.jsonl").write_text(sealed("\n".join([json.dumps(changed), *rest])))
    return tmp_path


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def replay(project: Path) -> dict[str, dict[str, Any]]:
    """Replay the records; return the result of each by its name."""
    command = [sys.executable, "-m", "rolecall", "replay", "tests/records", "--output", "json"]
    environment = {**os.environ, "ROLECALL_STATE_DIR": str(project / "state")}
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS
    )
    return {Path(each["file"]).stem: each for each in json.loads(done.stdout)["records"]}


def test_replay_names_why_the_role_does_not_run(project: Path) -> None:
    edit(project / "watches.yaml", "  timeout: 5m", "  timeout: 5m\n  selector: {matchLabels: {team: a}}")
    specs = project / "roles/website/meta/argument_specs.yml"
    edit(
        specs,
        "      message:\n        type: str\n        default: Hello\n",
        "      title:\n        type: str\n        required: true\n",
    )
    found = replay(project)
    no_run = "the role does not run for this object:"
    outdated = "spec.message isn't an option of the role website; spec lacks title, which the role website requires"
    assert found["website"]["reason"] == (
        f"tests/records/website.jsonl: {no_run} its labels (none) don't match the selector team in (a) in "
        f"watches.yaml; {outdated}. {FIX}"
    )
    assert found["paused"]["reason"] == (
        f"tests/records/paused.jsonl: {no_run} it is paused by the annotation rolecall.dev/paused; {outdated}. {FIX}"
    )
    assert found["labeled"]["result"] == "failed"
    assert found["labeled"]["notes"] == [f"the record doesn't fit the project: {outdated}. {FIX}"]


def test_record_of_another_scope_is_named(project: Path) -> None:
    edit(project / "deploy/crds" / "websites.yaml", "scope: Namespaced", "scope: Cluster")
    for name in ("labeled", "paused"):
        (project / f"tests/records/{name}.jsonl").unlink()
    scope = "its object is in the namespace website-sample, but Website is cluster-scoped"
    assert replay(project)["website"]["reason"] == (
        f"tests/records/website.jsonl: the role does not run for this object: {scope}. {FIX}"
    )
