"""CPU time and memory of a whole tree of processes, including the CPU time of those that have ended.

An Ansible operator is many short processes, so numbers of only its own process mean little. The kernel adds
the time of a child to its parent's when the parent has waited for it; the sum over the living ones is therefore
everything, as long as no process leaves the tree. Linux only.
"""

import subprocess
from collections.abc import Callable
from contextlib import suppress

import psutil

from rolecall.system.processes import descendants, is_alive, kill_all


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and of everything below it, living or waited for."""
    # User and system time of the process and of its children; a process that has ended counts in its parent's.
    return _sum(pid, lambda process: sum(process.cpu_times()[:4]))


def memory_bytes(pid: int) -> int:
    """Return the proportional set size of the tree: pages of several processes count once, shared among them."""
    return int(_sum(pid, lambda process: process.memory_full_info().pss))


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


def _sum(pid: int, value: Callable[[psutil.Process], float]) -> float:
    total = 0.0
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            with suppress(psutil.Error):
                total += value(each)
    return total
