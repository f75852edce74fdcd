"""Temporary shortages: no disk space, processes, or file descriptors."""

import asyncio
import itertools
import os
import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.chaos.fault import Fault
from tests.chaos.requests import until
from tests.chaos.scene import Scene

_SHORTEST, _LONGEST = 1.0, 4.0
_DENIED_SECONDS = 20.0
_ALMOST_FULL_BYTES = 1024**2  # concurrent runs free some space
_MIN_LEFT, _MAX_LEFT = 0, 3


async def fill_the_disk(scene: Scene, chance: random.Random) -> None:
    """Fill the disk of workspaces and temporary files, and keep it full."""
    seconds = chance.uniform(_SHORTEST, _LONGEST)
    await asyncio.to_thread(scene.disk.fill)
    try:
        assert scene.disk.free_bytes < _ALMOST_FULL_BYTES, "the disk is not full"
        await asyncio.sleep(seconds)
        await asyncio.to_thread(scene.disk.fill)  # also take space freed in the meantime
        await asyncio.sleep(seconds)
    finally:
        scene.disk.free()


async def take_processes(scene: Scene, chance: random.Random) -> None:
    """Allow the operator and its descendants at most a few more processes, until the kernel has denied some."""
    with limited_processes(scene.replica.pid) as limit:
        limit.leave(chance.randint(_MIN_LEFT, _MAX_LEFT))

        async def is_denied() -> bool:
            return limit.denied() > 0

        async with scene.busy():
            await until(is_denied, _DENIED_SECONDS, "a process is denied")
            await asyncio.sleep(chance.uniform(_SHORTEST, _LONGEST))


async def take_descriptors(scene: Scene, chance: random.Random) -> None:
    """Allow the operator itself at most a few more descriptors than it has open."""
    pid = scene.replica.itself.pid
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    left = chance.randint(_MIN_LEFT, _MAX_LEFT)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit_that_leaves(left, _open_descriptors(pid)), hard))
    try:
        async with scene.busy():  # a run needs more than remain
            await asyncio.sleep(chance.uniform(_SHORTEST, _LONGEST))
    finally:
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


def limit_that_leaves(count: int, used: set[int]) -> int:
    """Return the limit below which this many descriptors are free; used ones may be above it."""
    free = (number for number in itertools.count() if number not in used)
    return next(itertools.islice(free, count, None))


def _open_descriptors(pid: int) -> set[int]:
    return {int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()}


_VERSION_1, _VERSION_2 = Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")


def process_limit_problem() -> str:
    """Return why this machine does not support process limits; empty if it does.

    The limit is a control group, because RLIMIT_NPROC does not bind root; versions 1 and 2 are supported.
    """
    root = _root()
    if not (root / "cgroup.procs").exists():
        return "no control groups"
    group = root / f"rolecall-probe-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        return f"no permission to create a control group: {error}"
    try:
        return "" if (group / "pids.max").exists() else "no pids controller in control groups"
    finally:
        group.rmdir()


@dataclass(frozen=True, slots=True)
class ProcessLimit:
    """A control group with some processes and everything that they start."""

    group: Path

    def leave(self, count: int) -> None:
        """Allow this many more processes and threads."""
        used = int((self.group / "pids.current").read_text())
        (self.group / "pids.max").write_text(str(used + count))

    def denied(self) -> int:
        """Return how many processes the limit has denied."""
        counts = dict(line.split() for line in (self.group / "pids.events").read_text().splitlines())
        return int(counts["max"])


@contextmanager
def limited_processes(root: int) -> Iterator[ProcessLimit]:
    """Move a process and its descendants into a new group; afterward, move them out and remove it."""
    group = _root() / f"rolecall-chaos-{root}"
    group.mkdir()
    try:
        with suppress(psutil.NoSuchProcess):
            tree = psutil.Process(root)
            for process in (tree, *tree.children(recursive=True)):
                _move(process.pid, group)
        yield ProcessLimit(group)
    finally:
        while members := (group / "cgroup.procs").read_text().split():
            for pid in members:
                _move(int(pid), _root())
        group.rmdir()


def _move(pid: int, group: Path) -> None:
    with suppress(ProcessLookupError):
        (group / "cgroup.procs").write_text(str(pid))


def _root() -> Path:
    return _VERSION_1 if _VERSION_1.is_dir() else _VERSION_2


SHORTAGES = [
    Fault("disk: full", fill_the_disk, unavailable_reason=lambda scene: scene.disk.problem),
    Fault("processes: none left", take_processes, unavailable_reason=lambda _: process_limit_problem()),
    Fault("descriptors: none left", take_descriptors),
]
