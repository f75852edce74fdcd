"""Kinds that come late, go and come again, or share their name (issue 5, item 3)."""

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest

from rolecall.kube.references import GVK, RawObject
from tests.integration.conftest import wait_until_ready
from tests.integration.definitions import define, undefine
from tests.integration.operators import Operator
from tests.integration.things import write_role
from tests.integration.world import TIMEOUT_SECONDS, World, eventually, is_true

GOOD = "- name: Say which\n  ansible.builtin.debug: {msg: fine}\n"


@pytest.fixture
def gvk() -> GVK:
    """Give a kind that nobody has defined."""
    return GVK(f"g{uuid.uuid4().hex[:8]}.rolecall.dev", "v1", "Late")


@pytest.fixture
async def defined_kinds(world: World) -> AsyncIterator[list[GVK]]:
    """Give a list of kinds that are removed after the test."""
    kinds: list[GVK] = []
    yield kinds
    for kind in kinds:
        await undefine(world.client, kind)


def project(operator: Operator, *gvks: GVK) -> None:
    """Write a project that watches these kinds, all with one role."""
    entries = [f"- {{group: {gvk.group}, version: {gvk.version}, kind: {gvk.kind}, role: thing}}\n" for gvk in gvks]
    (operator.folder / "watches.yaml").write_text("".join(entries))
    write_role(operator.folder, GOOD)


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


async def test_equal_kinds_of_two_groups_and_of_two_versions_do_not_mix(
    world: World, thing_operator: Operator, gvk: GVK, defined_kinds: list[GVK]
) -> None:
    """Each has its queue and its workspace; objects of one name in both are reconciled each for itself."""
    other_group = GVK(f"other.{gvk.group}", "v1", gvk.kind)
    other_version = GVK(gvk.group, "v1alpha1", gvk.kind)
    await asyncio.gather(define(world.client, gvk, "v1alpha1"), define(world.client, other_group))
    defined_kinds += [gvk, other_group]
    thing_operator.arguments += ("--work-dir", str(thing_operator.folder / "work"))
    project(thing_operator, gvk, other_group, other_version)
    thing_operator.start()
    await wait_until_ready(thing_operator)
    for kind in (gvk, other_group):
        await world.client.create(one(kind, world))

    async def workspaces() -> set[str]:
        found = (thing_operator.folder / "work").rglob("env/extravars")
        return {str(path.parents[1].relative_to(thing_operator.folder / "work")) for path in found}

    expected = {f"{kind.group}/{kind.version}/Late/{world.namespace}/one" for kind in (gvk, other_group, other_version)}
    await eventually(workspaces, lambda found: found == expected, TIMEOUT_SECONDS, "three workspaces")
    for kind in (gvk, other_group):
        await succeeds(world, kind)

    async def ended() -> int:
        return len(thing_operator.messages("Reconcile succeeded", kind="Late", name="one"))

    await eventually(ended, lambda count: count >= 3, TIMEOUT_SECONDS, "each watch has run")
    await world.client.delete(other_group, world.key("one"))
    gone = f"{other_group.group}/v1/Late/{world.namespace}/one"
    await eventually(
        workspaces, lambda found: found == expected - {gone}, TIMEOUT_SECONDS, "only its own workspace goes"
    )
