"""The runner alone, as in operator images, which don't contain the workbench."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.operators import PROJECT, Operator
from tests.support.things import MANIFEST, THING, write_project
from tests.support.world import CONFIG_MAP, TIMEOUT_SECONDS, World, eventually, is_true

pytestmark = pytest.mark.core

ROLE = """
- name: Keep the size
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: sizes, namespace: "{{ ansible_operator_meta.namespace }}"}
      data: {size: "size {{ size }}"}
"""


@pytest.fixture
def runner_only(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of processes that find the package without its workbench."""
    packages = tmp_path_factory.mktemp("packages")
    ignored = shutil.ignore_patterns("workbench", "__pycache__")
    shutil.copytree(PROJECT / "src/rolecall", packages / "rolecall", ignore=ignored)
    return {"PYTHONPATH": f"{packages}:{packages / 'rolecall/collections'}"}


def rolecall(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command and return it with what it printed."""
    command = [sys.executable, "-m", "rolecall", *arguments]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


def test_commands_of_the_workbench_name_their_absence(runner_only: dict[str, str]) -> None:
    listed = rolecall(runner_only, "--help").stdout
    assert "run the operator" in listed
    assert "preview" not in listed
    done = rolecall(runner_only, "plan", "Thing", "one")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("rolecall: this installation has no workbench")
    assert done.stderr.count("\n") == 1


async def test_an_operator_without_workbench_reconciles(
    thing_operator: Operator, world: World, runner_only: dict[str, str], tmp_path: Path
) -> None:
    """Warm runs, records, owner references, and the dashboard work without it."""
    write_project(tmp_path, ROLE)
    thing_operator.environment.update(runner_only)
    thing_operator.arguments += ("--record-dir", str(tmp_path / "records"), "--ui-bind-address", "127.0.0.1:0")
    thing_operator.start()
    await world.create(MANIFEST)
    await world.wait_for(THING, "one", lambda obj: is_true(obj, "Successful"))
    sizes = await world.get(CONFIG_MAP, "sizes")
    assert sizes["data"] == {"size": "size 1"}
    assert sizes["metadata"]["ownerReferences"][0]["kind"] == "Thing"

    async def records() -> list[Path]:
        return list((tmp_path / "records").rglob("*.jsonl"))

    # The record is written after the status.
    (record,) = await eventually(records, bool, TIMEOUT_SECONDS, "the record of the run")
    for command in (("list", str(record.parent)), ("show", str(record))):
        done = rolecall(runner_only, "record", *command)
        assert (done.returncode, done.stderr) == (0, "")
        assert "Thing" in done.stdout
    assert "planned-runs" not in rolecall(runner_only, "version").stdout
    assert not thing_operator.messages("Process not forked")
