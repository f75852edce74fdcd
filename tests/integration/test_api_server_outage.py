"""The API server goes away for twenty seconds while runs continue: nothing is lost, every object converges."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rolecall.kube.client import Client
from rolecall.kube.errors import KubeError
from rolecall.kube.references import RawObject
from rolecall.workbench.controlplane import ControlPlane
from tests.integration.conftest import wait_until_ready
from tests.integration.control_plane import separate_control_plane
from tests.integration.operators import Operator
from tests.support.things import MANIFEST, THING, write_project
from tests.support.world import CONFIG_MAP, TIMEOUT_SECONDS, World, eventually, is_true

pytestmark = pytest.mark.alone
OUTAGE_SECONDS = 20.0
OBJECTS = tuple(f"thing-{number}" for number in range(6))

TASKS = """
- name: Write down the size
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ ansible_operator_meta.name }}", namespace: "{{ ansible_operator_meta.namespace }}"}
      data: {size: "size {{ size }}"}
"""


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    """Yield a control plane of the test's own, because it stops a part of it."""
    with separate_control_plane("outage") as running:
        yield running


@pytest.fixture
async def default_namespace(plane: ControlPlane) -> AsyncIterator[World]:
    """Yield its namespace ``default``."""
    async with await Client.connect(str(plane.kubeconfig)) as client:
        yield World(client, "default")


async def wait_for_size(world: World, name: str, size: int) -> None:
    """Wait until an object's size has been written down."""
    await world.wait_for(CONFIG_MAP, name, lambda obj: obj["data"]["size"] == f"size {size}")


async def test_no_change_is_lost_while_the_api_server_is_unavailable(
    plane: ControlPlane, default_namespace: World, tmp_path: Path
) -> None:
    """Changes made just before and just after the outage, and one made while a run could not write, all arrive."""
    world = default_namespace
    write_project(tmp_path, TASKS)
    operator = Operator(tmp_path, plane.kubeconfig, "default", ("--backoff-max", "5s"))
    operator.start()
    try:
        await wait_until_ready(operator)
        for name in OBJECTS:
            await world.create(MANIFEST.replace("one", name))
        await world.wait_for(CONFIG_MAP, OBJECTS[0], bool)
        await asyncio.to_thread(plane.stop_component, "kube-apiserver")
        with pytest.raises(KubeError):
            await world.get(THING, OBJECTS[0])
        # These twenty seconds aren't a wait for an event: they are the duration of the outage under test.
        await asyncio.sleep(OUTAGE_SECONDS)
        await asyncio.to_thread(plane.start_component, "kube-apiserver")
        await world.patch(THING, OBJECTS[1], {"spec": {"size": 2}})
        for name in OBJECTS:
            await wait_for_size(world, name, 2 if name == OBJECTS[1] else 1)

        async def statuses() -> list[RawObject]:
            return await world.objects(THING)

        def all_well(things: list[RawObject]) -> bool:
            return all(is_true(obj, "Successful") and not is_true(obj, "Failure") for obj in things)

        await eventually(statuses, all_well, TIMEOUT_SECONDS, "every status says so")
    finally:
        assert operator.stop() == 0
