"""Nothing left: no space on the disk, no process, no descriptor, for a while."""

import asyncio
import itertools
import random
import resource
from contextlib import suppress
from pathlib import Path

import psutil

from tests.chaos.accepted import until
from tests.chaos.disturbance import Disturbance
from tests.chaos.process_limit import limited_processes, trouble_with_process_limit
from tests.chaos.scene import Scene

_SHORTEST, _LONGEST = 1.0, 4.0
_FELT_SECONDS = 20.0
_HARDLY_ANY_BYTES = 1024**2  # what runs give back at the same moment
_FEWEST_LEFT, _MOST_LEFT = 0, 3


async def fill_the_disk(scene: Scene, chance: random.Random) -> None:
    """Fill the disk with the workspaces and temporary files, and keep it full."""
    seconds = chance.uniform(_SHORTEST, _LONGEST)
    await asyncio.to_thread(scene.disk.fill)
    try:
        assert scene.disk.free_bytes < _HARDLY_ANY_BYTES, "the disk is not full"
        await asyncio.sleep(seconds)
        await asyncio.to_thread(scene.disk.fill)  # what was given back meanwhile is taken, too
        await asyncio.sleep(seconds)
    finally:
        scene.disk.free()


async def take_processes(scene: Scene, chance: random.Random) -> None:
    """Allow the operator and all below it hardly a process more than there are, until one was refused and longer."""
    with limited_processes(scene.replica.pid) as limit:
        limit.leave(chance.randint(_FEWEST_LEFT, _MOST_LEFT))

        async def is_felt() -> bool:
            return limit.refused() > 0

        async with scene.busy():
            await until(is_felt, _FELT_SECONDS, "a process is refused")
            await asyncio.sleep(chance.uniform(_SHORTEST, _LONGEST))


async def take_descriptors(scene: Scene, chance: random.Random) -> None:
    """Allow the operator itself hardly a descriptor more than it has open."""
    pid = scene.replica.itself.pid
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    left = chance.randint(_FEWEST_LEFT, _MOST_LEFT)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit_that_leaves(left, _open_descriptors(pid)), hard))
    try:
        async with scene.busy():  # a run needs more than are left
            await asyncio.sleep(chance.uniform(_SHORTEST, _LONGEST))
    finally:
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


def limit_that_leaves(count: int, used: set[int]) -> int:
    """Return the limit below which so many numbers of descriptors are free; those in use may well be above it."""
    free = (number for number in itertools.count() if number not in used)
    return next(itertools.islice(free, count, None))


def _open_descriptors(pid: int) -> set[int]:
    return {int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()}


SHORTAGES = [
    Disturbance("disk: full", fill_the_disk, why_not=lambda scene: scene.disk.trouble),
    Disturbance("processes: none left", take_processes, why_not=lambda _: trouble_with_process_limit()),
    Disturbance("descriptors: none left", take_descriptors),
]
