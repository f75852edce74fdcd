"""The control groups of this process, of both versions, from its own up to the root that it can see.

In a container the group itself may be the root. Limits of parent groups count too, so that all of them are returned. A
file that cannot be read has no content.
"""

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
