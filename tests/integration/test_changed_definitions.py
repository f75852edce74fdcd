"""What a CustomResourceDefinition gets later is seen without a restart, on the real API server."""

import uuid
from collections.abc import AsyncIterator

import pytest

from rolecall.kube import discovery
from rolecall.kube.errors import KubeError
from rolecall.kube.references import GVK, ObjectKey
from tests.integration.definitions import CRD, define, definition, undefine
from tests.integration.world import TIMEOUT_SECONDS, World, eventually


@pytest.fixture
async def plain(world: World) -> AsyncIterator[GVK]:
    """Give a namespaced kind with a status subresource."""
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
    """The age of what is known does not matter here: it is far below its limit."""
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

    await eventually(is_namespaced, lambda found: not found, discovery.MAX_AGE_SECONDS / 2, "the new scope is seen")
