"""The control groups of this process (versions 1 and 2), and the memory and CPUs that they limit.

Groups are those of the process up to the visible root, which in a container may be the group itself. Limits of parent
groups also apply. An unreadable file has no content.

The memory limit is the lowest one of the groups. Without a limit there is no container whose memory could be full; the
memory of the machine is not monitored. The scheduler's affinity limits the usable CPUs, and control groups limit their
time: a container with ``limits.cpu: 2`` on a machine with 128 CPUs has two.
"""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SYSTEM = Path("/")
_NO_LIMIT_BYTES = 1 << 60
"""Version 1 of control groups has a number near the maximum for no limit."""

# For each version: files for limit, use and kills by the kernel; keys of memory.stat for the reclaimable cache.
_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control"),
    2: ("memory.max", "memory.current", "memory.events"),
}
_CACHED = {1: ("total_inactive_file", "total_active_file"), 2: ("inactive_file", "active_file")}


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """A directory of a control group; ``version`` is 1 or 2."""

    version: int
    directory: Path

    def text(self, name: str) -> str:
        """Return the content of a file of the group; empty if it is unreadable."""
        try:
            return (self.directory / name).read_text()
        except OSError:
            return ""

    def number(self, name: str) -> int | None:
        """Return the integer in a file of the group; None if there is none, as for ``max``."""
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
        version, roots = 2, [system / "sys/fs/cgroup"]
        if controllers:
            names = dict.fromkeys((controllers, controller)) if controller in controllers.split(",") else {}
            version, roots = 1, [system / "sys/fs/cgroup" / name for name in names]
        for root in roots:
            directory = root / group.strip("/")
            for each in (directory, *directory.parents):
                if each == root or root in each.parents:
                    yield ControlGroup(version, each)


@dataclass(frozen=True, slots=True)
class ContainerMemory:
    """The memory of a container."""

    group: ControlGroup
    limit_bytes: int

    def used_bytes(self) -> int:
        """Return the bytes in use without the page cache, which is reclaimable; 0 if they are unreadable."""
        used = self.group.number(_FILES[self.group.version][1]) or 0
        return max(0, used - self._sum("memory.stat", _CACHED[self.group.version]))

    def kernel_kills(self) -> int:
        """Return the number of processes that the kernel has killed because the container was out of memory."""
        return self._sum(_FILES[self.group.version][2], ("oom_kill",))

    def _sum(self, name: str, keys: tuple[str, ...]) -> int:
        pairs = (line.split() for line in self.group.text(name).splitlines())
        return sum(int(pair[1]) for pair in pairs if pair[0] in keys)


def container_memory(system: Path = SYSTEM) -> ContainerMemory | None:
    """Return the memory of the container with the lowest limit; None if there is no limit."""
    limits = [(group.number(_FILES[group.version][0]), group) for group in control_groups("memory", system)]
    found = [ContainerMemory(group, limit) for limit, group in limits if limit is not None and limit < _NO_LIMIT_BYTES]
    return min(found, key=lambda each: each.limit_bytes, default=None)


def available_cpus(system: Path = SYSTEM) -> int:
    """Return the number of CPUs that this process may use, rounded up, at least 1."""
    quotas = [quota for group in control_groups("cpu", system) if (quota := _quota(group)) is not None]
    return max(1, min([len(os.sched_getaffinity(0)), *map(math.ceil, quotas)]))


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
