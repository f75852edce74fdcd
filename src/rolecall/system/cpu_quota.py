"""The number of processors that this process may use, which in a container is less than the machine has.

The scheduler's affinity limits which processors may be used, and control groups limit their time: a container with
``limits.cpu: 2`` on a machine with 128 processors has two.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path

from rolecall.system.control_groups import SYSTEM, ControlGroup, control_groups


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
