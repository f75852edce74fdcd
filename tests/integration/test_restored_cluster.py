"""etcd is restored to an earlier version while an operator runs: objects and versions go back, no change is hidden."""

import asyncio
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from rolecall.kube.client import Client
from rolecall.kube.metadata import generation_of, metadata_of, resource_version_of, uid_of
from rolecall.kube.references import RawObject
from rolecall.workbench.controlplane import ControlPlane
from tests.integration import metrics
from tests.integration.conftest import wait_until_quiet, wait_until_ready
from tests.integration.control_plane import separate_control_plane
from tests.integration.operators import Operator
from tests.support.things import MANIFEST, THING, write_project
from tests.support.world import CONFIG_MAP, TIMEOUT_SECONDS, World, eventually, is_true, names

pytestmark = pytest.mark.alone

WATCH = "watchReads: true\nfinalizer: {name: test.rolecall.dev/finalizer, vars: {ends: true}}"
TASKS = """
- name: Read the settings
  kubernetes.core.k8s_info: {api_version: v1, kind: ConfigMap, name: settings, namespace: default}
  register: settings
- name: Write down the size and the colour
  kubernetes.core.k8s:
    state: "{{ 'absent' if ends | default(false) else 'present' }}"
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ ansible_operator_meta.name }}", namespace: default}
      data: {size: "size {{ size }}", colour: "{{ settings.resources[0].data.colour }}"}
- name: Have an extra object for small sizes only
  kubernetes.core.k8s:
    state: "{{ 'absent' if ends | default(false) or size > 1 else 'present' }}"
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ ansible_operator_meta.name }}-extra", namespace: default}
"""
SETTINGS = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {colour: red}}"
FILLER = "{apiVersion: v1, kind: ConfigMap, metadata: {name: filler}}"
LEADER = (
    *("--leader-elect", "--leader-election-id", "lock", "--leader-election-namespace", "default"),
    *("--leader-elect-lease-duration", "120s", "--leader-elect-renew-deadline", "100s"),
)
"""Its Lease goes back too; on a slow machine, the restore takes as long as the usual deadline."""

WRITES_OF_A_RUN = 60
"""More than there are, with those of Leases in the meantime."""

WRITES_AFTER_THE_SNAPSHOT = 400
"""So many that the versions after the restore stay below those that runs wrote before it."""


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    """Yield a control plane of the test's own, without controllers, so that few other clients use up versions."""
    with separate_control_plane("restore", has_controllers=False) as running:
        yield running


@pytest.fixture
async def world(plane: ControlPlane) -> AsyncIterator[World]:
    """Yield its namespace ``default``."""
    async with await Client.connect(str(plane.kubeconfig)) as client:
        yield World(client, "default")


@pytest.fixture
def operator(plane: ControlPlane, tmp_path: Path) -> Iterator[Operator]:
    """Yield an operator for the kind Thing, started."""
    write_project(tmp_path, TASKS, WATCH)
    operator = Operator(
        tmp_path, plane.kubeconfig, "default", ("--backoff-max", "5s", "--metrics-bind-address", "127.0.0.1:0", *LEADER)
    )
    operator.start()
    yield operator
    assert operator.stop() == 0


def take_snapshot(plane: ControlPlane, snapshot: Path) -> None:
    """Copy etcd's data as a snapshot of its disk does: without an end of etcd, but also without a write in between."""
    state = plane.state()
    assert state is not None
    etcd = state.processes["etcd"].pid
    os.kill(etcd, signal.SIGSTOP)
    try:
        shutil.copytree(plane.layout.root / "etcd", snapshot)
    finally:
        os.kill(etcd, signal.SIGCONT)


def restore(plane: ControlPlane, snapshot: Path) -> None:
    """Stop etcd and the API server, and start them with the data of the snapshot."""
    for component in ("kube-apiserver", "etcd"):
        plane.stop_component(component)
    shutil.rmtree(plane.layout.root / "etcd")
    shutil.copytree(snapshot, plane.layout.root / "etcd")
    for component in ("etcd", "kube-apiserver"):
        plane.start_component(component)


async def create_things(world: World, *things: str) -> None:
    """Create objects of the kind Thing with the size 1."""
    for name in things:
        await world.create(MANIFEST.replace("one", name))


async def wait_until_reconciled(world: World, colour: str, **sizes: int) -> None:
    """Wait until exactly these objects exist, with the dependents and status of an undisturbed run."""

    async def look() -> tuple[list[RawObject], dict[str, RawObject]]:
        dependents = {str(metadata_of(obj)["name"]): obj for obj in await world.objects(CONFIG_MAP)}
        return await world.objects(THING), dependents

    def is_reconciled(thing: RawObject, dependents: dict[str, RawObject]) -> bool:
        name, size = str(metadata_of(thing)["name"]), sizes[str(metadata_of(thing)["name"])]
        return (
            thing["spec"]["size"] == size
            and is_true(thing, "Successful")
            and not is_true(thing, "Failure")
            and thing["status"]["observedGeneration"] == generation_of(thing)
            and dependents.get(name, {}).get("data") == {"size": f"size {size}", "colour": colour}
            and (f"{name}-extra" in dependents) == (size == 1)
        )

    def all_reconciled(seen: tuple[list[RawObject], dict[str, RawObject]]) -> bool:
        things, dependents = seen
        return names(things) == sorted(sizes) and all(is_reconciled(thing, dependents) for thing in things)

    await eventually(look, all_reconciled, TIMEOUT_SECONDS, f"{sizes} are reconciled in {colour}")


async def use_up_versions(world: World, until: int) -> None:
    """Change an object until the cluster has reached a version."""
    number, version = 0, 0
    while version < until:
        number += 1
        written = await world.patch(CONFIG_MAP, "filler", {"data": {"number": str(number), "until": str(until)}})
        version = int(resource_version_of(written))


async def current_version(world: World) -> int:
    """Return the version of the cluster."""
    return int(await anext(version async for _, version in world.client.list_pages(CONFIG_MAP, "default")))


async def test_restored_objects_are_reconciled_and_no_change_stays_hidden(
    plane: ControlPlane, world: World, operator: Operator, tmp_path: Path
) -> None:
    """Objects created, changed, and deleted after the snapshot are what they were; versions of before mean nothing."""
    await wait_until_ready(operator)
    await world.create(SETTINGS + "\n---\n" + FILLER)
    await create_things(world, "kept", "edited", "deleted")
    await wait_until_reconciled(world, "red", kept=1, edited=1, deleted=1)
    extra = await world.get(CONFIG_MAP, "edited-extra")
    await create_things(world, "unfinished")  # its run may write nothing, or a part
    await asyncio.to_thread(take_snapshot, plane, tmp_path / "snapshot")

    await wait_until_reconciled(world, "red", kept=1, edited=1, deleted=1, unfinished=1)
    await use_up_versions(world, await current_version(world) + WRITES_AFTER_THE_SNAPSHOT)
    own_versions = []
    for size in (2, 3, 4):
        await use_up_versions(world, await current_version(world) + WRITES_OF_A_RUN)
        await world.patch(THING, "edited", {"spec": {"size": size}})
        await wait_until_reconciled(world, "red", kept=1, edited=size, deleted=1, unfinished=1)
        own_versions.append(int(resource_version_of(await world.get(CONFIG_MAP, "edited"))))
    await world.patch(CONFIG_MAP, "settings", {"data": {"colour": "blue"}})
    await world.delete(THING, "deleted")
    await create_things(world, "later")
    await wait_until_reconciled(world, "blue", kept=1, edited=4, unfinished=1, later=1)
    await wait_until_quiet(operator)
    runs_of_later = len(operator.messages("Reconcile succeeded", name="later"))

    await asyncio.to_thread(restore, plane, tmp_path / "snapshot")
    await wait_until_reconciled(world, "red", kept=1, edited=1, deleted=1, unfinished=1)
    await wait_until_quiet(operator)
    assert len(operator.messages("Reconcile succeeded", name="later")) == runs_of_later

    async def known() -> list[str]:
        async with aiohttp.ClientSession() as session:
            series = await metrics.read(session, operator)
        created = [name for name in series if name.startswith("resource_created_at_seconds")]
        return sorted(re.findall(r'name="([a-z]+)"', str(created)))

    restored = ["deleted", "edited", "kept", "unfinished"]
    await eventually(known, restored.__eq__, TIMEOUT_SECONDS, "the metrics have the objects of the snapshot")
    assert await current_version(world) < own_versions[0]

    # The runs of before the restore deleted this object for good, and it is back.
    assert uid_of(await world.get(CONFIG_MAP, "edited-extra")) == uid_of(extra)
    await world.delete(CONFIG_MAP, "edited-extra")
    await wait_until_reconciled(world, "red", kept=1, edited=1, deleted=1, unfinished=1)
    await wait_until_quiet(operator)

    await world.patch(THING, "kept", {"spec": {"size": 2}})
    await world.patch(CONFIG_MAP, "settings", {"data": {"colour": "green"}})
    await world.delete(THING, "deleted")
    await create_things(world, "later")
    await wait_until_reconciled(world, "green", kept=2, edited=1, unfinished=1, later=1)
    await wait_until_quiet(operator)

    # A version that a run wrote before the restore is now that of another client's change.
    for version in own_versions:
        await use_up_versions(world, version - 1)
        changed = await world.patch(CONFIG_MAP, "edited", {"data": {"size": f"changed in {version}"}})
        await wait_until_reconciled(world, "green", kept=2, edited=1, unfinished=1, later=1)
        if int(resource_version_of(changed)) == version:
            break
        await wait_until_quiet(operator)
    else:
        raise AssertionError(f"other clients wrote each of the versions {own_versions}")
