import os
from pathlib import Path

import pytest

from rolecall.system.control_groups import available_cpus, container_memory


@pytest.fixture(autouse=True)
def _sixteen_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(16)))


def write(system: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = system / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return system


def quota(cpu_max: str) -> dict[str, str]:
    return {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": cpu_max}


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({}, 16),
        (quota("200000 100000\n"), 2),
        (quota("150000 100000\n"), 2),
        (quota("10000 100000\n"), 1),
        (quota("max 100000\n"), 16),
        (quota("6400000 100000\n"), 16),
        (quota("nonsense\n"), 16),
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
def test_cpus_are_those_of_quota(tmp_path: Path, files: dict[str, str], cpus: int) -> None:
    assert available_cpus(write(tmp_path, files)) == cpus


def test_affinity_below_quota_applies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0})
    files = quota("800000 100000\n")
    assert available_cpus(write(tmp_path, files)) == 1


VERSION_2 = {
    "proc/self/cgroup": "0::/\n",
    "sys/fs/cgroup/memory.max": "1000000\n",
    "sys/fs/cgroup/memory.current": "900000\n",
    "sys/fs/cgroup/memory.stat": "anon 5\ninactive_file 200000\nactive_file 100000\n",
    "sys/fs/cgroup/memory.events": "oom 9\noom_kill 3\n",
}
VERSION_1 = {
    "proc/self/cgroup": "4:memory:/docker/1\n0::/\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "1000000\n",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": "900000\n",
    "sys/fs/cgroup/memory/memory.stat": "inactive_file 1\ntotal_inactive_file 200000\ntotal_active_file 100000\n",
    "sys/fs/cgroup/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
}


@pytest.mark.parametrize("files", [VERSION_2, VERSION_1], ids=["version 2", "version 1"])
def test_used_memory_excludes_page_cache(tmp_path: Path, files: dict[str, str]) -> None:
    found = container_memory(write(tmp_path, files))
    assert found is not None
    assert (found.limit_bytes, found.used_bytes(), found.kernel_kills()) == (1_000_000, 600_000, 3)


def test_lowest_limit_of_group_and_parents_applies(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/kubepods/pod1/container1\n",
        "sys/fs/cgroup/memory.max": "max\n",
        "sys/fs/cgroup/kubepods/pod1/memory.max": "500\n",
        "sys/fs/cgroup/kubepods/pod1/memory.current": "400\n",
        "sys/fs/cgroup/kubepods/pod1/container1/memory.max": "max\n",
    }
    found = container_memory(write(tmp_path, files))
    assert found is not None
    assert (found.limit_bytes, found.used_bytes(), found.kernel_kills()) == (500, 400, 0)


@pytest.mark.parametrize(
    "files",
    [
        {},
        VERSION_2 | {"sys/fs/cgroup/memory.max": "max\n"},
        VERSION_1 | {"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"},
    ],
    ids=["no groups", "version 2", "version 1"],
)
def test_no_limit_is_no_container(tmp_path: Path, files: dict[str, str]) -> None:
    assert container_memory(write(tmp_path, files)) is None
