"""``rolecall plan`` on the command line against a cluster: before a run, compared with the run, and after it."""

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rolecall.controlplane import ControlPlane
from rolecall.demo.manifests import Applier
from rolecall.kube.references import RawObject
from tests.integration.conftest import wait_until_ready
from tests.integration.operators import PROJECT, Operator, copy_project
from tests.integration.world import DEPLOYMENT, FOO, PATIENCE, World, is_true

MANIFEST = """
apiVersion: samplecontroller.k8s.io/v1alpha1
kind: Foo
metadata: {name: one}
spec: {deploymentName: made, replicas: 1}
"""


@pytest.fixture
async def reader(world: World, defined: ControlPlane) -> Path:
    """Give the kubeconfig of an account with the rights that the guide names."""
    [text] = re.findall(r"```yaml\n(.*?)```", (PROJECT / "docs/guides/plan.md").read_text(), re.DOTALL)
    role = yaml.safe_load(text.replace("example.com", "samplecontroller.k8s.io"))
    role["metadata"]["name"] = f"plan-{world.namespace}"
    await world.create("{apiVersion: v1, kind: ServiceAccount, metadata: {name: reader}}")
    bindings = [binding(world, name) for name in (role["metadata"]["name"], "view")]
    Applier(defined.kubeconfig).apply([role, *bindings])
    return defined.service_account_kubeconfig(world.namespace, "reader")


def binding(world: World, role: str) -> RawObject:
    """Return what gives the account a role."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{role}-{world.namespace}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": world.namespace}],
    }


async def rolecall(folder: Path, kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the folder of a project."""
    command = [sys.executable, "-m", "rolecall", *arguments]
    environment = os.environ | {"KUBECONFIG": str(kubeconfig)}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)

    return await asyncio.to_thread(run)


@pytest.mark.timeout(600)
async def test_a_run_does_what_was_planned_and_then_nothing_is_left(
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
        await world.wait_for(FOO, "one", lambda foo: is_true(foo, "Successful"), PATIENCE)
        await world.wait_for(FOO, "one", lambda foo: foo["status"].get("availableReplicas") == 1, PATIENCE)
    finally:
        assert await asyncio.to_thread(operator.stop) == 0

    (tmp_path / "plan.json").write_text(planned.stdout)
    compared = await rolecall(tmp_path, reader, "record", "compare", "--against", "plan.json", "records")
    assert (compared.returncode, compared.stdout.splitlines()[-1].split(": ")[1]) == (
        0,
        "1 of 1 objects as planned (100%)",
    ), compared

    again = await rolecall(tmp_path, reader, *plan)
    assert again.stdout.splitlines()[0] == f"Foo {world.namespace}/one: unchanged", again
    assert again.returncode == 0
