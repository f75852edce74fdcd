"""Cached reads on a real API server: fast where they may be, never older than what the primary's runs have seen."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from rolecall.controller.source.object_cache import ObjectCache
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.proxy import Proxy, ReadWatermark, SessionSpec
from tests.integration.conftest import wait_until_ready
from tests.integration.operators import Operator
from tests.integration.things import MANIFEST, THING, write_project
from tests.integration.world import CONFIG_MAP, PATIENCE, World, eventually, is_true

ROUNDS = 60


@dataclass
class Reader:
    """One run of a primary that reads and writes ConfigMaps."""

    session: aiohttp.ClientSession
    path: str
    hits: int = 0
    misses: int = 0

    async def ask(self, method: str, name: str = "", body: Any = None, **query: str) -> tuple[int, Any]:
        """Send a request for a ConfigMap, or for all of them; count whether it was answered from the cache."""
        headers = {"Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json"}
        target = f"{self.path}/{name}" if name else self.path
        async with self.session.request(method, target, json=body, headers=headers, params=query) as answer:
            if method == "GET":
                is_hit = answer.headers.get("X-Cache") == "HIT"
                self.hits, self.misses = self.hits + is_hit, self.misses + (not is_hit)
            return answer.status, await answer.json()

    async def value(self, name: str) -> str | None:
        """Read what a ConfigMap holds, None when it is not there."""
        status, content = await self.ask("GET", name)
        return content["data"]["value"] if status == 200 else None

    async def listed(self) -> dict[str, str]:
        """List what all ConfigMaps of the test hold."""
        _, content = await self.ask("GET", labelSelector="test=cache")
        return {item["metadata"]["name"]: item["data"]["value"] for item in content["items"]}


def config_map(name: str, value: object) -> RawObject:
    metadata = {"name": name, "labels": {"test": "cache"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": str(value)}}


@pytest.fixture
async def readers(world: World) -> AsyncIterator[tuple[Reader, Reader]]:
    """Give two runs of one primary, as one after the other."""
    watermark = ReadWatermark()
    async with ObjectCache(world.client) as cache:
        proxy = Proxy(world.client, cache=cache)
        await proxy.start()
        sessions = []
        for _ in range(2):
            spec = SessionSpec(
                request_gvk=THING,
                key=ObjectKey(world.namespace, "one"),
                uid="uid",
                namespaced=True,
                on_write=lambda _obj: None,
                on_dependent=lambda _resource, _ownership: None,
                inject_owner=False,
                watermark=watermark,
            )
            headers = {"Authorization": f"Bearer {proxy.register(spec).secret}"}
            sessions.append(aiohttp.ClientSession(proxy.url, headers=headers))
        path = f"/api/v1/namespaces/{world.namespace}/configmaps"
        yield Reader(sessions[0], path), Reader(sessions[1], path)
        for session in sessions:
            await session.close()
        await proxy.stop()


async def test_what_a_run_wrote_or_saw_is_what_it_and_the_next_one_read(readers: tuple[Reader, Reader]) -> None:
    first, second = readers
    await first.ask("POST", body=config_map("quiet", 0))
    await eventually(lambda: _is_warm(first), bool, PATIENCE, "the cache answers")
    for number in range(ROUNDS):
        await first.ask("POST", body=config_map("busy", number))
        for reader in (first, second):
            assert await reader.value("busy") == str(number)
        await first.ask("PATCH", "busy", {"data": {"value": "changed"}})
        for reader in (second, first):
            assert (await reader.listed()) == {"quiet": "0", "busy": "changed"}
        assert (await second.ask("DELETE", "busy"))[0] == 200
        for reader in (first, second):
            assert await reader.value("busy") is None
            assert (await reader.listed()) == {"quiet": "0"}
            assert await reader.value("quiet") == "0"
    assert first.misses > ROUNDS, "the cache was never behind: this test tests nothing"
    assert first.hits + second.hits > 0, "nothing came from the cache: this test tests nothing"


async def _is_warm(reader: Reader) -> bool:
    before = reader.hits
    await reader.value("quiet")
    return reader.hits > before


async def test_a_users_change_is_seen_soon_and_lists_turn_their_pages(
    world: World, readers: tuple[Reader, Reader]
) -> None:
    reader, _ = readers
    for number in range(5):
        await world.client.create({**config_map(f"cm{number}", 1), "metadata": _placed(world, f"cm{number}")})
    await reader.ask("GET", "cm0")
    await eventually(lambda: _all(reader), lambda found: reader.hits and len(found) == 5, PATIENCE, "the cache answers")
    await world.patch(CONFIG_MAP, "cm0", {"data": {"value": "2"}})
    await eventually(lambda: reader.value("cm0"), lambda value: value == "2", PATIENCE, "the change is seen")
    seen, query = [], {"limit": "2", "labelSelector": "test=cache"}
    while True:
        _, page = await reader.ask("GET", **query)
        seen += [item["metadata"]["name"] for item in page["items"]]
        if not (token := page["metadata"].get("continue")):
            break
        query["continue"] = token
    assert seen == [f"cm{number}" for number in range(5)]


async def _all(reader: Reader) -> dict[str, str]:
    return await reader.listed()


def _placed(world: World, name: str) -> RawObject:
    return {"name": name, "namespace": world.namespace, "labels": {"test": "cache"}}


READ = """
- name: Write
  kubernetes.core.k8s:
    state: present
    definition:
      apiVersion: v1
      kind: "{{ item }}"
      metadata: {name: mine, namespace: "{{ ansible_operator_meta.namespace }}"}
  loop: [ConfigMap, Secret]
- name: Read
  kubernetes.core.k8s_info:
    api_version: v1
    kind: "{{ item }}"
    name: mine
    namespace: "{{ ansible_operator_meta.namespace }}"
  loop: [ConfigMap, Secret]
- name: Show
  ansible.builtin.set_stats:
    aggregate: false
    data:
      host: "{{ lookup('env', 'K8S_AUTH_HOST') }}"
      server: "{{ (lookup('file', lookup('env', 'KUBECONFIG')) | from_json).clusters[0].cluster.server }}"
      unproxied: "{{ lookup('env', 'NO_PROXY') }}"
"""
WATCH = """
reconcilePeriod: 1s
blacklist: [{group: "", version: v1, kind: Secret}]
status: {host: $.stats.host, server: $.stats.server, unproxied: $.stats.unproxied}
"""


async def test_an_operator_reads_from_its_cache_at_the_port_that_it_was_given(
    world: World, thing_operator: Operator
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    write_project(thing_operator.folder, READ, WATCH)
    thing_operator.arguments += ("--cache-reads", f"--proxy-port={port}", "--zap-log-level=debug")
    thing_operator.environment["NO_PROXY"] = "elsewhere.example"
    thing_operator.start()
    await wait_until_ready(thing_operator)
    await world.create(MANIFEST)
    thing = await world.wait_for(THING, "one", lambda obj: is_true(obj, "Successful"), PATIENCE)
    url = f"http://127.0.0.1:{port}"
    assert {name: thing["status"][name] for name in ("host", "server")} == {"host": url, "server": url}
    assert set(thing["status"]["unproxied"].split(",")) == {"127.0.0.1", "localhost", "elsewhere.example"}

    def read(message: str) -> list[str]:
        return [line["resource"]["Path"] for line in thing_operator.messages(message)]

    async def hits() -> list[str]:
        return read("Read object from cache")

    place = f"/api/v1/namespaces/{world.namespace}"
    await eventually(hits, lambda paths: f"{place}/configmaps/mine" in paths, PATIENCE, "a read from the cache")
    assert f"{place}/secrets/mine" not in await hits()
    assert f"{place}/secrets/mine" in read("Skipping cache lookup")
    log = await asyncio.to_thread(thing_operator.log_file.read_text)
    assert f'"Skipping cache lookup","resource":{{"IsResourceRequest":true,"Path":"{place}/secrets/mine"' in log
    assert "Resource will not be watched/cached." in log
    assert json.dumps(url)[1:-1] in log
