"""Starts components as background processes, and stops exactly those processes.

A component runs in its own session with its output in a file, so that the command that started it can return. A process
is recorded by its PID and its start time, so that a reused PID is never signalled. A process that does not stop within
the grace period is killed. ``rolecall.workbench.controlplane.components`` has the command lines.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
KILL_WAIT_SECONDS = 10.0
POLL_SECONDS = 0.01
START_TICKS_FIELD = 19  # counted from the field behind the program's name in /proc/PID/stat


@dataclass(frozen=True)
class ProcessRecord:
    """A process that we started: its PID and its start mark, which tells it from other processes with this PID."""

    pid: int
    started: str


def _start_mark(pid: int) -> str:
    """Return the start time of the process in a form that does not depend on the system clock."""
    if sys.platform != "linux":
        return repr(psutil.Process(pid).create_time())
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise psutil.NoSuchProcess(pid) from error
    return f"{BOOT_ID.read_text().strip()}/{fields[START_TICKS_FIELD]}"


def _find(record: ProcessRecord) -> psutil.Process | None:
    try:
        process = psutil.Process(record.pid)
        if _start_mark(record.pid) != record.started:
            return None
        if process.status() == psutil.STATUS_ZOMBIE and _is_over(record.pid):
            return None
    except psutil.NoSuchProcess:
        return None
    return process


def _is_over(pid: int) -> bool:
    """Reap a child; return False while its last threads are still exiting, although it is already a zombie."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:  # not our child: its parent reaps it
        return True


def start(
    command: Sequence[str],
    *,
    directory: Path,
    log: Path,
    environment: Mapping[str, str],
    inherited: Collection[int] = (),
) -> ProcessRecord:
    """Start the command in the background and append its output to the log. Raise OSError if it cannot be started.

    The process inherits the file descriptors ``inherited``, which the caller closes.
    """
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=subprocess.STDOUT,
            pass_fds=inherited,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    process.returncode = 0  # it outlives this object on purpose; without this the interpreter warns
    return ProcessRecord(process.pid, _start_mark(process.pid))


def is_alive(record: ProcessRecord) -> bool:
    """Return whether exactly this process is still running; a zombie is not."""
    return _find(record) is not None


def find_in_directory(directory: Path, names: Iterable[str]) -> list[ProcessRecord]:
    """Return our processes of these components that run in the directory, recorded or not.

    The name of a component is that of its program, or of the file of this package that Python runs.
    """
    wanted = frozenset(names)
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it has exited, or belongs to another user
            if process.cwd() == str(directory) and not wanted.isdisjoint(_component_names(process)):
                found.append(ProcessRecord(process.pid, _start_mark(process.pid)))
    return found


def _component_names(process: psutil.Process) -> set[str]:
    files = [Path(argument) for argument in process.cmdline()]
    return {Path(process.exe()).name} | {file.stem for file in files if file.parent == Path(__file__).parent}


def memory_bytes(record: ProcessRecord) -> int:
    """Return the resident memory of the process, 0 if it has exited."""
    process = _find(record)
    try:
        return int(process.memory_info().rss) if process else 0
    except psutil.NoSuchProcess:
        return 0


def end(records: Iterable[ProcessRecord], *, grace_seconds: float) -> None:
    """Stop the processes and wait until they have exited: SIGTERM, then SIGKILL after the grace (0: at once)."""
    alive = list(records)
    if grace_seconds > 0:
        _signal_all(alive, kill=False)
        alive = _wait_until_gone(alive, grace_seconds)
    _signal_all(alive, kill=True)
    _wait_until_gone(alive, KILL_WAIT_SECONDS)


def _signal_all(records: Iterable[ProcessRecord], *, kill: bool) -> None:
    for record in records:
        process = _find(record)
        if process is None:
            continue
        with contextlib.suppress(psutil.NoSuchProcess):  # it exited by itself in the meantime
            if kill:
                process.kill()
            else:
                process.terminate()


def _wait_until_gone(records: Iterable[ProcessRecord], seconds: float) -> list[ProcessRecord]:
    """Wait for the processes for at most this time; return those that are still running."""
    deadline = time.monotonic() + seconds
    while (alive := [record for record in records if is_alive(record)]) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return alive


def last_lines(path: Path, count: int) -> list[str]:
    """Return the last lines of a log, an empty list if there is no log."""
    try:
        with path.open(errors="replace") as file:
            return [line.rstrip("\n") for line in deque(file, maxlen=count)]
    except FileNotFoundError:
        return []
