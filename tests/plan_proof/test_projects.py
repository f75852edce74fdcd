"""The example projects do what was planned, and survive crashes, each with the objects that its tests have."""

import asyncio
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from rolecall.kube.references import RawObject
from rolecall.workbench.crashtest.results import Verdict
from tests.integration.crash_tests import crash_test_of
from tests.integration.example_projects import ADVANCED, MEMCACHED, Image
from tests.integration.example_projects import Project as Example
from tests.integration.planned import Project, clear
from tests.integration.proofs import prove
from tests.integration.sandboxes import Clusters, clusters, reader_kubeconfig, sandbox_plane

__all__ = ["clusters", "reader_kubeconfig", "sandbox_plane"]

WORD = """
apiVersion: v1
kind: Secret
metadata: {name: test-secret, labels: {reconcile: ""}}
stringData: {word: quiet, text: quiet}
"""
SAMPLES = ("cache_v1alpha1_memcached", "cache_v1alpha1_foo", "cache_v1alpha1_memfin")
SPECS: dict[str, RawObject] = {
    "ArgsTest": {},
    "CaseTest": {"camelCaseVar": "as written"},
    "CollectionTest": {},
    "InventoryTest": {},
    "ReconciliationTest": {},
    "SubresourcesTest": {},
}


def of_memcached() -> list[RawObject]:
    """Return the samples of the project, and a Secret."""
    return [yaml.safe_load(text) for text in (*map(MEMCACHED.sample, SAMPLES), WORD)]


def of_advanced() -> list[RawObject]:
    """Return an object of each kind that needs nothing else; each makes a ConfigMap that has its name."""
    return [
        *(
            {"apiVersion": "test.example.com/v1alpha1", "kind": kind, "metadata": {"name": kind.lower()}, "spec": spec}
            for kind, spec in SPECS.items()
        ),
        yaml.safe_load(WORD),
    ]


async def differences(clusters: Clusters, project: Project, objects: Sequence[RawObject]) -> dict[str, list[str]]:
    """Return the differences between the runs for objects and their plans."""
    async with clusters.opened(project.namespace) as (world, sandbox):
        for obj in objects:
            await world.create(yaml.safe_dump(obj))
        proofs = await prove(project, sandbox, clusters)
        await clear(project, clusters.operator)
        return {f"{kind} {key}": proof.of_common_runs().differences for (kind, key), proof in proofs.items()}


EXAMPLES = pytest.mark.parametrize(("example", "objects"), [(MEMCACHED, of_memcached()), (ADVANCED, of_advanced())])


def project_of(example: Example, directory: Path) -> Project:
    """Return an example project, built into a directory, for a namespace of its own."""
    image = Image.build(example.path, directory)
    return Project(directory, f"{example.name}-{uuid.uuid4().hex[:8]}", image.environment, image.arguments)


@EXAMPLES
def test_example_project_writes_as_planned(
    example: Example, objects: Sequence[RawObject], tmp_path: Path, clusters: Clusters
) -> None:
    found = asyncio.run(differences(clusters, project_of(example, tmp_path), objects))
    assert len(found) >= len(objects)
    assert {ident: each for ident, each in found.items() if each} == {}


COUNTER = "reconciliationtest"
"""It counts its runs, so an interruption in the last of them costs it one more: a fault of this play."""


@EXAMPLES
async def test_crash_test_of_an_example_project_finds_only_the_fault_of_a_counter(
    example: Example, objects: Sequence[RawObject], tmp_path: Path, clusters: Clusters
) -> None:
    project = project_of(example, tmp_path)
    async with clusters.opened(project.namespace):
        for each in objects:
            found = await crash_test_of(project, clusters, each)
            assert found.trials, found
            bad = [trial for trial in found.trials if trial.verdict is not Verdict.SAME]
            if each["metadata"]["name"] == COUNTER:
                places = {(difference.path, difference.found) for trial in bad for difference in trial.differences}
                assert places == {("status.iterations", "6"), ("data.iterations", "6")}
            else:
                assert bad == []
    await clear(project, clusters.operator)
