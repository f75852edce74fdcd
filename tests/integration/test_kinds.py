"""Kinds that come late, go and come again, change, share their name, or can't be listed, on the real API server."""

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest

from rolecall.kube import discovery
from rolecall.kube.errors import KubeError
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.controller.controller import Controller, Dispatcher, Result
from rolecall.runner.controller.manager import Manager
from rolecall.runner.controller.work_queue import Backoff, Cause, WorkQueue
from rolecall.runner.runs.workspace import workspaces_of
from rolecall.system.clock import LoopClock
from tests.integration.conftest import wait_until_ready
from tests.integration.definitions import CRD, define, definition, undefine
from tests.integration.operators import Operator
from tests.support.metrics import controller_metrics
from tests.support.things import write_role
from tests.support.world import CONFIG_MAP, TIMEOUT_SECONDS, World, eventually, is_true

GOOD = "- name: Say which\n  ansible.builtin.debug: {msg: fine}\n"


@pytest.fixture
def gvk() -> GVK:
    """Return an undefined kind."""
    return GVK(f"g{uuid.uuid4().hex[:8]}.rolecall.dev", "v1", "Late")


@pytest.fixture
async def defined_kinds(world: World) -> AsyncIterator[list[GVK]]:
    """Yield a list of kinds that are removed after the test."""
    kinds: list[GVK] = []
    yield kinds
    for kind in kinds:
        await undefine(world.client, kind)


def project(operator: Operator, *gvks: GVK) -> None:
    """Write a project that watches these kinds, all with one role."""
    entries = [f"- {{group: {gvk.group}, version: {gvk.version}, kind: {gvk.kind}, role: thing}}\n" for gvk in gvks]
    (operator.directory / "watches.yaml").write_text("".join(entries))
    write_role(operator.directory, GOOD)


def one(gvk: GVK, world: World, name: str = "one") -> RawObject:
    """Return an object of a kind."""
    metadata = {"name": name, "namespace": world.namespace}
    return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata, "spec": {"size": 1}}


async def succeeds(world: World, gvk: GVK, name: str = "one") -> None:
    """Wait until an object was reconciled."""
    await world.wait_for(gvk, name, lambda obj: is_true(obj, "Successful"))


async def test_missing_kind_is_found_when_defined_and_when_redefined(
    world: World, thing_operator: Operator, gvk: GVK, defined_kinds: list[GVK]
) -> None:
    """The operator starts without the CRD, logs this once, and works once it is there."""
    project(thing_operator, gvk)
    thing_operator.start()
    await wait_until_ready(thing_operator)
    for _ in range(2):
        await define(world.client, gvk)
        defined_kinds.append(gvk)
        await world.client.create(one(gvk, world))
        await succeeds(world, gvk)
        await undefine(world.client, gvk)
        defined_kinds.clear()
    told = thing_operator.messages("Kind is not installed; waiting for it", gvk=str(gvk))
    assert told
    assert "CustomResourceDefinition" in told[0]["reason"]
    assert len(told) <= 3, "once for each time that the kind is missing"
    assert thing_operator.is_ready()


async def test_equal_kinds_of_two_groups_do_not_mix(
    world: World, thing_operator: Operator, gvk: GVK, defined_kinds: list[GVK]
) -> None:
    """Each has its queue and its workspace; objects of one name in both are reconciled each for itself."""
    other_group = GVK(f"other.{gvk.group}", "v1", gvk.kind)
    await asyncio.gather(define(world.client, gvk), define(world.client, other_group))
    defined_kinds += [gvk, other_group]
    work = thing_operator.directory / "work"
    thing_operator.arguments += ("--work-dir", str(work))
    project(thing_operator, gvk, other_group)
    thing_operator.start()
    await wait_until_ready(thing_operator)
    for kind in (gvk, other_group):
        await world.client.create(one(kind, world))

    async def workspaces() -> list[list[ObjectKey]]:
        return [workspaces_of(work, kind) for kind in (gvk, other_group)]

    own = [world.key("one")]
    await eventually(workspaces, lambda found: found == [own, own], TIMEOUT_SECONDS, "two workspaces")
    for kind in (gvk, other_group):
        await succeeds(world, kind)

    async def ended() -> int:
        return len(thing_operator.messages("Reconcile succeeded", kind="Late", name="one"))

    await eventually(ended, lambda count: count >= 2, TIMEOUT_SECONDS, "each watch has run")
    await world.client.delete(other_group, world.key("one"))
    await eventually(workspaces, lambda found: found == [own, []], TIMEOUT_SECONDS, "only its own workspace goes")


@pytest.fixture
async def unconvertible(world: World) -> AsyncIterator[GVK]:
    """Yield a kind with an object of an older version, and without its conversion webhook."""
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

    manager = Manager(world.client, (world.namespace,), LoopClock(), Dispatcher(), 20, 10)
    queue: WorkQueue[ObjectKey] = WorkQueue(LoopClock(), Backoff(1, 300), controller_metrics())
    manager.dispatcher.add(Controller(CONFIG_MAP, queue, 1, reconcile, lambda *_: False))
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


@pytest.fixture
async def plain(world: World) -> AsyncIterator[GVK]:
    """Yield a namespaced kind with a status subresource."""
    gvk = GVK(f"g{uuid.uuid4().hex[:8]}.rolecall.dev", "v1", "Plain")
    await define(world.client, gvk)
    yield gvk
    await undefine(world.client, gvk)


async def set_subresources(world: World, gvk: GVK, text: dict[str, object]) -> None:
    """Change the subresources in the definition of a kind."""
    found = await world.client.get(CRD, ObjectKey("", f"plains.{gvk.group}"))
    found["spec"]["versions"][0]["subresources"] = text
    await world.client.replace(found)


async def test_status_subresource_added_later_is_used(
    world: World, plain: GVK, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "MAX_AGE_SECONDS", 0.5)

    async def subresources() -> frozenset[str]:
        return (await world.client.resource(plain)).subresources

    assert await subresources() == {"status"}
    await set_subresources(world, plain, {})
    await eventually(subresources, lambda found: found == frozenset(), TIMEOUT_SECONDS, "the subresource is gone")
    await set_subresources(world, plain, {"status": {}})
    await eventually(subresources, lambda found: found == {"status"}, TIMEOUT_SECONDS, "the subresource is there")


async def test_changed_scope_is_used_after_the_first_contradicting_response(world: World, plain: GVK) -> None:
    """The age of what is known does not matter here: nothing grows old."""
    world.client._discovery.now = lambda: 0.0
    assert (await world.client.resource(plain)).namespaced
    await undefine(world.client, plain)
    changed = definition(plain)
    changed["spec"]["scope"] = "Cluster"
    await world.client.create(changed)

    async def is_namespaced() -> bool:
        with pytest.raises(KubeError):
            await world.client.get(plain, world.key("nobody"))
        try:
            return (await world.client.resource(plain)).namespaced
        except KubeError:
            return True

    await eventually(is_namespaced, lambda found: not found, TIMEOUT_SECONDS, "the new scope is seen")
