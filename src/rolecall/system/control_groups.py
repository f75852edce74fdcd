"""The control groups of this process, of both versions, from its own up to the root that it can see.

In a container the group itself may be the root. Limits of parent groups count too, so that all of them are returned. A
file that cannot be read has no content.

The memory of the container that this process runs in: its limit, and how much of it is in use.

The limit is that of the control group, or of the parent group with the lowest one. Without a limit there is no
container whose memory could be full; the memory of the machine is not this program's to watch.

The number of processors that this process may use, which in a container is less than the machine has.

The scheduler's affinity limits which processors may be used, and control groups limit their time: a container with
``limits.cpu: 2`` on a machine with 128 processors has two.
"""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SYSTEM = Path("/")


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """A directory of a control group; ``version`` is 1 or 2."""

    version: int
    directory: Path

    def text(self, name: str) -> str:
        """Return the content of a file of the group; empty if it cannot be read."""
        try:
            return (self.directory / name).read_text()
        except OSError:
            return ""

    def number(self, name: str) -> int | None:
        """Return the whole number in a file of the group; None if there is none, as for ``max``."""
        text = self.text(name).strip()
        return int(text) if text.isdecimal() else None


def control_groups(controller: str, system: Path = SYSTEM) -> Iterator[ControlGroup]:
    """Yield the groups that may limit this process with a controller such as ``cpu`` or ``memory``."""
    try:
        lines = (system / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not controllers:
            yield from _climb(2, system / "sys/fs/cgroup", group)
        elif controller in controllers.split(","):
            for name in dict.fromkeys((controllers, controller)):
                yield from _climb(1, system / "sys/fs/cgroup" / name, group)


def _climb(version: int, root: Path, group: str) -> Iterator[ControlGroup]:
    directory = root / group.strip("/")
    for each in (directory, *directory.parents):
        if each == root or root in each.parents:
            yield ControlGroup(version, each)


_NO_LIMIT_BYTES = 1 << 60
"""Version 1 of control groups shows no limit as a number near the largest one."""

# For each version: the limit, the use, what the kernel killed; and what memory.stat calls the cache, which makes room.
_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control"),
    2: ("memory.max", "memory.current", "memory.events"),
}
_CACHED = {1: ("total_inactive_file", "total_active_file"), 2: ("inactive_file", "active_file")}


@dataclass(frozen=True, slots=True)
class ContainerMemory:
    """The memory of a container."""

    group: ControlGroup
    limit_bytes: int

    def used_bytes(self) -> int:
        """Return what is in use, without the cache of files, which makes room by itself; 0 if it cannot be read."""
        used = self.group.number(_FILES[self.group.version][1]) or 0
        return max(0, used - self._sum("memory.stat", _CACHED[self.group.version]))

    def kernel_kills(self) -> int:
        """Return how many processes the kernel has killed because the container had no memory left."""
        return self._sum(_FILES[self.group.version][2], ("oom_kill",))

    def _sum(self, name: str, keys: tuple[str, ...]) -> int:
        pairs = (line.split() for line in self.group.text(name).splitlines())
        return sum(int(pair[1]) for pair in pairs if pair[0] in keys)


def container_memory(system: Path = SYSTEM) -> ContainerMemory | None:
    """Return the memory of the container with the lowest limit; None if there is no limit."""
    limits = [(group.number(_FILES[group.version][0]), group) for group in control_groups("memory", system)]
    found = [ContainerMemory(group, limit) for limit, group in limits if limit is not None and limit < _NO_LIMIT_BYTES]
    return min(found, key=lambda each: each.limit_bytes, default=None)


def available_processors(system: Path = SYSTEM) -> int:
    """Return the number of processors that this process may use, rounded up, at least 1."""
    usable = len(os.sched_getaffinity(0))
    return max(1, min([usable, *(math.ceil(quota) for quota in _quotas(system))]))


def _quotas(system: Path) -> Iterator[float]:
    for group in control_groups("cpu", system):
        quota = _quota(group)
        if quota is not None:
            yield quota


def _quota(group: ControlGroup) -> float | None:
    """Return the quota divided by the period, None for no limit or an unknown format."""
    if group.version == 1:
        words = [group.text("cpu.cfs_quota_us"), group.text("cpu.cfs_period_us")]
    else:
        words = group.text("cpu.max").split()
    try:
        quota, period = (float(word) for word in words)
    except ValueError:
        return None
    return quota / period if quota > 0 and period > 0 else None
