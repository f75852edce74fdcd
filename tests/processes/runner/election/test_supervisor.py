"""The guard with real processes: killed processes, times, and exit codes."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

WITHIN_SECONDS = 30.0
MIB = 1 << 20

GUARDED = """
import ctypes, os, resource, signal, subprocess, sys, time
from rolecall.runner.election.lease_guard import start_guard

def end_in(seconds):
    when = time.clock_gettime(time.CLOCK_BOOTTIME) + seconds
    end_at(when)
    return when

def start_children():
    session = subprocess.Popen(["sleep", "300"], start_new_session=True)
    orphan = subprocess.run(["sh", "-c", "sleep 300 >&- & echo $!"], stdout=subprocess.PIPE, text=True).stdout
    print(os.getpid(), session.pid, orphan.strip(), flush=True)

"""
WITH_CHILDREN = GUARDED + "end_at = start_guard()\nstart_children()\n"


def guarded(script: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """Run a script that becomes an operator with a guard; yield the guard, and kill all processes at the end."""
    return process_tree([sys.executable, "-c", script], stdin=subprocess.PIPE, stderr=subprocess.PIPE)


@contextmanager
def process_tree(
    command: Sequence[str], stdin: int | None = None, stderr: int | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Start a command, whose output is a pipe, and kill it with all processes below it at the end."""
    with subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, text=True) as process:
        try:
            yield process
        finally:
            with suppress(psutil.NoSuchProcess):
                for left in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
                    left.kill()


def pids(guard: subprocess.Popen[str]) -> list[int]:
    """Return the ids that the script has printed: the operator's, then those of its children."""
    assert guard.stdout
    return [int(word) for word in guard.stdout.readline().split()]


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds. Raises TimeoutError."""
    deadline = time.monotonic() + WITHIN_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Return whether a process exists that isn't a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


STATES = {
    "stopped": "os.kill(os.getpid(), signal.SIGSTOP)",
    "holds the interpreter's lock": "ctypes.PyDLL(None).sleep(300)",
    "waits for a reader of its log": "while True: os.write(2, bytes(1 << 16))",
    "ignores signals": "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64)); time.sleep(300)",
    "has no descriptor left": "[os.dup(0) for _ in range(1 << 20)]",
}


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_expired_operator_is_killed_with_its_processes_in_any_state(state: str) -> None:
    # Above 1,023 descriptors select() fails, in the operator and in what it becomes.
    many = "resource.setrlimit(resource.RLIMIT_NOFILE, (2048,) * 2)\nopened = [os.dup(0) for _ in range(1500)]\n"
    stand_still = f"end_in(0.5)\ntry:\n    {state}\nexcept OSError:\n    time.sleep(300)\n"
    with guarded(GUARDED + many + "end_at = start_guard()\nstart_children()\n" + stand_still) as guard:
        processes = pids(guard)
        assert len(processes) == 3
        assert guard.wait(WITHIN_SECONDS) == 1
        assert not any(map(is_alive, processes))


def test_operator_that_renews_in_time_continues() -> None:
    with guarded(WITH_CHILDREN + "end_in(3)\nend_in(300)\ntime.sleep(3.5)\nsys.exit(7)") as guard:
        assert guard.wait(WITHIN_SECONDS) == 7


def test_operator_that_released_its_lease_continues() -> None:
    with guarded(WITH_CHILDREN + "end_in(3)\nend_at(float('inf'))\ntime.sleep(3.5)\nsys.exit(7)") as guard:
        assert guard.wait(WITHIN_SECONDS) == 7


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("sys.exit(0)", 0),
        ("sys.exit(3)", 3),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("os.abort()", -signal.SIGABRT),
    ],
)
def test_guard_exits_like_the_operator_and_leaves_no_process(end: str, code: int) -> None:
    with guarded(WITH_CHILDREN + end) as guard:
        processes = pids(guard)
        assert guard.wait(WITHIN_SECONDS) == code
        assert not any(map(is_alive, processes))


def test_operator_that_closed_the_pipe_is_killed() -> None:
    with guarded(WITH_CHILDREN + "os.close(end_at.args[0])\ntime.sleep(300)") as guard:
        processes = pids(guard)
        assert guard.wait(WITHIN_SECONDS) == 1
        assert not any(map(is_alive, processes))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signal_reaches_the_operator_once(number: signal.Signals) -> None:
    wait_for_signal = f"""
signal.signal({number:d}, lambda *_: print("got it", flush=True))
print("ready", flush=True)
sys.exit(9 if sys.stdin.readline() else 8)
"""
    with guarded(GUARDED + "end_at = start_guard()" + wait_for_signal) as guard:
        assert guard.stdout
        assert guard.stdin
        assert guard.stdout.readline() == "ready\n"
        guard.send_signal(number)
        assert guard.stdout.readline() == "got it\n"
        guard.stdin.write("end\n")
        guard.stdin.flush()
        assert guard.stdout.read() == ""
        assert guard.wait(WITHIN_SECONDS) == 9


def test_operator_ends_with_its_guard() -> None:
    with guarded(WITH_CHILDREN + "time.sleep(300)") as guard:
        operator, *children = pids(guard)
        guard.kill()
        until(lambda: not is_alive(operator))
        for child in children:
            psutil.Process(child).kill()


def test_orphans_are_reaped() -> None:
    with guarded(WITH_CHILDREN + "time.sleep(300)") as guard:
        *_, orphan = pids(guard)
        until(lambda: psutil.Process(orphan).ppid() == guard.pid)
        psutil.Process(orphan).kill()
        until(lambda: not psutil.pid_exists(orphan))


def test_frozen_guard_kills_the_operator_first_when_it_continues(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    freeze = f"""
def note(*_):
    open({str(asked)!r}, "w").close()

signal.signal(signal.SIGTERM, note)
end_in(300)
sys.stdin.readline()
print(end_in(0.1), flush=True)
while True:
    signal.pause()
"""
    with guarded(WITH_CHILDREN + freeze) as guard:
        processes = [psutil.Process(pid) for pid in (guard.pid, *pids(guard))]
        assert guard.stdin
        assert guard.stdout
        processes[0].suspend()  # before it gets the time, so that it can't act on it earlier
        guard.stdin.write("end soon\n")
        guard.stdin.flush()
        end = float(guard.stdout.readline())
        for process in processes[1:]:
            process.suspend()
        until(lambda: time.clock_gettime(time.CLOCK_BOOTTIME) > end)
        guard.send_signal(signal.SIGTERM)
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.resume()
        assert guard.wait(WITHIN_SECONDS) == 1
        assert not any(is_alive(process.pid) for process in processes)
        assert not asked.exists()


def test_guard_does_not_keep_imported_modules() -> None:
    with guarded("import rolecall.cli.main\n" + WITH_CHILDREN + "time.sleep(300)") as guard:
        operator, *_ = pids(guard)
        until(lambda: psutil.Process(guard.pid).name() == "lease-guard")
        assert psutil.Process(guard.pid).memory_info().rss < 20 * MIB < psutil.Process(operator).memory_info().rss
