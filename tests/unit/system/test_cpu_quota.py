import os
from pathlib import Path

import pytest

from rolecall.system.control_groups import available_processors


@pytest.fixture(autouse=True)
def _sixteen_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(16)))


def write(system: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = system / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return system


@pytest.mark.parametrize(
    ("files", "processors"),
    [
        ({}, 16),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "10000 100000\n"}, 1),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 16),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "6400000 100000\n"}, 16),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "nonsense\n"}, 16),
        (
            {
                "proc/self/cgroup": "0::/kubepods/pod1/container1\n",
                "sys/fs/cgroup/kubepods/pod1/cpu.max": "400000 100000\n",
                "sys/fs/cgroup/kubepods/pod1/container1/cpu.max": "max 100000\n",
            },
            4,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/docker/1\n2:memory:/docker/1\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "300000\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            3,
        ),
        (
            {
                "proc/self/cgroup": "1:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            16,
        ),
        ({"proc/self/cgroup": "not a line of it\n"}, 16),
    ],
    ids=[
        "no groups",
        "two",
        "parts of one",
        "a tenth",
        "unlimited",
        "more than there are",
        "nonsense",
        "parent",
        "version 1",
        "version 1 unlimited",
        "odd line",
    ],
)
def test_a_quota_counts_not_the_machine(tmp_path: Path, files: dict[str, str], processors: int) -> None:
    assert available_processors(write(tmp_path, files)) == processors


def test_fewer_processors_than_the_quota_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0})
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "800000 100000\n"}
    assert available_processors(write(tmp_path, files)) == 1
