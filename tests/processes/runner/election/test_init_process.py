"""``/tini`` of the images with real processes: forwarded signals, reaped orphans, and exit codes."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import psutil
import pytest

from rolecall.runner.election import supervisor
from tests.processes.runner.election.test_supervisor import WITHIN_SECONDS, process_tree, until

TINI = (sys.executable, "-I", "-S", supervisor.__file__, "--init")
ALL_BUT_FAULTS = {
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2),
    *(signal.SIGALRM, signal.SIGCONT, signal.SIGPIPE, signal.SIGWINCH, signal.SIGRTMIN, signal.SIGRTMAX),
}
PRINT_SIGNALS = """
import signal, sys
numbers = [int(word) for word in sys.argv[1:]]
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
print("ready", flush=True)
while True:
    print(signal.sigwait(numbers), flush=True)
"""


@pytest.fixture(autouse=True)
def nothing_ignored() -> Iterator[None]:
    """Undo what nohup and a shell's background jobs do, because commands inherit ignored signals."""
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)}
    for number, handler in before.items():
        if handler == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def started(*command: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """Start a command below the init process, which is yielded, and kill all processes at the end."""
    return process_tree([*TINI, "--", *command])


def line(process: subprocess.Popen[str]) -> str:
    """Return the next line that the command prints."""
    assert process.stdout
    return process.stdout.readline().strip()


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", -9), ("kill -TERM $$", -15)]
)
def test_init_exits_like_its_command(script: str, code: int) -> None:
    with started("sh", "-c", script) as process:
        assert process.wait(WITHIN_SECONDS) == code


def test_each_signal_reaches_the_command_once() -> None:
    numbers = [str(int(number)) for number in sorted(ALL_BUT_FAULTS)]
    with started(sys.executable, "-c", PRINT_SIGNALS, *numbers) as process:
        assert line(process) == "ready"
        for number in numbers:
            process.send_signal(int(number))
            assert line(process) == number


def test_command_without_signal_handlers_ends_on_sigterm() -> None:
    with started("sleep", "300") as process:
        until(lambda: [child.name() for child in psutil.Process(process.pid).children()] == ["sleep"])
        process.terminate()
        assert process.wait(WITHIN_SECONDS) == -signal.SIGTERM


def test_signals_have_their_default_effect_in_the_command() -> None:
    """A Python that starts a program leaves it SIGPIPE ignored, and SIGTERM blocked if it was blocked here."""
    with started("grep", "-E", "^Sig(Ign|Blk):", "/proc/self/status") as process:
        masks = [int(line(process).split()[1], 16) for _ in range(2)]
    # The C library has signals of its own from 32 on, which this process may have inherited.
    assert [mask & (1 << 31) - 1 for mask in masks] == [0, 0]


def test_orphans_are_reaped() -> None:
    with started("sh", "-c", "sh -c 'sleep 300 & echo $!'; exec sleep 300") as process:
        orphan = int(line(process))
        until(lambda: psutil.Process(orphan).ppid() == process.pid)
        psutil.Process(orphan).kill()
        until(lambda: not psutil.pid_exists(orphan))
        assert process.poll() is None


def test_no_process_remains_after_the_command() -> None:
    with started("sh", "-c", "sleep 300 >&- & echo $!") as process:
        left = int(line(process))
        assert process.wait(WITHIN_SECONDS) == 0
        assert not psutil.pid_exists(left)


def test_ctrl_c_in_a_terminal_reaches_the_command_once() -> None:
    pid, terminal = pty.fork()
    if not pid:
        os.execv(TINI[0], [*TINI, "--", "sh", "-c", "trap 'echo interrupted' INT; echo ready; read line; exit 7"])  # noqa: S606
    os.set_blocking(terminal, True)
    shown = b""
    while b"ready" not in shown:
        shown += os.read(terminal, 1024)
    os.write(terminal, b"\x03")
    while b"interrupted" not in shown:
        shown += os.read(terminal, 1024)
    os.write(terminal, b"end\n")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    with suppress(OSError):  # the terminal of a program that has ended
        shown += os.read(terminal, 1024)
    assert shown.count(b"interrupted") == 1
    os.close(terminal)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--", "/no/such/program"], 127, "cannot start /no/such/program: No such file or directory"),
        (["--", "/etc/passwd"], 126, "cannot start /etc/passwd: Permission denied"),
        ([], 1, "usage: /tini [--] COMMAND [ARGUMENT...]; found: no command"),
        (["-g", "--", "true"], 1, "usage: /tini [--] COMMAND [ARGUMENT...]; found: -g -- true"),
    ],
)
def test_invalid_command_is_one_line_and_a_shell_exit_code(words: list[str], code: int, message: str) -> None:
    done = subprocess.run([*TINI, *words], capture_output=True, text=True, check=False, timeout=WITHIN_SECONDS)
    assert (done.returncode, done.stderr) == (code, f"{message}\n")


def test_separator_is_optional(tmp_path: Path) -> None:
    subprocess.run([*TINI, "touch", str(tmp_path / "made")], check=True, timeout=WITHIN_SECONDS)
    assert (tmp_path / "made").exists()
