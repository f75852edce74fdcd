"""The descendants of a process: find and stop all of them.

Ansible's workers start their own sessions, so stopping a process group would leave modules running. Instead the whole
tree is walked repeatedly until no process in it is alive. A process whose parent has exited becomes a child of the
nearest subreaper, so it stays in the tree. Stopping a process here does not reap it: its parent gets its exit code.
"""

import ctypes
import os
import select
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import psutil

KILL_LIMIT_SECONDS = 10.0
_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36
_WALK_AGAIN_SECONDS = 0.2


def become_subreaper() -> bool:
    """Make orphaned descendants of this process its children; return whether the system supports that (Linux does)."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        return int(library.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) == 0
    except (OSError, AttributeError):
        return False


def signal_on_parent_death(parent: int, number: signal.Signals) -> None:
    """Have this process sent a signal when its parent ends, or now if it has ended already. Linux only."""
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, int(number), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def descendants(pid: int) -> list[psutil.Process]:
    """Return all running descendants of a process; a zombie does not run."""
    try:
        return [process for process in psutil.Process(pid).children(recursive=True) if is_alive(process)]
    except psutil.NoSuchProcess:
        return []


def is_alive(process: psutil.Process) -> bool:
    """Return whether a process is running; a zombie is not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def end_descendants(pid: int, grace_seconds: float) -> list[int]:
    """Send SIGTERM to all descendants of a process and kill the remaining ones after the grace period. Blocks.

    Return the ids of surviving processes: none, unless one belongs to another user or hangs in the kernel.
    """
    if pid == os.getpid() and not _has_children():
        return []
    _signal_all(descendants(pid), signal.SIGTERM)
    deadline = time.monotonic() + grace_seconds
    while (left := descendants(pid)) and time.monotonic() < deadline:
        _await_end(left, deadline)
    return kill_all(lambda: descendants(pid), KILL_LIMIT_SECONDS)


def kill_all(find: Callable[[], list[psutil.Process]], limit_seconds: float) -> list[int]:
    """Kill the processes that ``find`` returns, repeatedly until it returns none or the time limit. Blocks.

    Return the ids of surviving processes.
    """
    deadline = time.monotonic() + limit_seconds
    left = find()
    while left and time.monotonic() < deadline:
        _signal_all(left, signal.SIGKILL)
        _await_end(left, min(deadline, time.monotonic() + _WALK_AGAIN_SECONDS))
        # A killed process loses its environment, by which it may have been found, before it can be reaped.
        left = list({*find(), *filter(is_alive, left)})
    return [process.pid for process in left]


def reap_children(which: int = -1) -> None:
    """Reap every exited child; otherwise the parent of this process would inherit a zombie that it does not know.

    ``which`` selects children as for ``waitpid``; by default these are all.
    """
    with suppress(ChildProcessError):
        while os.waitpid(which, os.WNOHANG)[0]:
            pass


def _has_children() -> bool:
    """Return whether this process has a child, zombies included: a subreaper without children has no descendants."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _signal_all(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process.send_signal(number)


def _await_end(processes: Iterable[psutil.Process], deadline: float) -> None:
    """Return when all these processes have ended, or at the deadline (of the monotonic clock)."""
    for process in processes:
        try:
            descriptor = os.pidfd_open(process.pid)
        except ProcessLookupError:
            continue
        try:
            # Not select(), which rejects descriptors above 1,023.
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        finally:
            os.close(descriptor)
