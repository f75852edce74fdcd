"""Roles that talk to a cluster through the proxy leave the same objects, events and status behind, warm and cold."""

import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from rolecall.kube.client import Client
from rolecall.kube.discovery import AggregatedDiscovery
from rolecall.kube.metadata import uid_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.proxy.ownership import Owner
from rolecall.runner.proxy.server import Proxy
from rolecall.runner.runs.own_writes import OwnWrites
from rolecall.runner.runs.run import Run, RunEnvironment, credentials
from rolecall.runner.runs.shared_discovery import SharedDiscovery
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.project.demo_inputs import Applier
from tests.integration.control_plane import control_plane
from tests.parity.cases import Case
from tests.parity.conftest import NAMES, Pair
from tests.parity.stage import Grants
from tests.parity.test_parity import assert_equal, assert_has_worked, assert_was_warm
from tests.support.things import DEFINITION, THING
from tests.support.world import CONFIG_MAP, EVENT, POD, World

__all__ = ["control_plane"]
pytestmark = pytest.mark.asyncio(loop_scope="session")

NAMESPACE = GVK("", "v1", "Namespace")
SEEN_KINDS = (CONFIG_MAP, POD, EVENT, THING)
BY_OTHERS = ("kube-root-ca.crt",)
CASE = Case(
    name="cluster",
    rule="objects are created, changed, read and deleted alike",
    status="failed",
    says=("['a', 'changed'] ['primary', 'primary']", "configmap/applied", "Unauthorized", "Not_A_Name"),
)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    """Yield an administrator's client of a control plane that knows the kind Thing."""
    Applier(control_plane.kubeconfig).apply([DEFINITION])
    async with await Client.connect(str(control_plane.kubeconfig)) as client:
        yield client


@asynccontextmanager
async def primary_in(client: Client, directory: Path) -> AsyncIterator[tuple[World, Grants]]:
    """Yield a namespace with a primary in it, and grants for runs in the primary's name."""
    name = f"parity-{uuid.uuid4().hex[:8]}"
    await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    thing = {"apiVersion": "test.rolecall.dev/v1", "kind": "Thing", "metadata": {"name": "primary", "namespace": name}}
    primary = await client.create(thing)
    proxy = Proxy(client)
    discovery = SharedDiscovery(AggregatedDiscovery(client))
    owner = Owner(THING, ObjectKey.of_object(primary), uid_of(primary), namespaced=True)

    @asynccontextmanager
    async def grant(ident: str) -> AsyncIterator[RunEnvironment]:
        run = Run(
            id=ident,
            owner=owner,
            own_writes=OwnWrites(),
            on_dependent=lambda *_: None,
            discovery=await discovery.for_run(),
        )
        async with credentials(proxy, run, directory, {}) as environment:
            yield environment

    world = World(client, name)
    await world.wait_until_pods_are_allowed()
    async with proxy:
        yield world, grant
    await client.delete(NAMESPACE, ObjectKey("", name))


async def objects(world: World) -> list[dict[str, Any]]:
    """Return the objects in a namespace that the cluster itself didn't create."""
    every = [{"kind": gvk.kind, **obj} for gvk in SEEN_KINDS for obj in await world.objects(gvk)]
    return [obj for obj in every if obj["metadata"]["name"] not in BY_OTHERS and not _is_by_cluster(obj)]


def _is_by_cluster(obj: RawObject) -> bool:
    return bool(obj["kind"] == "Event" and obj["metadata"]["name"] != "parity-event")


async def test_a_role_does_the_same_to_the_cluster(
    pair: Pair,
    client: Client,
    control_plane: ControlPlane,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(control_plane.program_directory), prepend=":")
    directories = {name: tmp_path_factory.mktemp(name) for name in NAMES}
    worlds: list[World] = []
    async with AsyncExitStack() as stack:
        for stage, name in zip((pair.cold, pair.warm), NAMES, strict=True):
            world, stage.grants = await stack.enter_async_context(primary_in(client, directories[name]))
            stage.own = {world.namespace: "<namespace>", str(directories[name]): "<access>"}
            stage.places = {"ansible_operator_meta": {"name": "primary", "namespace": world.namespace}}
            worlds.append(world)
        seen = await pair.run(CASE)
        cold, warm = [replace(run, objects=await objects(world)) for run, world in zip(seen, worlds, strict=True)]
    assert_has_worked(cold, CASE)
    assert_was_warm(warm, CASE)
    assert_equal(pair, cold, warm, CASE)
    assert {obj["metadata"]["name"] for obj in cold.objects} >= {"primary", "pod", "cm-b", "applied", "parity-event"}
