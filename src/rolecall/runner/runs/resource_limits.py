"""The limits that the kernel sets to the processes of a run, each on its own."""

import resource
from pathlib import Path


def limit_memory(limit_bytes: int) -> None:
    """Limit the private memory of this process and of each that it starts; 0 means no limit.

    ``RLIMIT_DATA`` counts what a process may write to. ``RLIMIT_AS`` would count address space too, of which programs
    in Go reserve far more than they use.
    """
    if limit_bytes <= 0:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = limit_bytes if hard == resource.RLIM_INFINITY else min(limit_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def limit_file_size(limit_bytes: int) -> None:
    """Limit the size of each file that this process writes, and of those that it starts from now on.

    Writing more raises OSError, because Python ignores the signal SIGXFSZ.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = limit_bytes if hard == resource.RLIM_INFINITY else min(limit_bytes, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))


class PeakMemory:
    """How much private memory a process of a run has had at most; create it when the run begins.

    A process that was forked from a prepared one shares most of what it has in memory, and so do those that it forks.
    So what they have in memory counts as far as it has grown since the beginning.
    """

    def __init__(self) -> None:
        self._resident_bytes, self._data_bytes = _own("VmRSS"), _own("VmData")

    @property
    def most_bytes(self) -> int:
        """The most that this process, or any process below it that has ended, ever had."""
        children = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        # The peak of this process is not taken from getrusage, which counts what its parent had when it started it.
        return max(0, max(_own("VmHWM"), children) - self._resident_bytes) + self._data_bytes


def _own(name: str) -> int:
    """Return a value of this process's memory in bytes."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition(f"{name}:")[2].split(maxsplit=1)[0])
