"""Objects that Kubernetes' controllers create and delete because runs have written to a sandbox."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rolecall.kube.client import Client
from rolecall.kube.errors import NotFoundError
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.proxy.request_info import parse
from rolecall.workbench.plan.convergence import controller_changes
from rolecall.workbench.plan.model import ControllerChange, ObjectChange, ObjectPlan
from rolecall.workbench.plan.sandbox import Sandbox
from rolecall.workbench.plan.sandbox_import import Importer
from rolecall.workbench.plan.sandbox_sources import LiveSource
from tests.integration.sandboxes import DEPLOYMENT_OF_TWO, reader_kubeconfig, sandbox, sandbox_plane
from tests.support.world import DEPLOYMENT, FOO, POD, REPLICA_SET, TIMEOUT_SECONDS, World, names

__all__ = ["reader_kubeconfig", "sandbox", "sandbox_plane"]


@pytest.fixture
async def importer(sandbox: Sandbox, reader_kubeconfig: Path, world: World) -> AsyncIterator[Importer]:
    """Yield an importer that has imported a Deployment with two pods."""
    await world.create(DEPLOYMENT_OF_TWO)
    await world.wait_for(
        DEPLOYMENT, "web", lambda obj: obj.get("status", {}).get("availableReplicas") == 2, TIMEOUT_SECONDS
    )
    async with await Client.connect(str(reader_kubeconfig)) as client:
        importer = sandbox.importer(LiveSource(client))
        info = parse("PATCH", f"/apis/apps/v1/namespaces/{world.namespace}/deployments/web")
        await importer.before(info, "", "")
        yield importer


async def changes(importer: Importer, key: ObjectKey, before: RawObject | None) -> list[ControllerChange]:
    """Return the controllers' changes when runs have left a Deployment as it is now in the sandbox."""
    try:
        after = await importer.client.get(DEPLOYMENT, key)
    except NotFoundError:
        after = None
    plan = ObjectPlan(FOO, ObjectKey(key.namespace, "one"), (ObjectChange(DEPLOYMENT, key, before, after),))
    return list(await controller_changes(importer, [plan]))


def change(gvk: GVK, namespace: str, name: str, *, is_deletion: bool, count: int = 1) -> ControllerChange:
    return ControllerChange(gvk, ObjectKey(namespace, name), is_deletion, count)


async def test_pods_of_more_replicas_are_reported(importer: Importer, sandbox: Sandbox, world: World) -> None:
    before = await sandbox.client.get(DEPLOYMENT, world.key("web"))
    there = World(sandbox.client, world.namespace)
    await there.patch(DEPLOYMENT, "web", {"spec": {"replicas": 5}})

    [replica_set] = names(await world.objects(REPLICA_SET))
    assert await changes(importer, world.key("web"), before) == [
        change(POD, world.namespace, f"{replica_set}-*", is_deletion=False, count=3)
    ]


async def test_objects_deleted_with_a_deployment_are_named(importer: Importer, sandbox: Sandbox, world: World) -> None:
    before = await sandbox.client.get(DEPLOYMENT, world.key("web"))
    await sandbox.client.delete(DEPLOYMENT, world.key("web"))

    [replica_set], pods = names(await world.objects(REPLICA_SET)), names(await world.pods(app="web"))
    assert await changes(importer, world.key("web"), before) == [
        change(REPLICA_SET, world.namespace, replica_set, is_deletion=True),
        *(change(POD, world.namespace, pod, is_deletion=True) for pod in pods),
    ]


async def test_controllers_do_nothing_without_changes(importer: Importer, world: World) -> None:
    assert await controller_changes(importer, [ObjectPlan(FOO, world.key("one"))]) == ()
