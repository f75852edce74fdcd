"""The number of processors that this process may use, which in a container is less than the machine has.

The scheduler's affinity limits which processors may be used, and control groups limit their time: a container with
``limits.cpu: 2`` on a machine with 128 processors has two. Both versions of control groups are supported, and the
quotas of parent groups count too. A file that cannot be read is no limit.
"""

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

SYSTEM = Path("/")


def available_processors(system: Path = SYSTEM) -> int:
    """Return the number of processors that this process may use, rounded up, at least 1."""
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
    """Yield the quotas of a group and of its parents; in a container the group itself may be the root."""
    directory = root / group.strip("/")
    for each in (directory, *directory.parents):
        if each == root or root in each.parents:
            quota = quota_of(each)
            if quota is not None:
                yield quota


def _quota_of_version_2(group: Path) -> float | None:
    return _ratio(_text(group / "cpu.max").split())


def _quota_of_version_1(group: Path) -> float | None:
    return _ratio([_text(group / "cpu.cfs_quota_us").strip(), _text(group / "cpu.cfs_period_us").strip()])


def _ratio(words: list[str]) -> float | None:
    """Return the quota divided by the period, None for no limit or an unknown format."""
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
