"""A forked child is like a process that was executed."""

import atexit
import ctypes
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rolecall.runner.runs.process_marks import RUN_VARIABLE, RUNNER_MODULE
from rolecall.runner.warm.forked_child import (
    SLOT_VALUE,
    SLOT_VARIABLE,
    TITLE_ROOM,
    ProcessTitles,
    close_descriptors_except,
    reset_signals,
    run_and_exit,
    set_environment,
    set_standard_streams,
)


def in_a_child(work: Callable[[], object]) -> tuple[int, str, str]:
    """Run a function in a forked process; return its exit code, standard output and standard error."""
    out_reading, out_writing = os.pipe()
    err_reading, err_writing = os.pipe()
    pid = os.fork()
    if pid == 0:

        def work_with_streams() -> None:
            set_standard_streams(os.open(os.devnull, os.O_RDONLY), out_writing, err_writing)
            work()

        run_and_exit(work_with_streams)
    os.close(out_writing)
    os.close(err_writing)
    with os.fdopen(out_reading) as out, os.fdopen(err_reading) as err:
        printed = out.read(), err.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), *printed


def interrupt() -> None:
    """Raise KeyboardInterrupt, as Ctrl-C does."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("work", "code", "err"),
    [
        (lambda: None, 0, ""),
        (sys.exit, 0, ""),
        (lambda: sys.exit(7), 7, ""),
        (lambda: sys.exit(256), 0, ""),
        (lambda: sys.exit("words"), 1, "words\n"),
        (lambda: 1 / 0, 1, "ZeroDivisionError: division by zero\n"),
        (interrupt, -signal.SIGINT, "KeyboardInterrupt\n"),
    ],
)
def test_child_exits_like_an_interpreter(work: Callable[[], object], code: int, err: str) -> None:
    found, _, printed = in_a_child(work)
    assert found == code
    assert printed.endswith(err)


def test_child_runs_only_its_own_exit_hooks() -> None:
    assert in_a_child(lambda: atexit.register(print, "own"))[1] == "own\n"


def test_signal_handlers_are_reset_and_ignored_signals_stay_ignored() -> None:
    def work() -> None:
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets background processes ignore it
        reset_signals()
        names = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
        print([signal.getsignal(name) for name in names])  # noqa: T201 - read by the test

    expected = [signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler]
    assert in_a_child(work)[1] == f"{expected}\n"


def test_child_with_closed_descriptors_can_make_callbacks_for_c() -> None:
    """Many of them: libffi maps its own file again for each few hundred, where it is built to do so."""
    callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)

    def work() -> None:
        close_descriptors_except()
        print([callback(abs) for _ in range(5000)][-1](-5))  # noqa: T201 - read by the test

    assert in_a_child(work) == (0, "5\n", "")


def test_only_kept_descriptors_and_that_of_libffi_stay_open(tmp_path: Path) -> None:
    script = """
import os, sys
held = [os.open(os.path.join(sys.argv[1], name), os.O_CREAT) for name in ("libffi.so.8", "kept", "other.so")]
from rolecall.runner.warm.forked_child import close_descriptors_except
close_descriptors_except([held[1]])
print([os.path.exists(f"/proc/self/fd/{each}") for each in held])
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "[True, True, False]\n"


def test_replaced_environment_reaches_programs_of_the_child() -> None:
    def work() -> None:
        set_environment({"ONLY": "this", "PATH": os.environ["PATH"]})
        os.execvp("env", ["env"])  # noqa: S606 - no shell is the point

    lines = in_a_child(work)[1].splitlines()
    assert "ONLY=this" in lines
    assert {line.partition("=")[0] for line in lines} == {"ONLY", "PATH"}


PROGRAM = """
import sys
from pathlib import Path
from rolecall.runner.warm.forked_child import ProcessTitles
titles = ProcessTitles.find()
titles.mark("123")
titles.rename(*sys.argv[1].split())
print(Path("/proc/self/cmdline").read_text(), Path("/proc/self/environ").read_text(), sep=chr(10), end="")
"""


@pytest.mark.parametrize(
    ("title", "room", "expected"),
    [
        (f"python -m {RUNNER_MODULE}", TITLE_ROOM, rf"python\0-m\0{RUNNER_MODULE}\0+"),
        ("x" * 5000, "", r"x+\0+"),
    ],
    ids=["fits", "is-cut"],
)
def test_process_shows_its_title_and_mark(title: str, room: str, expected: str) -> None:
    environment = {"PATH": os.environ["PATH"], SLOT_VARIABLE: SLOT_VALUE, "AFTER": "stays"}
    program = [sys.executable, "-c", PROGRAM, title, room]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    command, variables = done.stdout.split("\n")
    assert re.fullmatch(expected, command)
    assert {f"{RUN_VARIABLE}=123", "AFTER=stays"} <= set(variables.split("\0"))
    assert SLOT_VARIABLE not in variables


def test_process_without_the_slot_cannot_be_marked() -> None:
    with pytest.raises(OSError, match=SLOT_VARIABLE):
        ProcessTitles.find()


def test_too_long_name_is_rejected() -> None:
    with pytest.raises(ValueError, match="longer than 64"):
        ProcessTitles(0, 0, 0).mark("x" * 80)
