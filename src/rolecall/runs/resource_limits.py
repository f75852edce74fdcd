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


def peak_memory_bytes() -> int:
    """Return the most that this process, or any process below it that has ended, ever had in memory."""
    return max(_own_peak_bytes(), 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)


def _own_peak_bytes() -> int:
    # Not from getrusage, which counts what the parent had when it started this program.
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split(maxsplit=1)[0])
