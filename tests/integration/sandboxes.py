"""Sandboxes for tests: one control plane without controllers for a file, emptied after each test."""

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import yaml

from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.plan.sandbox import Sandbox, sandbox_in
from rolecall.workbench.project.demo_inputs import Applier

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
    """Give a control plane for the sandboxes of a file."""
    with ControlPlane(f"test-sandbox-{uuid.uuid4().hex[:8]}", has_controllers=False) as plane:
        yield plane


@pytest.fixture
async def sandbox(sandbox_plane: ControlPlane) -> AsyncIterator[Sandbox]:
    """Give an empty sandbox."""
    async with sandbox_in(sandbox_plane) as sandbox:
        yield sandbox
        await sandbox.forget()


@pytest.fixture(scope="session")
def reader_kubeconfig(defined: ControlPlane) -> Path:
    """Give the kubeconfig of an account that may read everything, and do nothing else."""
    Applier(defined.kubeconfig).apply(list(yaml.safe_load_all(READ_ONLY)))
    return defined.service_account_kubeconfig("default", "reader")
