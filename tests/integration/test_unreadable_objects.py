"""An object that Python cannot parse does not hide the others of its kind, on the real API server."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from rolecall.kube.references import GVK
from rolecall.runner.controller.informer import Informer
from rolecall.system.clock import LoopClock
from tests.integration.definitions import define, undefine
from tests.support.world import TIMEOUT_SECONDS, World, eventually

LEVELS = 9_900
"""The API server takes up to 10,000."""

PARSED_LEVELS = 1_000


@pytest.fixture(autouse=True)
def _parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the parser: each version of Python can go to another depth, from 1,000 to 12,000 levels."""
    loads = json.loads

    def loads_some_levels(text: bytes | str) -> Any:
        if (text.encode() if isinstance(text, str) else text).count(b'":{') > PARSED_LEVELS:
            raise RecursionError
        return loads(text)

    monkeypatch.setattr("rolecall.kube.connection.json.loads", loads_some_levels)


@pytest.fixture
async def odd(world: World) -> AsyncIterator[GVK]:
    """Yield a kind whose schema rejects nothing."""
    gvk = GVK(f"g{uuid.uuid4().hex[:8]}.rolecall.dev", "v1", "Odd")
    await define(world.client, gvk)
    yield gvk
    await undefine(world.client, gvk)


async def send(world: World, gvk: GVK, method: str, name: str, levels: int = 1) -> None:
    """Create, replace, or delete an object with a spec of this many levels, as text that no client parses."""
    resource = await world.client.resource(gvk)
    metadata = json.dumps({"name": name, "namespace": world.namespace})
    spec = '{"a":' * levels + "1" + "}" * levels
    body = f'{{"apiVersion":"{gvk.api_version}","kind":"{gvk.kind}","metadata":{metadata},"spec":{spec}}}'
    url = world.client.base_url + resource.path(world.namespace, "" if method == "POST" else name)
    headers = {"Content-Type": "application/json", **await world.client.auth_headers()}
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=world.client.ssl_context)) as session,
        session.request(method, url, data=None if method == "DELETE" else body, headers=headers) as response,
    ):
        assert response.status < 300, await response.text()


async def test_lists_and_watches_continue_after_a_deeply_nested_object(world: World, odd: GVK) -> None:
    for name in ("a", "b", "deep", "x", "y"):
        await send(world, odd, "POST", name, LEVELS if name == "deep" else 1)
    informer = Informer(world.client, odd, (world.namespace,), LoopClock())
    deleted: list[str] = []
    informer.subscribe(lambda change: deleted.append(change.key.name) if change.new is None else None)
    task = asyncio.create_task(informer.run())
    try:
        await asyncio.wait_for(informer.synced.wait(), TIMEOUT_SECONDS)
        assert sorted(entry.name for entry in informer.store) == ["a", "b", "x", "y"]
        await send(world, odd, "POST", "deep-too", LEVELS)
        await send(world, odd, "POST", "z")
        await send(world, odd, "DELETE", "deep-too")
        await send(world, odd, "DELETE", "a")

        async def names() -> list[str]:
            return sorted(entry.name for entry in informer.store)

        await eventually(names, lambda found: found == ["b", "x", "y", "z"], TIMEOUT_SECONDS, "the watch has gone on")
        assert deleted == ["deep-too", "a"]
    finally:
        task.cancel()
        await asyncio.wait([task])
