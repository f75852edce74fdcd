"""A kind that the API server cannot list holds back no other kind, on the real API server."""

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest

from rolecall.kube.errors import KubeError
from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.controller.controller import Controller, Result
from rolecall.runner.controller.manager import Manager
from rolecall.runner.controller.work_queue import Cause, WorkQueue
from rolecall.system.clock import LoopClock
from tests.integration.definitions import CRD, define, undefine
from tests.integration.world import CONFIG_MAP, TIMEOUT_SECONDS, World, eventually


@pytest.fixture
async def unconvertible(world: World) -> AsyncIterator[GVK]:
    """Give a kind with an object of an older version, whose conversion webhook nobody serves."""
    gvk = GVK(f"g{uuid.uuid4().hex[:8]}.rolecall.dev", "v1", "Old")
    await define(world.client, gvk, "v2")
    metadata = {"name": "one", "namespace": world.namespace}
    await world.client.create({"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata})
    webhook = {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/convert"}}
    conversion = {"spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}}}
    await world.client.patch(CRD, ObjectKey("", f"olds.{gvk.group}"), conversion)
    yield GVK(gvk.group, "v2", gvk.kind)
    await world.client.patch(
        CRD, ObjectKey("", f"olds.{gvk.group}"), {"spec": {"conversion": {"strategy": "None", "webhook": None}}}
    )
    await undefine(world.client, gvk)


async def test_broken_conversion_webhook_blocks_only_its_kind(world: World, unconvertible: GVK) -> None:
    async def failure() -> str:
        try:
            return str([page async for page in world.client.list_pages(unconvertible)])
        except KubeError as error:
            return str(error)

    await eventually(failure, lambda text: "conversion webhook" in text, TIMEOUT_SECONDS, "the webhook is asked")

    reconciled: list[ObjectKey] = []

    async def reconcile(key: ObjectKey, _causes: tuple[Cause, ...]) -> Result:
        reconciled.append(key)
        return Result()

    manager = Manager(world.client, (world.namespace,), LoopClock())
    queue: WorkQueue[ObjectKey] = WorkQueue(LoopClock())
    manager.add(Controller("config maps", queue, 1, reconcile))
    manager.informer_for(unconvertible)
    manager.informer_for(CONFIG_MAP).subscribe(lambda change: queue.add(change.key, Cause("test")))
    await world.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: web}}")
    task = asyncio.create_task(manager.run())
    try:

        async def seen() -> list[ObjectKey]:
            return list(reconciled)

        await eventually(seen, lambda keys: world.key("web") in keys, TIMEOUT_SECONDS, "the other kind is reconciled")
        assert list(manager.blocked_kinds) == [unconvertible]
    finally:
        manager.stop()
        await asyncio.wait([task])
