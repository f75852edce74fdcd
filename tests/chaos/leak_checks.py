"""Checks for leaked processes, files, and objects without runs, and the footprint of an idle operator."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from bench.process_tree import memory_bytes

from rolecall.kube.errors import KubeError
from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.runs.run import KUBECONFIG_PREFIX
from rolecall.runner.runs.workspace import workspaces_of
from tests.chaos import process_table
from tests.chaos.heartbeats import HEARTBEAT, PASSING
from tests.chaos.replica import Replica
from tests.chaos.scene import Scene
from tests.support.world import HIKAWA, POD_SCALER, names

_MIB = 1024**2
_DISCOVERY_CACHE = "k8srcp-"
"""The Kubernetes client of the modules intentionally keeps one such file per cluster."""
_KINDS = (HEARTBEAT, PASSING, POD_SCALER, HIKAWA)
_MAX_MEMORY_GROWTH, _MAX_MORE_DESCRIPTORS = 1.25, 15


@dataclass(frozen=True, slots=True)
class Footprint:
    """Resource usage of an idle operator and its descendants."""

    memory_mib: float
    descriptors: int
    """Of the operator and its fork server."""

    def growth(self, later: "Footprint") -> list[str]:
        """Return resources that have grown by more than a restart explains."""
        found = []
        if later.memory_mib > self.memory_mib * _MAX_MEMORY_GROWTH:
            found.append(f"memory has grown from {self.memory_mib:.0f} to {later.memory_mib:.0f} MiB")
        if later.descriptors > self.descriptors + _MAX_MORE_DESCRIPTORS:
            found.append(f"descriptors have grown from {self.descriptors} to {later.descriptors}")
        return found


def footprint(replica: Replica) -> Footprint:
    """Measure an idle operator. Blocks."""
    descriptors = 0
    for pid in process_table.resting(replica.pid):
        with suppress(psutil.Error):
            descriptors += psutil.Process(pid).num_fds()
    return Footprint(memory_bytes(replica.pid) / _MIB, descriptors)


async def leaks_at_rest(scene: Scene) -> list[str]:
    """Return processes and files of runs although none is active, and objects whose owner was deleted."""
    processes = await asyncio.to_thread(_processes, scene)
    try:
        return [*processes, *await _files(scene), *await scene.workload.leaked()]
    except KubeError as error:
        return [*processes, f"the API server does not respond: {error}"]


def leaks_after_stop(scene: Scene) -> list[str]:
    """Return processes and temporary files left after every operator has stopped. Blocks."""
    found = [process_table.described(each) for each in process_table.marked(scene.mark)]
    return found + [f"file {path}" for path in _children(_temporary_directories(scene))]


def _processes(scene: Scene) -> list[str]:
    expected = set().union(*(process_table.resting(replica.pid) for replica in scene.replicas))
    unknown = [each for each in process_table.marked(scene.mark) if each.pid not in expected]
    servers = [process_table.below(replica.pid, "fork server") for replica in scene.replicas]
    surplus = [each for found in servers for each in found[1:]]
    return [process_table.described(each) for each in (*unknown, *surplus)]


async def _files(scene: Scene) -> list[str]:
    world, found = scene.workload.world, []
    keys = {gvk: {ObjectKey(world.namespace, name) for name in names(await world.objects(gvk))} for gvk in _KINDS}
    for replica in scene.replicas:
        found += await asyncio.to_thread(surplus_files, _work_directory(scene, replica), keys)
    return found


def surplus_files(work: Path, keys: dict[GVK, set[ObjectKey]]) -> list[str]:
    """Return files in a work directory that no run and none of these objects needs. Blocks."""
    found = [f"file {path}" for path in (*work.glob(f"{KUBECONFIG_PREFIX}*"), *work.glob(".removed-*"))]
    for gvk, existing in keys.items():
        deleted = [key for key in workspaces_of(work, gvk) if key not in existing]
        found += [f"the workspace of {gvk.kind} {key}, which was deleted" for key in deleted]
    return found


def _work_directory(scene: Scene, replica: Replica) -> Path:
    return scene.disk.directory / replica.operator.directory.name / "work"


def _temporary_directories(scene: Scene) -> list[Path]:
    return [scene.disk.directory / replica.operator.directory.name / "tmp" for replica in scene.replicas]


def _children(directories: Iterable[Path]) -> list[Path]:
    return [
        path for directory in directories for path in directory.iterdir() if not path.name.startswith(_DISCOVERY_CACHE)
    ]
