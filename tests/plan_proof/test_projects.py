"""The example projects do what was planned, each with the objects that its tests have."""

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from rolecall.kube.client import Client
from rolecall.kube.references import RawObject
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.plan.sandbox import sandbox_in
from tests.integration.example_projects import ADVANCED, MEMCACHED, Image
from tests.integration.example_projects import Project as Example
from tests.integration.planned import Project, clear
from tests.integration.proofs import prove
from tests.integration.sandboxes import reader_kubeconfig, sandbox_plane
from tests.integration.world import World

__all__ = ["reader_kubeconfig", "sandbox_plane"]

WORD = (
    "{apiVersion: v1, kind: Secret, metadata: {name: test-secret, labels: {reconcile: ''}}, stringData: {word: quiet}}"
)
SAMPLES = ("cache_v1alpha1_memcached", "cache_v1alpha1_foo", "cache_v1alpha1_memfin")
KINDS = ("ArgsTest", "CaseTest", "CollectionTest", "InventoryTest", "ReconciliationTest", "SubresourcesTest")


def of_memcached() -> list[RawObject]:
    """Return the samples of the project, and a Secret."""
    return [yaml.safe_load(text) for text in (*map(MEMCACHED.sample, SAMPLES), WORD)]


def of_advanced() -> list[RawObject]:
    """Return an object of each kind that needs nothing else; each makes a ConfigMap that has its name."""
    return [
        *(
            {"apiVersion": "test.example.com/v1alpha1", "kind": each, "metadata": {"name": each.lower()}, "spec": {}}
            for each in KINDS
        ),
        yaml.safe_load(WORD),
    ]


@dataclass(frozen=True, slots=True)
class Clusters:
    """The cluster, the control plane of the sandbox, and the kubeconfig of an account that may only read."""

    real: ControlPlane
    sandbox: ControlPlane
    reader: Path

    async def differences(self, project: Project, objects: Sequence[RawObject]) -> dict[str, list[str]]:
        """Return how the runs for objects differ from what was planned for them."""
        async with await Client.connect(str(self.real.kubeconfig)) as client, sandbox_in(self.sandbox) as sandbox:
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": project.namespace}}
            await client.create(space)
            world = World(client, project.namespace)
            for obj in objects:
                await world.create(yaml.safe_dump(obj))
            proofs = await prove(project, sandbox, self.reader, self.real.kubeconfig)
            await clear(project, self.real.kubeconfig)
            return {f"{kind} {key}": proof.of_common_runs().differences for (kind, key), proof in proofs.items()}


@pytest.fixture
def clusters(defined: ControlPlane, sandbox_plane: ControlPlane, reader_kubeconfig: Path) -> Clusters:
    """Give the clusters."""
    return Clusters(defined, sandbox_plane, reader_kubeconfig)


@pytest.mark.parametrize(("example", "objects"), [(MEMCACHED, of_memcached()), (ADVANCED, of_advanced())])
def test_an_example_project_does_what_was_planned(
    example: Example, objects: Sequence[RawObject], tmp_path: Path, clusters: Clusters
) -> None:
    image = Image.build(example.path, tmp_path)
    name = f"{example.name}-{uuid.uuid4().hex[:8]}"
    project = Project(tmp_path, name, image.environment, image.arguments)
    found = asyncio.run(clusters.differences(project, objects))
    assert len(found) >= len(objects)
    assert {place: differences for place, differences in found.items() if differences} == {}
