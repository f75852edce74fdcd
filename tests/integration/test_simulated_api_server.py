"""The simulated API server answers random scripts of requests as the real one does.

A difference is a fault of the simulation, or listed with its reason in ``tests/simulation/README.md``. The number of
scripts is in ``ROLECALL_SCRIPTS``.
"""

import asyncio
import json
import os
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest
from yarl import URL

from rolecall.kube.client import Client
from rolecall.kube.discovery import AggregatedDiscovery, read_resource_list
from rolecall.kube.references import RawObject
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.project.demo_inputs import Applier
from tests.integration.control_plane import separate_control_plane
from tests.simulation.cluster import Answer, ServedKind, SimulatedApiServer
from tests.simulation.kinds import BUILT_IN, CONFIG_MAP, NAMESPACE, POD
from tests.simulation.scripts import GADGET, MERGE_PATCH, Step, ownership_script, script
from tests.simulation.transcripts import Transcript, resource_in
from tests.support.things import THING, definition_of
from tests.support.world import TIMEOUT_SECONDS, eventually

SCRIPTS = int(os.environ.get("ROLECALL_SCRIPTS", "25"))
OWNERSHIP_SCRIPTS = max(8, SCRIPTS // 10)
NAMESPACES = "/api/v1/namespaces"
GADGETS = f"/apis/{GADGET.group}/{GADGET.version}/gadgets"
CANARY = "canary"
KINDS = (*BUILT_IN, ServedKind(THING), ServedKind(GADGET, is_namespaced=False))
OWNING_KINDS = [kind for kind in KINDS if kind.gvk in (THING, CONFIG_MAP)]


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """Yield a control plane without controllers, which would change objects between two requests."""
    with separate_control_plane("simulated", has_controllers=False) as running:
        yield running


@asynccontextmanager
async def real_server(plane: ControlPlane) -> AsyncIterator["RealServer"]:
    """Yield the API server of a control plane, which then also serves Gadget."""
    definition = definition_of(GADGET)
    definition["spec"]["scope"] = "Cluster"
    Applier(plane.kubeconfig).apply([definition])
    async with await Client.connect(str(plane.kubeconfig)) as client:
        server = RealServer(client)
        await eventually(server.is_ready, bool, TIMEOUT_SECONDS, "the kinds are served and watched")
        yield server


class RealServer:
    """The real API server, over HTTP."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def is_ready(self) -> bool:
        """Return whether each kind can be listed and watched; watches know no change from before they can."""
        paths = [f"{_root(kind)}/{kind.name}" for kind in KINDS]
        reads = [Step("GET", path, {"resourceVersion": "0"}) for path in paths]
        return all([(await self.send(step))[0] == 200 for step in reads])

    async def objects(self, namespace: str) -> list[RawObject]:
        """Return all Things and ConfigMaps of a namespace."""
        found: list[RawObject] = []
        for kind in OWNING_KINDS:
            _, listed = await self.send(Step("GET", f"{_root(kind)}/namespaces/{namespace}/{kind.name}"))
            found += listed["items"]
        return found

    async def play(self, steps: list[Step], transcript: Transcript) -> None:
        """Send requests one by one, and the watches among them together at the end."""
        for step in steps:
            if not step.is_watch:
                if "resourceVersion" in step.query:
                    await self.wait_for_cache(step.path)
                transcript.add(step, *await self.send(step, transcript))
        watches = [step for step in steps if step.is_watch]
        for path in {step.path for step in watches}:
            await self.wait_for_cache(path)
        found = await asyncio.gather(*(self.send(step, transcript) for step in watches))
        for step, (status, body) in zip(watches, found, strict=True):
            transcript.add(step, status, body)

    async def wait_for_cache(self, path: str) -> None:
        """Wait until the API server's cache of the kind in a path has all changes.

        Watches, and reads with a version, come from the cache, which may be late by any time. A read that mustn't be
        older than a version waits in the server for three seconds, and then fails with 504.
        """
        for kind in [each for each in KINDS if each.name == resource_in(path)]:
            collection = f"{_root(kind)}/{kind.name}"
            _, newest = await self.send(Step("GET", collection, {"limit": "1"}))
            version = {"resourceVersion": newest["metadata"]["resourceVersion"]}
            cached = Step("GET", collection, {**version, "resourceVersionMatch": "NotOlderThan"})
            while (await self.send(cached))[0] == 504:
                pass

    async def send(self, step: Step, transcript: Transcript | None = None) -> tuple[int, Any]:
        """Send a request, and return the status and the body: the events of a watch, None if it isn't JSON."""
        filled = (transcript or Transcript()).filled
        query = filled(step.query) | ({"timeoutSeconds": "1"} if step.is_watch else {})
        url = URL(f"{self.client.base_url}{step.path}?{urlencode(query)}", encoded=True)
        headers = {"Accept": step.accept, "Content-Type": step.content_type}
        body = None if step.body is None else json.dumps(filled(step.body))
        while True:
            try:
                async with await self.client.send(step.method, url, headers, data=body) as response:
                    text = await response.text()
                break
            except aiohttp.ClientPayloadError:
                if not step.is_watch:  # the API server may cut one, and a client then repeats it
                    raise
        if step.is_watch and response.status == 200:
            return 200, [json.loads(line) for line in text.splitlines()]
        is_json = response.content_type == "application/json"
        return response.status, json.loads(text) if is_json else None


def simulated_server() -> SimulatedApiServer:
    """Return a simulated API server with the kinds of the real one."""
    return SimulatedApiServer(lambda: 1_790_000_000.0, KINDS)


def simulate(server: SimulatedApiServer, steps: list[Step], transcript: Transcript) -> None:
    """Send the same requests to the simulated API server, watches last."""
    for step in sorted(steps, key=lambda step: step.is_watch):
        query = transcript.filled(step.query)
        if step.is_watch:
            found = server.watch(step.path, query, step.accept)
            status, body = (found.status, found.body) if isinstance(found, Answer) else (200, found.take())
        else:
            filled = transcript.filled(step.body)
            answer = server.handle(step.method, step.path, query, filled, step.accept, step.content_type)
            status, body = answer.status, answer.body
        transcript.add(step, status, body)


def first_difference(seed: int, steps: list[Step], real: Transcript, simulated: Transcript) -> list[str]:
    """Return the first request with different responses, if there is one."""
    ordered = sorted(steps, key=lambda step: step.is_watch)
    for step, expected, found in zip(ordered, real.normalized(), simulated.normalized(), strict=True):
        is_text = expected[1] is None
        if expected != ((found[0], None) if is_text else found):
            responses = f"    real:      {json.dumps(expected)}\n    simulated: {json.dumps(found)}"
            return [f"seed {seed}: {step}\n{responses}"]
    return []


def named(kind: str, name: str, **metadata: Any) -> RawObject:
    """Return an object of the core group with nothing but metadata."""
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, **metadata}}


async def remove_gadgets(server: RealServer) -> None:
    """Delete all cluster-scoped objects, which the next script must not find."""
    _, listed = await server.send(Step("GET", GADGETS))
    for name in [item["metadata"]["name"] for item in listed["items"]]:
        patch = {"metadata": {"finalizers": None}}
        await server.send(Step("PATCH", f"{GADGETS}/{name}", body=patch, content_type=MERGE_PATCH))
    await server.send(Step("DELETE", GADGETS))


async def test_discovery_describes_kinds_alike(plane: ControlPlane) -> None:
    """Both forms of discovery have the same plurals, scopes, verbs, and subresources; pods have more of these."""
    async with real_server(plane) as server:
        served = await AggregatedDiscovery(server.client).changed()
        assert served is not None
        for kind in KINDS:
            gvk = kind.gvk
            simulated = simulated_server().handle("GET", _root(kind)).body
            [expected] = [each for each in read_resource_list(gvk.group, gvk.version, simulated) if each.gvk == gvk]
            listed = await server.client.resource(gvk)
            aggregated = {"resources": served.groups[gvk.group][gvk.version]}
            [found] = [each for each in read_resource_list(gvk.group, gvk.version, aggregated) if each.gvk == gvk]
            for each in (listed, found):
                known = each.subresources & {"status"} if gvk in (POD, NAMESPACE) else each.subresources
                assert replace(each, subresources=known) == expected


@pytest.mark.timeout(60 + 5 * SCRIPTS)
async def test_random_scripts_get_the_same_responses_from_both_servers(plane: ControlPlane) -> None:
    """Statuses, bodies, reasons, details, and events are the same, but for uids, versions, times, and messages."""
    differences: list[str] = []
    async with real_server(plane) as server:
        for seed in range(SCRIPTS):
            namespace = f"script-{seed}"
            create = Step("POST", NAMESPACES, body=named("Namespace", namespace))
            # Pods need an account, which a controller creates elsewhere.
            account = Step("POST", f"{NAMESPACES}/{namespace}/serviceaccounts", body=named("ServiceAccount", "default"))
            real, simulated = Transcript(), Transcript()
            await server.play([create], real)
            await server.send(account)
            steps = script(seed, namespace)
            await server.play(steps, real)
            await remove_gadgets(server)
            simulate(simulated_server(), [create, *steps], simulated)
            differences += first_difference(seed, [create, *steps], real, simulated)
    assert not differences, f"{len(differences)} of {SCRIPTS} scripts:\n" + "\n".join(differences)


async def test_garbage_and_namespaces_end_in_the_same_state() -> None:
    """Both servers delete and release the same objects, for each propagation policy and for a deleted namespace."""
    with separate_control_plane("collected") as plane:
        async with real_server(plane) as server:
            await asyncio.gather(*(compare_owned_objects(server, seed) for seed in range(OWNERSHIP_SCRIPTS)))


async def compare_owned_objects(server: RealServer, seed: int) -> None:
    """Play one script of owned objects on both servers; after each phase, wait until their objects are the same."""
    namespace = f"owned-{seed}"
    create = Step("POST", NAMESPACES, body=named("Namespace", namespace))
    real, simulated, twin = Transcript(), Transcript(), simulated_server()
    await server.play([create], real)
    simulate(twin, [create], simulated)
    for number, steps in enumerate(ownership_script(seed, namespace)):
        await server.play(steps, real)
        simulate(twin, steps, simulated)
        while twin.collect_garbage() or twin.finish_namespaces():
            pass
        expected = owned_objects([obj for kind in KINDS for obj in twin.objects(kind.gvk)], namespace)

        async def differences(expected: RawObject = expected) -> list[Any]:
            found = owned_objects(await server.objects(namespace), namespace)
            return [
                (name, found.get(name), expected.get(name))
                for name in sorted(found.keys() | expected.keys())
                if found.get(name) != expected.get(name)
            ]

        what = f"seed {seed}, phase {number}: (name, real, simulated) are the same, expected {expected}"
        await eventually(differences, lambda found: not found, 120.0, what)
        if number < 4:
            await wait_for_collector(server, namespace)
        assert not await differences(), what


async def wait_for_collector(server: RealServer, namespace: str) -> None:
    """Wait until the garbage collector has deleted new objects of both kinds, so that it knows those before them."""
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "unknown", "uid": str(uuid.uuid4())}
    for kind in OWNING_KINDS:
        gvk, collection = kind.gvk, f"{_root(kind)}/namespaces/{namespace}/{kind.name}"
        metadata = {"name": CANARY, "ownerReferences": [owner]}
        body = {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata}
        status, _ = await server.send(Step("POST", collection, body=body))
        assert status == 201

        async def canary(path: str = f"{collection}/{CANARY}") -> int:
            return (await server.send(Step("GET", path)))[0]

        await eventually(canary, lambda status: status == 404, TIMEOUT_SECONDS, "the garbage collector is done")


def owned_objects(objects: list[RawObject], namespace: str) -> RawObject:
    """Return the owners and finalizers of each object of a namespace, and whether it is being deleted.

    The owners of a deleted object depend on the order in which its dead owners were noticed.
    """
    found = {}
    for obj in objects:
        metadata = obj["metadata"]
        if metadata.get("namespace") == namespace and metadata["name"] not in (CANARY, "kube-root-ca.crt"):
            is_deleted = "deletionTimestamp" in metadata
            owners = [] if is_deleted else sorted(each["name"] for each in metadata.get("ownerReferences", ()))
            found[metadata["name"]] = [owners, metadata.get("finalizers"), is_deleted]
    return found


def _root(kind: ServedKind) -> str:
    return f"/apis/{kind.gvk.group}/{kind.gvk.version}" if kind.gvk.group else f"/api/{kind.gvk.version}"
