"""Plans and crash tests send only reads to a cluster, according to its audit log, even with all permissions."""

import asyncio
import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.project.demo_inputs import Applier, read_manifests
from tests.integration.operators import PROJECT, copy_project
from tests.integration.test_plan_command import rolecall
from tests.support.audit import AuditLog, audited

EXISTING = """
apiVersion: samplecontroller.k8s.io/v1alpha1
kind: Foo
metadata: {name: one, namespace: default}
spec: {deploymentName: made, replicas: 1}
"""
NEW = EXISTING.replace("name: one", "name: two").replace("made", "made-too")
READS = {"get", "list"}


@dataclass(frozen=True, slots=True)
class Audited:
    """A cluster with an audit log; ``administrator`` is an account of its own that may do everything."""

    administrator: Path
    log: AuditLog

    def requests_of(self, work: Callable[[], object]) -> list[dict[str, Any]]:
        """Return the requests of the administrator while something is done."""
        known = self.log.file.stat().st_size
        work()
        return self.log.requests_of("administrator", known)


@pytest.fixture(scope="module", name="cluster")
def audited_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    """Yield a cluster with a Foo; no operator works there."""
    directory = tmp_path_factory.mktemp("audited")
    with (
        audited(directory) as log,
        ControlPlane(f"test-audited-{uuid.uuid4().hex[:8]}", has_controllers=False) as plane,
    ):
        applier = Applier(plane.kubeconfig)
        applier.apply(read_manifests(PROJECT / "deploy/crds"))
        applier.apply([*map(yaml.safe_load, (EXISTING, ACCOUNT, BINDING))])
        yield Audited(plane.service_account_kubeconfig("default", "administrator"), log)


ACCOUNT = "{apiVersion: v1, kind: ServiceAccount, metadata: {name: administrator, namespace: default}}"
BINDING = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: administrator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: administrator, namespace: default}]
"""


def document_of(cluster: Audited, directory: Path, *command: str) -> tuple[dict[str, Any], set[str]]:
    """Run a command; return the document that it prints, and the verbs of all requests that it has sent."""
    done: list[subprocess.CompletedProcess[str]] = []
    requests = cluster.requests_of(
        lambda: done.append(asyncio.run(rolecall(directory, cluster.administrator, *command, "--output", "json")))
    )
    assert done[0].stdout, done[0].stderr
    document: dict[str, Any] = json.loads(done[0].stdout)
    return document, {each["verb"] for each in requests}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    copy_project(tmp_path, "watches.yaml", "roles", "ansible.cfg")
    return tmp_path


@pytest.mark.timeout(300)
def test_plan_of_everything_sends_only_reads(cluster: Audited, project: Path) -> None:
    document, verbs = document_of(cluster, project, "plan", "--all")

    assert [each["name"] for each in document["objects"]] == ["one"]
    assert {(each["action"], each["name"]) for each in document["objects"][0]["changes"]} >= {("create", "made")}
    assert verbs == READS


@pytest.mark.timeout(300)
def test_plan_of_files_sends_only_reads(cluster: Audited, project: Path) -> None:
    edited = EXISTING.replace("replicas: 1", "replicas: 3")
    (project / "edited.yaml").write_text(f"{edited}---{NEW}")
    document, verbs = document_of(cluster, project, "plan", "-f", "edited.yaml")

    made = {
        (each["name"], change["name"], change["after"]["spec"]["replicas"])
        for each in document["objects"]
        for change in each["changes"]
        if change["kind"] == "Deployment"
    }
    assert made == {("one", "made", 3), ("two", "made-too", 1)}
    assert verbs <= READS
    assert "get" in verbs


@pytest.mark.timeout(300)
def test_crashtest_sends_only_reads(cluster: Audited, project: Path) -> None:
    (project / "new.yaml").write_text(NEW)
    document, verbs = document_of(cluster, project, "crashtest", "-f", "new.yaml")

    assert len(document["trials"]) == document["writes"] > 1
    assert verbs <= READS
    assert "get" in verbs


def test_audit_log_shows_a_write(cluster: Audited) -> None:
    """Test the tests above: the log shows the requests of the account."""
    script = f"""
import asyncio
from rolecall.kube.client import Client

async def main():
    async with await Client.connect({str(cluster.administrator)!r}) as client:
        await client.create({{"apiVersion": "v1", "kind": "Namespace", "metadata": {{"name": "made"}}}})

asyncio.run(main())
"""
    requests = cluster.requests_of(lambda: subprocess.run([sys.executable, "-c", script], check=True))
    assert "create" in {each["verb"] for each in requests}
