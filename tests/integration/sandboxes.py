"""Sandboxes for tests: one control plane without controllers for a file, emptied after each test."""

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from rolecall.kube.client import Client
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.plan.sandbox import Sandbox, sandbox_in
from rolecall.workbench.project.demo_inputs import Applier
from tests.support.world import World

READ_ONLY = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules: [{apiGroups: ["*"], resources: ["*"], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: default}]
"""

DEPLOYMENT_OF_TWO = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "web:1"}]}
"""


@pytest.fixture(scope="module")
def sandbox_plane() -> Iterator[ControlPlane]:
    """Yield a control plane for the sandboxes of a file."""
    with ControlPlane(f"test-sandbox-{uuid.uuid4().hex[:8]}", has_controllers=False) as plane:
        yield plane


@pytest.fixture
async def sandbox(sandbox_plane: ControlPlane) -> AsyncIterator[Sandbox]:
    """Yield an empty sandbox."""
    async with sandbox_in(sandbox_plane) as sandbox:
        yield sandbox
        await sandbox.forget()


@pytest.fixture(scope="session")
def reader_kubeconfig(defined: ControlPlane) -> Path:
    """Return the kubeconfig of an account that is only permitted to read."""
    Applier(defined.kubeconfig).apply(list(yaml.safe_load_all(READ_ONLY)))
    return defined.service_account_kubeconfig("default", "reader")


@dataclass(frozen=True, slots=True)
class Clusters:
    """The cluster, the control plane of the sandbox, and the kubeconfig of an account that is only permitted to read.

    An operator has the kubeconfig ``operator``, that of the cluster's administrator by default.
    """

    real: ControlPlane
    plane: ControlPlane
    reader: Path
    operator: Path

    @asynccontextmanager
    async def opened(self, namespace: str, *, is_new: bool = True) -> AsyncIterator[tuple[World, Sandbox]]:
        """Yield a namespace of the cluster, which is created first if it is new, and the sandbox."""
        async with await Client.connect(str(self.real.kubeconfig)) as client, sandbox_in(self.plane) as sandbox:
            if is_new:
                await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
            yield World(client, namespace), sandbox


@pytest.fixture(scope="module")
def clusters(defined: ControlPlane, sandbox_plane: ControlPlane, reader_kubeconfig: Path) -> Clusters:
    """Return the cluster with a sandbox."""
    return Clusters(defined, sandbox_plane, reader_kubeconfig, defined.kubeconfig)


def use_sandbox(plane: ControlPlane, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the module of a command use the sandbox in a control plane."""

    @asynccontextmanager
    async def running_sandbox(_report: object) -> AsyncIterator[Sandbox]:
        async with sandbox_in(plane) as sandbox:
            yield sandbox
            await sandbox.forget()

    monkeypatch.setattr(module, "running_sandbox", running_sandbox)
    # The command would log to the current capture, and so would every later test in this process.
    monkeypatch.setattr("rolecall.system.logs.configure", lambda *_: None)
