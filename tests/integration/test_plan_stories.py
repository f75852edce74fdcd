"""Scenarios of the four operators, planned before they happen: first new objects, then changed ones."""

import asyncio
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rolecall.kube.references import ObjectKey, RawObject
from tests.integration.operators import copy_project
from tests.integration.planned import ObjectId, Project, clear
from tests.integration.proofs import Proof, prove
from tests.integration.sandboxes import Clusters, clusters, reader_kubeconfig, sandbox_plane
from tests.integration.test_rbac import FOREIGN, SAMPLES
from tests.support.world import DEPLOYMENT, FOO, HIKAWA, POD_SCALER, REPLICA_SET, TIMEOUT_SECONDS

__all__ = ["clusters", "reader_kubeconfig", "sandbox_plane"]

NEW = (
    (FOO.kind, "one"),
    (FOO.kind, "refused"),
    (HIKAWA.kind, "one"),
    (POD_SCALER.kind, "one"),
    (REPLICA_SET.kind, "counted"),
)
CHANGED = ((FOO.kind, "one"), (POD_SCALER.kind, "one"))


@dataclass(frozen=True, slots=True)
class Stories:
    """Plans and runs for new objects, and after these were changed."""

    namespace: str
    new: Mapping[ObjectId, Proof]
    changed: Mapping[ObjectId, Proof]


@pytest.fixture(scope="module")
def stories(
    tmp_path_factory: pytest.TempPathFactory,
    account_kubeconfig: Path,
    clusters: Clusters,
) -> Iterator[Stories]:
    """Yield the scenarios, planned and executed step by step."""
    directory = tmp_path_factory.mktemp("stories")
    copy_project(directory, "watches.yaml", "roles", "ansible.cfg")
    project = Project(directory, f"stories-{uuid.uuid4().hex[:8]}")

    async def tell() -> Stories:
        async with clusters.opened(project.namespace) as (world, sandbox):
            await world.create(FOREIGN)
            await world.create(SAMPLES)
            await world.wait_for(DEPLOYMENT, "foreign", is_ready, TIMEOUT_SECONDS)
            await world.wait_for(REPLICA_SET, "counted", is_ready, TIMEOUT_SECONDS)
            restricted = replace(clusters, operator=account_kubeconfig)
            new = await prove(project, sandbox, restricted)
            await world.patch(POD_SCALER, "one", {"spec": {"count": 1}})
            await world.patch(DEPLOYMENT, "made", {"spec": {"replicas": 3}})
            await world.wait_for(DEPLOYMENT, "made", is_ready, TIMEOUT_SECONDS)
            return Stories(world.namespace, new, await prove(project, sandbox, restricted))

    yield asyncio.run(tell())
    asyncio.run(clear(project, clusters.operator))


def is_ready(obj: RawObject) -> bool:
    """Return whether a workload has its replicas."""
    return bool((obj.get("status") or {}).get("readyReplicas") == obj["spec"]["replicas"])


@pytest.mark.parametrize(("kind", "name"), NEW)
def test_new_object_is_reconciled_as_planned(stories: Stories, kind: str, name: str) -> None:
    proof = stories.new[kind, ObjectKey(stories.namespace, name)]
    assert proof.differences == []
    assert proof.planned_writes


@pytest.mark.parametrize(("kind", "name"), CHANGED)
def test_changed_object_is_reconciled_as_planned(stories: Stories, kind: str, name: str) -> None:
    proof = stories.changed[kind, ObjectKey(stories.namespace, name)]
    assert proof.differences == []
    assert proof.surplus == 0
    assert proof.planned_writes


def test_unchanged_objects_have_no_planned_writes(stories: Stories) -> None:
    writers = {(kind, key.name) for (kind, key), proof in stories.changed.items() if proof.planned_writes}
    assert not writers & {(REPLICA_SET.kind, "counted"), (HIKAWA.kind, "one")}
