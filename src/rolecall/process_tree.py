"""Processes below a process: finding them all, and ending them all.

Ansible's workers start sessions of their own, so that ending a process group leaves modules running. Here a whole tree
is walked, again and again, until nothing of it is alive. A process whose parent has died climbs to the nearest
subreaper, so that it stays in the tree; one that outlives even that is found by the mark that its environment carries.
Ending a process does not mean waiting for it in the sense of the kernel: those who started it learn how it ended.
"""

import ctypes
import os
import select
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

RUN_VARIABLE = "ROLECALL_JOB"
"""Names the run in the environment of each of its processes."""

RUNNER_MODULE = "rolecall.runs.runner_process"
"""The program that looks after a run."""

_SET_CHILD_SUBREAPER = 36
_KILL_LIMIT_SECONDS = 10.0
_WALK_AGAIN_SECONDS = 0.2


def become_subreaper() -> bool:
    """Make this process the one to which orphans below it climb; return whether the system can do that (Linux)."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        return int(library.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) == 0
    except (OSError, AttributeError):
        return False


def descendants(pid: int) -> list[psutil.Process]:
    """Return all living processes below a process; one that has ended but was not waited for is not alive."""
    try:
        return [process for process in psutil.Process(pid).children(recursive=True) if _is_alive(process)]
    except psutil.NoSuchProcess:
        return []


def processes_of_run(ident: str) -> list[psutil.Process]:
    """Return all living processes, other than this one, that carry the mark of a run in their environment."""
    return _marked_processes().get(ident, [])


def end_descendants(pid: int, grace_seconds: float) -> list[int]:
    """Ask everything below a process to end, kill what is left after the grace; return the ids that survived that.

    Blocks. The list is empty unless a process belongs to another user or hangs in the kernel.
    """
    if pid == os.getpid() and not _has_children():
        return []
    _signal_all(descendants(pid), signal.SIGTERM)
    deadline = time.monotonic() + grace_seconds
    while (left := descendants(pid)) and time.monotonic() < deadline:
        _await_end(left, deadline)
    return kill_descendants(pid, _KILL_LIMIT_SECONDS)


def kill_descendants(pid: int, limit_seconds: float) -> list[int]:
    """Kill everything below a process, again until nothing is left or the limit is over; return what survived.

    Blocks.
    """
    deadline = time.monotonic() + limit_seconds
    while (left := descendants(pid)) and time.monotonic() < deadline:
        _signal_all(left, signal.SIGKILL)
        _await_end(left, min(deadline, time.monotonic() + _WALK_AGAIN_SECONDS))
    return [process.pid for process in left]


def reap_children() -> None:
    """Take note of every child that has ended; else its remains would climb to the parent, who does not know it."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def kill_run_processes(ident: str) -> list[int]:
    """Kill everything that carries the mark of a run; return the ids that survived.

    Blocks. For the time after the process that had to end the run: those below it have climbed to this one, which also
    waits for them, so that they do not stay as zombies. Whoever started a marked process must have waited for it.
    """
    deadline = time.monotonic() + _KILL_LIMIT_SECONDS
    orphans: set[int] = set()
    while (left := processes_of_run(ident)) and time.monotonic() < deadline:
        _signal_all(left, signal.SIGKILL)
        orphans.update(process.pid for process in left)
        _await_end(left, min(deadline, time.monotonic() + _WALK_AGAIN_SECONDS))
    for pid in orphans:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return [process.pid for process in left]


def kill_abandoned_runs() -> list[str]:
    """Kill the runs of this user that nobody looks after, because the process of the play was killed with its operator.

    Blocks. Returns their names.
    """
    stranded = [ident for ident, found in _marked_processes().items() if not any(map(_is_play, found))]
    for ident in stranded:
        kill_run_processes(ident)
    return stranded


def _has_children() -> bool:
    """Return whether this process has any child, dead ones included: in a subreaper, no child means no descendant."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _marked_processes() -> dict[str, list[psutil.Process]]:
    found: dict[str, list[psutil.Process]] = {}
    for pid in psutil.pids():
        ident = _mark(pid)
        with suppress(psutil.NoSuchProcess):
            if ident and pid != os.getpid() and _is_alive(process := psutil.Process(pid)):
                found.setdefault(ident, []).append(process)
    return found


def _mark(pid: int) -> str:
    prefix = f"{RUN_VARIABLE}=".encode()
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    return next((value[len(prefix) :].decode(errors="replace") for value in variables if value.startswith(prefix)), "")


def _is_play(process: psutil.Process) -> bool:
    try:
        return RUNNER_MODULE in process.cmdline()
    except psutil.NoSuchProcess:
        return False


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
            select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        finally:
            os.close(descriptor)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
