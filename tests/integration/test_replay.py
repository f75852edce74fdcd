"""Replays of real records: the four operators write the same again, and a changed role is found in each record."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from rolecall.kube.client import Client
from rolecall.runner.reconcile.status import condition_of
from rolecall.runner.record.reader import read_record
from rolecall.workbench.controlplane import ControlPlane
from tests.integration.operators import copy_project
from tests.integration.test_rbac import recorded_stories
from tests.support.world import TIMEOUT_SECONDS, World

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMESPACE = "replayed-stories"
NO_CLUSTER = {"KUBECONFIG": "/nowhere/kubeconfig", "KUBERNETES_SERVICE_HOST": "", "NO_COLOR": "1"}
ALONE = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
"""Runs a command where there is no network but the loopback interface."""


@dataclass(frozen=True, slots=True)
class Project:
    """A copy of this repository's operators with the records of their scenarios."""

    directory: Path

    @property
    def records(self) -> list[Path]:
        """The records of runs that came to their end, and whose exchanges are all there."""
        found = sorted((self.directory / "records").glob("*.jsonl"))
        ends = {path: read_record(path).end for path in found}
        return [path for path, end in ends.items() if end["complete"] and end["rc"] is not None]

    def replay(self, *arguments: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        """Run ``rolecall replay`` without a cluster."""
        command = [*prefix, sys.executable, "-m", "rolecall", "replay", *arguments]
        environment = {**os.environ, **NO_CLUSTER, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        return subprocess.run(
            command,
            cwd=self.directory,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_SECONDS,
        )

    def results(self) -> dict[str, dict[str, Any]]:
        """Return the result for each record, by its name."""
        done = self.replay(*map(str, self.records), "--output", "json")
        assert done.stdout, done.stderr
        return {Path(each["file"]).name: each for each in json.loads(done.stdout)["records"]}

    def changed(self, directory: Path) -> "Project":
        """Return a copy whose roles can be changed."""
        shutil.copytree(self.directory, directory)
        return Project(directory)

    def change(self, file: str, before: str, after: str) -> frozenset[str]:
        """Change the writes of a role; return the names of the affected records."""
        path = self.directory / file
        text = path.read_text()
        assert before in text
        path.write_text(text.replace(before, after))
        written = before.removesuffix(": ").removesuffix(":").removeprefix("message: ")
        return frozenset(path.name for path in self.records if has_written(path, written))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def project(
    defined: ControlPlane, account_kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Project]:
    """Yield the operators after their scenarios."""
    async with await Client.connect(str(defined.kubeconfig)) as client:
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        directory = tmp_path_factory.mktemp("replay") / "project"
        async with recorded_stories(directory, account_kubeconfig, World(client, NAMESPACE)):
            pass
    await asyncio.to_thread(copy_project, directory, "deploy/crds")
    yield Project(directory)


async def test_unchanged_roles_replay_equally_without_network(project: Project) -> None:
    records = project.records
    assert {kind_of(path) for path in records} == {"foo", "hikawa", "podscaler", "replicaset"}
    ready = [condition_of(read_record(path).end["status"] or {}, "Ready") or {} for path in records]
    assert {"NotReadyYet", "RunSucceeded"} <= {each.get("reason") for each in ready}, "readiness is compared too"
    done = await asyncio.to_thread(project.replay, *map(str, records), "--output", "json", prefix=ALONE)
    assert done.stdout, done.stderr
    different = [each for each in json.loads(done.stdout)["records"] if each["result"] != "same"]
    assert not different, json.dumps(different, indent=1)


CHANGES = (
    ("roles/foo/tasks/main.yml", "message: Foo synced successfully", "message: Foo is synced"),
    ("roles/hikawa/vars/main.yml", "said-at-millis:", "said-at:"),
    ("roles/podcount/tasks/main.yml", "pod-count: ", "number-of-pods: "),
)


async def test_changed_role_is_found_in_every_affected_record(project: Project, tmp_path: Path) -> None:
    changed = project.changed(tmp_path / "changed")
    concerned = [await asyncio.to_thread(changed.change, *each) for each in CHANGES]
    assert all(concerned)
    found = frozenset[str]().union(*concerned)
    results = await asyncio.to_thread(changed.results)
    assert {name: each["result"] for name, each in results.items()} == {
        name: "other writes" if name in found else "same" for name in results
    }


def kind_of(path: Path) -> str:
    """Return the kind of the object of a record."""
    return path.name.split("-")[1]


def has_written(path: Path, text: str) -> bool:
    """Return whether the run of a record has written this text."""
    writes = (each for each in read_record(path).exchanges if each["verb"] in ("create", "update", "patch"))
    return any(text in json.dumps(each.get("request", {})) for each in writes)
