"""The rules of deploy/ against what the runs of the four operators were recorded to need, and operators under them."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import RawObject
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.project.demo_inputs import Applier
from tests.integration.conftest import wait_until_ready
from tests.integration.operators import PROJECT, Operator, copy_project
from tests.support.world import (
    DEPLOYMENT,
    FOO,
    HIKAWA,
    POD_SCALER,
    REPLICA_SET,
    TIMEOUT_SECONDS,
    World,
    condition,
    is_true,
)

SAMPLES = """
apiVersion: samplecontroller.k8s.io/v1alpha1
kind: Foo
metadata: {name: one}
spec: {deploymentName: made, replicas: 1}
---
apiVersion: samplecontroller.k8s.io/v1alpha1
kind: Foo
metadata: {name: refused}
spec: {deploymentName: foreign, replicas: 1}
---
apiVersion: zundokokiyoshi.kaitoy.github.com/v1beta1
kind: Hikawa
metadata: {name: one, annotations: {zundokokiyoshi.kaitoy.github.com/seed: encore}}
spec: {intervalMillis: 100}
---
apiVersion: scaling.example.com/v1
kind: PodScaler
metadata: {name: one}
spec: {count: 2, selector: {app: scaled}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: counted}
spec:
  replicas: 2
  selector: {matchLabels: {app: counted}}
  template:
    metadata: {labels: {app: counted}}
    spec: {containers: [{name: nginx, image: "nginx:latest"}]}
"""
FOREIGN = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: foreign}
spec:
  replicas: 1
  selector: {matchLabels: {app: other}}
  template:
    metadata: {labels: {app: other}}
    spec: {containers: [{name: other, image: "other:1"}]}
"""


ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: {name}}}
rules:
- apiGroups: [scaling.example.com]
  resources: [podscalers]
  verbs: [get]
- apiGroups: [zundokokiyoshi.kaitoy.github.com]
  resources: [hikawas, zundokos, kiyoshis]
  verbs: [get]
- apiGroups: [samplecontroller.k8s.io]
  resources: [foos]
  verbs: [get]
- apiGroups: [apps]
  resources: [replicasets]
  verbs: [get]
"""
"""The role of a project that can only read its primaries."""


def scaled_to(count: int) -> Any:
    return lambda obj: is_true(obj, "Successful") and (obj.get("status") or {}).get("ready") == count


def is_refused(obj: RawObject) -> bool:
    return condition(obj, "Failure").get("status") == "True"


async def stories(world: World) -> None:
    """Run all scenarios of each operator's role."""
    await world.create(FOREIGN)
    await world.create(SAMPLES)
    await world.wait_for(FOO, "refused", is_refused)
    await world.wait_for(POD_SCALER, "one", scaled_to(2))
    await world.patch(POD_SCALER, "one", {"spec": {"count": 1}})
    await world.wait_for(POD_SCALER, "one", scaled_to(1))
    await world.wait_for(FOO, "one", lambda obj: (obj.get("status") or {}).get("availableReplicas") == 1)
    await world.patch(DEPLOYMENT, "made", {"spec": {"replicas": 3}})
    await world.wait_for(DEPLOYMENT, "made", lambda obj: obj["spec"]["replicas"] == 1)
    await world.wait_for(HIKAWA, "one", lambda obj: (obj.get("status") or {}).get("kiyoshied"))

    def is_counted(obj: RawObject) -> bool:
        return (metadata_of(obj).get("labels") or {}).get("pod-count") == "2"

    await world.wait_for(REPLICA_SET, "counted", is_counted)


@asynccontextmanager
async def recorded_stories(directory: Path, kubeconfig: Path, world: World) -> AsyncIterator[Operator]:
    """Yield the stopped operator of the four kinds after all scenarios; its records are in its directory."""
    await asyncio.to_thread(directory.mkdir)
    copy_project(directory, "watches.yaml", "roles", "ansible.cfg")
    arguments = ("--backoff-max", "5s", "--record-dir", str(directory / "records"))
    operator = Operator(directory, kubeconfig, world.namespace, arguments)
    operator.start()
    try:
        await wait_until_ready(operator)
        await stories(world)
    finally:
        assert await asyncio.to_thread(operator.stop) == 0
    yield operator


def rbac(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``rolecall rbac`` on the records of a directory."""
    command = [sys.executable, "-m", "rolecall", "rbac", "--from", str(directory / "records"), *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def refusals(directory: Path) -> list[str]:
    """Return the requests of runs that were answered with 403."""
    return [
        f"{line['verb']} {line['path']}"
        for path in (directory / "records").glob("*.jsonl")
        for line in map(json.loads, path.read_text().splitlines())
        if line.get("status") == 403
    ]


@pytest.mark.alone
async def test_the_rules_of_deploy_are_those_that_the_stories_need_and_these_suffice(
    world: World, defined: ControlPlane, account_kubeconfig: Path, tmp_path: Path
) -> None:
    async with recorded_stories(tmp_path / "deployed", account_kubeconfig, world) as operator:
        assert refusals(operator.directory) == []
        rules = (PROJECT / "deploy/rbac", PROJECT / "deploy/components/podcount")
        compared = rbac(
            operator.directory,
            *(word for path in rules for word in ("--compare", str(path))),
            *("--leader-election", "rolecall-system/rolecall"),
        )
        assert compared.stdout.splitlines()[:1] == ["equal: nothing is missing, and nothing is too much"], compared
        assert compared.returncode == 0
        project = tmp_path / "rbac"
        project.mkdir()
        role = project / "role.yaml"
        role.write_text(ROLE.format(name=f"least-{world.namespace}"))
        (project / "binding.yaml").write_text(yaml.safe_dump(binding(world)))
        written = rbac(operator.directory, "--write", str(project))
        assert written.returncode == 0, written.stderr
        compared = rbac(operator.directory, "--compare", str(project))
        assert compared.returncode == 0, compared.stdout
    await world.client.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account(world)})
    Applier(defined.kubeconfig).apply([yaml.safe_load(role.read_text()), binding(world)])
    least = defined.service_account_kubeconfig(world.namespace, "least")
    for gvk, names in (
        (FOO, ("one", "refused")),
        (HIKAWA, ("one",)),
        (POD_SCALER, ("one",)),
        (REPLICA_SET, ("counted",)),
    ):
        for name in names:
            await world.delete(gvk, name)
            await world.wait_until_gone(gvk, name, TIMEOUT_SECONDS)
    await world.delete(DEPLOYMENT, "foreign")
    for name in ("made", "foreign"):  # the first is the Foo's, so that the garbage collector deletes it
        await world.wait_until_gone(DEPLOYMENT, name, TIMEOUT_SECONDS)
    async with recorded_stories(tmp_path / "least", least, world) as operator:
        assert refusals(operator.directory) == []
        assert [line for line in operator.lines() if "forbidden" in json.dumps(line)] == []


def account(world: World) -> dict[str, str]:
    """Return the metadata of the account that gets the written rules."""
    return {"name": "least", "namespace": world.namespace}


def binding(world: World) -> RawObject:
    """Return the binding of the written rules to the account."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"least-{world.namespace}"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": f"least-{world.namespace}",
        },
        "subjects": [{"kind": "ServiceAccount", **account(world)}],
    }
