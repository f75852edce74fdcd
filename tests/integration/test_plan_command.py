"""``rolecall plan`` on the command line against a cluster: before a run, compared with the run, and after it."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import yaml

from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.record.reader import StoredRecord, read_record
from rolecall.workbench.comparison.reports import TaskName
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.plan.model import ObjectPlan, Plan, PlannedWrite
from rolecall.workbench.plan.output import document_of
from rolecall.workbench.plan.shown_changes import findings_of
from rolecall.workbench.project.demo_inputs import Applier
from rolecall.workbench.replay.writes import RunLines, writes_of
from tests.integration.conftest import wait_until_ready
from tests.integration.operators import PROJECT, Operator, copy_project
from tests.support.world import DEPLOYMENT, FOO, TIMEOUT_SECONDS, World, is_true

MANIFEST = """
apiVersion: samplecontroller.k8s.io/v1alpha1
kind: Foo
metadata: {name: one}
spec: {deploymentName: made, replicas: 1}
"""


@pytest.fixture
async def reader(world: World, defined: ControlPlane) -> Path:
    """Return the kubeconfig of an account with the permissions in the guide."""
    [text] = re.findall(r"```yaml\n(.*?)```", (PROJECT / "docs/guides/plan.md").read_text(), re.DOTALL)
    role = yaml.safe_load(text.replace("example.com", "samplecontroller.k8s.io"))
    role["metadata"]["name"] = f"plan-{world.namespace}"
    await world.create("{apiVersion: v1, kind: ServiceAccount, metadata: {name: reader}}")
    bindings = [binding(world, name) for name in (role["metadata"]["name"], "view")]
    Applier(defined.kubeconfig).apply([role, *bindings])
    return defined.service_account_kubeconfig(world.namespace, "reader")


def binding(world: World, role: str) -> RawObject:
    """Return the binding of a role to the account."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{role}-{world.namespace}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": world.namespace}],
    }


async def rolecall(directory: Path, kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the directory of a project."""
    command = [sys.executable, "-m", "rolecall", *arguments]
    environment = os.environ | {"KUBECONFIG": str(kubeconfig)}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)

    return await asyncio.to_thread(run)


def recorded_writes(record: StoredRecord) -> list[dict[str, Any]]:
    """Return the writes of a recorded run as a plan's document shows them, with its times and secrets replaced."""
    writes = tuple(
        PlannedWrite(
            TaskName("", is_hidden=each.is_hidden),
            each.method,
            each.target,
            each.content_type,
            json.dumps(each.body).encode(),
            each.status or HTTPStatus.BAD_REQUEST,
        )
        for each in writes_of(RunLines.of_record(record)).writes
    )
    obj = record.head["object"]
    times = [datetime.fromisoformat(each["time"]).timestamp() for each in record.exchanges]
    plan = ObjectPlan(
        GVK.of_object(obj),
        ObjectKey.of_object(obj),
        writes=writes,
        secrets=tuple(record.end.get("masked") or ()),
        started=datetime.fromisoformat(record.head["started"]).timestamp(),
        ended=max(times) + float(record.end["seconds"]),
    )
    alone = Plan((plan,))
    found: list[dict[str, Any]] = document_of(alone, findings_of(alone))["objects"][0]["writes"]
    return found


def comparable(writes: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return writes without their tasks, and without resource versions, which differ in a sandbox."""
    found = []
    for each in writes:
        body = each["body"]
        if isinstance(body, dict) and isinstance(body.get("metadata"), dict):
            body = body | {"metadata": {**body["metadata"], "resourceVersion": ""}}
        is_accepted = each["status"] < HTTPStatus.BAD_REQUEST
        content_type = each["contentType"].partition(";")[0]
        found.append((each["method"], each["target"], content_type, is_accepted, body))
    return found


@pytest.mark.timeout(600)
async def test_run_writes_as_planned_and_the_next_plan_is_empty(
    world: World, defined: ControlPlane, reader: Path, tmp_path: Path
) -> None:
    copy_project(tmp_path, "watches.yaml", "roles", "ansible.cfg")
    await world.create(MANIFEST)
    plan = ("plan", "Foo", "one", "-n", world.namespace)

    planned = await rolecall(tmp_path, reader, *plan, "--output", "json")
    assert planned.returncode == 2, planned
    [one] = json.loads(planned.stdout)["objects"]
    changed = {(each["action"], each["kind"], each["name"]) for each in one["changes"] if each["kind"] != "Event"}
    assert changed == {("create", "Deployment", "made")}
    assert one["status"]["after"]["availableReplicas"] == 1
    assert await world.find(DEPLOYMENT, "made") is None
    assert (await world.get(FOO, "one"))["status"] == {"observedGeneration": -1}, "the default of its definition"

    records = tmp_path / "records"
    operator = Operator(tmp_path, defined.kubeconfig, world.namespace, ("--record-dir", str(records)))
    operator.start()
    try:
        await wait_until_ready(operator)
        await world.wait_for(FOO, "one", lambda foo: is_true(foo, "Successful"), TIMEOUT_SECONDS)
        await world.wait_for(FOO, "one", lambda foo: foo["status"].get("availableReplicas") == 1, TIMEOUT_SECONDS)
    finally:
        assert await asyncio.to_thread(operator.stop) == 0

    paths = records.glob(f"*-foo-{world.namespace}-one-*.jsonl")
    runs = sorted(map(read_record, paths), key=lambda record: str(record.head["started"]))
    happened = [write for run in runs[: one["rounds"]] for write in recorded_writes(run)]
    assert happened
    assert comparable(happened) == comparable(one["writes"])

    again = await rolecall(tmp_path, reader, *plan)
    assert again.stdout.splitlines()[0] == f"Foo {world.namespace}/one: unchanged", again
    assert again.returncode == 0
