"""The memory of the container that this process runs in: its limit, and how much of it is in use.

The limit is that of the control group, or of the parent group with the lowest one. Without a limit there is no
container whose memory could be full; the memory of the machine is not this program's to watch.
"""

from dataclasses import dataclass
from pathlib import Path

from rolecall.system.control_groups import SYSTEM, ControlGroup, control_groups

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
