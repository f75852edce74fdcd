"""Warm runs know what the API server serves without asking, and are never wrong about it for longer than it matters.

The runs are real ones of kubernetes.core. They reach the API server through the proxy, which reports their requests.
The same rules are checked behind servers that answer discovery in another way: the classic one, and with a stale
version.
"""

import json
import os
import re
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import Configuration

from rolecall.kube.client import Client
from rolecall.kube.connection import Request
from rolecall.kube.discovery import AGGREGATED, AggregatedDiscovery
from rolecall.kube.metadata import uid_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.proxy.forward import NewTraceparent, buffered_response, send, upstream_headers
from rolecall.runner.proxy.ownership import Owner
from rolecall.runner.proxy.server import Proxy
from rolecall.runner.proxy.sessions import Exchange
from rolecall.runner.runs.events import RunEvent
from rolecall.runner.runs.outcome import Outcome
from rolecall.runner.runs.own_writes import OwnWrites
from rolecall.runner.runs.process import ProcessRunner
from rolecall.runner.runs.run import Run, credentials
from rolecall.runner.runs.shared_discovery import SharedDiscovery
from rolecall.runner.warm.starter import ForkserverStarter
from tests.integration.test_runner import Bench
from tests.support.things import SCHEMA
from tests.support.world import CONFIG_MAP, TIMEOUT_SECONDS, World, eventually

DEFINITION = GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
DISCOVERY = re.compile(r"/(version|api(/v1)?|apis(/[^/?]+(/[^/?]+)?)?)/?(\?|\Z)")
Change = Callable[[str, bytes], bytes]
"""Changes an answer to a path."""

LOOK = """
- name: Look
  kubernetes.core.k8s_info: {api_version: "{{ group }}/v1", kind: Made, namespace: "{{ ns }}"}
  register: found
- name: Tell
  ansible.builtin.set_stats: {data: {is_found: "{{ found.api_found }}"}}
"""
ORDINARY = """
- name: Make
  kubernetes.core.k8s:
    definition:
      {apiVersion: v1, kind: ConfigMap, metadata: {name: made, namespace: "{{ ns }}"}, data: {a: "1"}}
- name: Count
  kubernetes.core.k8s_info: {api_version: apps/v1, kind: Deployment, namespace: "{{ ns }}"}
  register: found
- name: Tell
  ansible.builtin.set_stats: {data: {is_found: "{{ found.api_found }}"}}
"""
DEFINE = """
- name: Define a kind
  kubernetes.core.k8s:
    definition: "{{ definition }}"
    wait: true
    wait_condition: {type: Established}
- name: Make one of it
  kubernetes.core.k8s:
    definition: {apiVersion: "{{ group }}/v1", kind: Made, metadata: {name: one, namespace: "{{ ns }}"}}
  register: made
  until: made is not failed
  retries: 20
  delay: 0.5
- name: Tell
  ansible.builtin.set_stats: {data: {made: "{{ made.result.metadata.name }}"}}
"""
REMOVE = """
- name: Look
  kubernetes.core.k8s_info: {api_version: "{{ group }}/v1", kind: Made, namespace: "{{ ns }}"}
  register: before
- name: Remove the kind
  kubernetes.core.k8s: {definition: "{{ definition }}", state: absent, wait: true}
- name: Look again
  kubernetes.core.k8s_info: {api_version: "{{ group }}/v1", kind: Made, namespace: "{{ ns }}"}
  register: found
  until: not found.api_found
  retries: 20
  delay: 0.5
- name: Tell
  ansible.builtin.set_stats: {data: {was_found: "{{ before.api_found }}", is_found: "{{ found.api_found }}"}}
"""


def definition_of(group: str) -> RawObject:
    """Return the definition of the kind Made in a group."""
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}}
    names = {"kind": "Made", "plural": "mades", "singular": "made"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"mades.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def as_it_is(_path: str, body: bytes) -> bytes:
    """Leave an answer as it is."""
    return body


def with_stale_apps(_path: str, body: bytes) -> bytes:
    """Mark the group apps as stale in aggregated discovery."""
    answer = json.loads(body)
    for group in answer["items"]:
        if group["metadata"].get("name") == "apps":
            group["versions"] = [{"version": "v1", "freshness": "Stale"}]
    return json.dumps(answer).encode()


@asynccontextmanager
async def standing_before(client: Client, change: Change, *, is_classic: bool) -> AsyncIterator[Client]:
    """Yield a client of a server that answers as the API server does, but for discovery."""

    async def answer(request: web.Request) -> web.StreamResponse:
        headers = upstream_headers(request.headers)
        is_aggregated = AGGREGATED in headers.get("Accept", "")
        if is_aggregated:
            headers.pop("If-None-Match", None)
            headers["Accept"] = "application/json" if is_classic else headers["Accept"]
        body = await request.read()
        async with await send(client, request.method, request.raw_path, headers, data=body or None) as found:
            content = await found.read()
            return buffered_response(found, change(request.path, content) if is_aggregated else content)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    async with (
        TestServer(application) as server,
        Client(Configuration(host=str(server.make_url("/")).rstrip("/"))) as before,
    ):
        yield before


@dataclass
class Runs:
    """Runs warm in the name of a ConfigMap, and remembers which discovery each has requested."""

    bench: Bench
    proxy: Proxy
    discovery: SharedDiscovery
    directory: Path
    primary: RawObject
    group: str = field(default_factory=lambda: f"g{uuid.uuid4().hex[:8]}.example.com")
    asked: list[str] = field(default_factory=list)
    new_traceparent: NewTraceparent | None = None

    async def run(self, tasks: str, name: str) -> Outcome:
        """Run a role to its end."""
        role = self.bench.role(tasks, name)
        values: dict[str, Any] = {"group": self.group, "ns": self.primary["metadata"]["namespace"]}
        job = self.bench.job(role, {**values, "definition": definition_of(self.group)})
        self.asked.clear()
        owner = Owner(CONFIG_MAP, ObjectKey.of_object(self.primary), uid_of(self.primary), namespaced=True)
        run = Run(
            id=job.ident,
            owner=owner,
            is_recorded=True,
            own_writes=OwnWrites(),
            on_dependent=lambda *_: None,
            record=self,
            discovery=await self.discovery.for_run(),
        )
        async with credentials(self.proxy, run, self.directory, {}) as given:
            spec = replace(job, environment=replace(given, revoke=None))
            return await self.bench.runner.run(spec, self.bench.events.append)

    async def told(self, tasks: str, name: str) -> dict[str, Any]:
        """Run a role and return its statistics."""
        summary = await self.run(tasks, name)
        assert summary.is_successful, summary.message
        return dict(summary.stats)

    def on_event(self, event: RunEvent) -> None:
        """Take no note of an event."""

    def on_exchange(self, exchange: Exchange) -> None:
        """Record a request for discovery."""
        if DISCOVERY.match(exchange.target):
            self.asked.append(exchange.target)


@pytest.fixture
async def start(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[[Client], Any]]:
    """Yield what starts a proxy and a fork server for runs that reach the API server by a client."""
    monkeypatch.setenv("ANSIBLE_GATHERING", "explicit")
    monkeypatch.delenv("ANSIBLE_INVENTORY", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    metadata = {"name": "primary", "namespace": world.namespace}
    primary = await world.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    async with AsyncExitStack() as stack:

        async def start_runs(client: Client) -> Runs:
            proxy = await stack.enter_async_context(Proxy(client))
            bench = Bench(
                tmp_path, ProcessRunner(await stack.enter_async_context(ForkserverStarter([_known(tmp_path)])))
            )
            discovery = SharedDiscovery(AggregatedDiscovery(client))
            directory = tmp_path / "access"
            directory.mkdir()
            return Runs(bench, proxy, discovery, directory, primary)

        yield start_runs


def _known(directory: Path) -> Path:
    """Write a role, so that the fork server prepares itself for kubernetes.core."""
    tasks = directory / "known" / "tasks"
    tasks.mkdir(parents=True)
    (tasks / "main.yml").write_text(ORDINARY)
    return directory / "known"


async def _defined(client: Client, group: str) -> None:
    """Define the kind Made in a group, and wait until discovery has it."""
    await client.create(definition_of(group))
    await eventually(
        lambda: _ways_to(client, group), lambda found: len(found) == 2, TIMEOUT_SECONDS, f"{group} is served"
    )


async def _removed(client: Client, group: str) -> None:
    """Remove that definition, and wait until discovery does not have it."""
    await client.delete(DEFINITION, ObjectKey("", f"mades.{group}"))
    await eventually(
        lambda: _ways_to(client, group), lambda found: not found, TIMEOUT_SECONDS, f"{group} is not served"
    )


async def _ways_to(client: Client, group: str) -> list[str]:
    """Return the documents of discovery that have a group: the API server doesn't change all at the same time."""
    served = await AggregatedDiscovery(client).changed()
    groups = (await client.receive(Request("GET", "/apis"))).decode()
    found = ["aggregated"] if served is not None and any(served.groups.get(group, {}).values()) else []
    return [*found, *(["groups"] if group in groups else [])]


async def test_run_requests_no_known_discovery(world: World, start: Callable[[Client], Any], tmp_path: Path) -> None:
    runs = await start(world.client)
    assert await runs.told(ORDINARY, "ordinary") == {"is_found": True}
    assert runs.asked == []
    assert not [name for name in os.listdir(tmp_path) if name.startswith("k8srcp-")]  # noqa: PTH208 - names alone


async def test_kind_defined_by_a_run_is_found_by_its_next_task(world: World, start: Callable[[Client], Any]) -> None:
    runs = await start(world.client)
    assert await runs.told(DEFINE, "define") == {"made": "one"}
    await _removed(world.client, runs.group)


async def test_kind_removed_by_a_run_is_not_found_by_its_next_task(
    world: World, start: Callable[[Client], Any]
) -> None:
    runs = await start(world.client)
    await _defined(world.client, runs.group)
    assert await runs.told(REMOVE, "remove") == {"was_found": True, "is_found": False}


async def test_kind_defined_and_removed_by_another_client_is_noticed(
    world: World, start: Callable[[Client], Any]
) -> None:
    runs = await start(world.client)
    assert await runs.told(LOOK, "look") == {"is_found": False}
    await _defined(world.client, runs.group)
    assert await runs.told(LOOK, "look") == {"is_found": True}
    assert await runs.told(LOOK, "look") == {"is_found": True}
    assert runs.asked == []
    await _removed(world.client, runs.group)
    gone = {"is_found": False}  # soon: parts of the API server tell of a kind a moment longer than others
    await eventually(
        lambda: runs.told(LOOK, "look"), lambda told: told == gone, TIMEOUT_SECONDS, "the kind is not found"
    )


async def test_stale_version_is_requested(world: World, start: Callable[[Client], Any]) -> None:
    async with standing_before(world.client, with_stale_apps, is_classic=False) as client:
        runs = await start(client)
        assert await runs.told(ORDINARY, "ordinary") == {"is_found": True}
        assert set(runs.asked) == {"/apis/apps/v1"}


async def test_each_version_is_requested_without_aggregated_discovery(
    world: World, start: Callable[[Client], Any]
) -> None:
    async with standing_before(world.client, as_it_is, is_classic=True) as client:
        runs = await start(client)
        assert await runs.told(ORDINARY, "ordinary") == {"is_found": True}
        assert set(runs.asked) == {"/api/v1", "/apis/apps/v1"}
        assert await runs.told(DEFINE, "define") == {"made": "one"}
        assert await runs.told(REMOVE, "remove") == {"was_found": True, "is_found": False}
