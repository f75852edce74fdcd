"""What a whole tree of processes uses: CPU time, those that have ended already included, and memory.

An Ansible operator is many short processes, so numbers of only its own process mean little. The kernel adds
the time of a child to its parent's when the parent has waited for it; the sum over the living ones is therefore
everything, as long as no process leaves the tree. Linux only.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from rolecall.system.processes import descendants, is_alive, kill_all

_KIB = 1024
_STAT_TIMES = slice(11, 15)
"""User and system time of the process and of its children, counted after the name in parentheses and the state."""


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and of everything below it, living or waited for."""
    ticks = sum(_ticks(Path(f"/proc/{each}/stat")) for each in _tree(pid))
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_bytes(pid: int) -> int:
    """Return the proportional set size of the tree: pages of several processes count once, shared among them."""
    return sum(_pss_kib(Path(f"/proc/{each}/smaps_rollup")) for each in _tree(pid)) * _KIB


def memory_mib(pid: int) -> float:
    """Return the same in MiB, as tables have it."""
    return memory_bytes(pid) / _KIB**2


def end(process: "subprocess.Popen[bytes]", seconds: float) -> None:
    """Stop a process; kill it if that takes longer, and what it has started: the Go runner leaves its runs behind."""
    started = descendants(process.pid) if process.poll() is None else []
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    kill_all(lambda: [each for each in started if is_alive(each)], seconds)


def _tree(pid: int) -> Iterator[int]:
    yield pid
    with suppress(psutil.NoSuchProcess):
        yield from (process.pid for process in psutil.Process(pid).children(recursive=True))


def _ticks(file: Path) -> int:
    try:
        fields = file.read_text().rpartition(")")[2].split()
    except OSError:
        return 0  # it has ended since the tree was read; its parent has its time soon
    return sum(map(int, fields[_STAT_TIMES]))


def _pss_kib(file: Path) -> int:
    with suppress(OSError):
        for line in file.read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0
