"""How many processors this process really has, which in a container is not what the machine has.

The scheduler's affinity says which processors may be used, the control groups how much of their time: a container
with ``limits.cpu: 2`` on a machine with 128 processors has two. Both versions of control groups are read, and the
groups above count too. What cannot be read limits nothing.
"""

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

SYSTEM = Path("/")


def available_processors(system: Path = SYSTEM) -> int:
    """Return the processors that this process may use, at least 1; parts of one count as a whole one."""
    usable = len(os.sched_getaffinity(0))
    return max(1, min([usable, *(math.ceil(quota) for quota in _quotas(system))]))


def _quotas(system: Path) -> Iterator[float]:
    for line in _text(system / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not controllers:
            yield from _climb(system / "sys/fs/cgroup", group, _quota_of_version_2)
        elif "cpu" in controllers.split(","):
            yield from _climb(system / "sys/fs/cgroup" / controllers, group, _quota_of_version_1)
            yield from _climb(system / "sys/fs/cgroup/cpu", group, _quota_of_version_1)


def _climb(root: Path, group: str, quota_of: Callable[[Path], float | None]) -> Iterator[float]:
    """Give the quota of a group and of each above it; in a container its own group may be the root."""
    folder = root / group.strip("/")
    for each in (folder, *folder.parents):
        if each == root or root in each.parents:
            quota = quota_of(each)
            if quota is not None:
                yield quota


def _quota_of_version_2(folder: Path) -> float | None:
    return _ratio(_text(folder / "cpu.max").split())


def _quota_of_version_1(folder: Path) -> float | None:
    return _ratio([_text(folder / "cpu.cfs_quota_us").strip(), _text(folder / "cpu.cfs_period_us").strip()])


def _ratio(words: list[str]) -> float | None:
    """Return quota by period, None for no limit and for what cannot be understood."""
    try:
        quota, period = (float(word) for word in words)
    except ValueError:
        return None
    return quota / period if quota > 0 and period > 0 else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
