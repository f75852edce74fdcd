import ctypes
import os
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
    """Do something in a forked process; return its exit code, standard output and standard error."""
    out_reading, out_writing = os.pipe()
    err_reading, err_writing = os.pipe()
    pid = os.fork()
    if pid == 0:

        def all_of_it() -> None:
            set_standard_streams(os.open(os.devnull, os.O_RDONLY), out_writing, err_writing)
            work()

        run_and_exit(all_of_it)
    os.close(out_writing)
    os.close(err_writing)
    with os.fdopen(out_reading) as out, os.fdopen(err_reading) as err:
        printed = out.read(), err.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), *printed


def interrupt() -> None:
    """Do what Ctrl-C does to a program that does not expect it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("work", "code"),
    [
        (lambda: None, 0),
        (sys.exit, 0),
        (lambda: sys.exit(7), 7),
        (lambda: sys.exit(256), 0),
        (lambda: sys.exit("words"), 1),
        (lambda: 1 / 0, 1),
        (interrupt, -signal.SIGINT),
        (lambda: os._exit(9), 9),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), -signal.SIGKILL),
    ],
)
def test_a_child_ends_as_an_interpreter_would(work: Callable[[], object], code: int) -> None:
    assert in_a_child(work)[0] == code


def test_what_a_child_prints_comes_from_its_own_streams() -> None:
    _, out, err = in_a_child(lambda: (print("out"), print("err", file=sys.stderr)))  # noqa: T201 - the subject
    assert (out, err) == ("out\n", "err\n")


def test_an_exception_is_printed() -> None:
    assert "ZeroDivisionError" in in_a_child(lambda: 1 / 0)[2]


def test_exit_hooks_of_the_parent_are_not_the_child_s() -> None:
    def work() -> None:
        import atexit  # noqa: PLC0415 - the hook is the child's

        atexit.register(print, "own")

    assert in_a_child(work)[1] == "own\n"


def test_signals_are_as_in_a_new_process() -> None:
    def work() -> None:
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what it starts with "&" ignore it
        reset_signals()
        names = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
        print([signal.getsignal(name) for name in names])  # noqa: T201 - the subject

    expected = [signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler]
    assert in_a_child(work)[1] == f"{expected}\n"


def test_a_child_can_make_callbacks_for_c_although_its_descriptors_are_closed() -> None:
    """Many of them: libffi maps its own file again for each few hundred, where it is built to do so."""
    callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)

    def work() -> None:
        close_descriptors_except()
        print([callback(abs) for _ in range(5000)][-1](-5))  # noqa: T201 - read by the test

    assert in_a_child(work) == (0, "5\n", "")


def test_the_file_of_libffi_stays_open(tmp_path: Path) -> None:
    script = """
import os, sys
held = [os.open(os.path.join(sys.argv[1], name), os.O_CREAT) for name in ("libffi.so.8", "other.so")]
from rolecall.runner.warm.forked_child import close_descriptors_except
close_descriptors_except()
print([os.path.exists(f"/proc/self/fd/{each}") for each in held])
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "[True, False]\n"


def test_descriptors_are_closed_unless_they_are_kept() -> None:
    def work() -> None:
        kept, other = os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_RDONLY)
        close_descriptors_except([kept])
        os.fstat(kept)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(other)

    assert in_a_child(work)[0] == 0


def test_the_environment_is_replaced_for_what_the_child_starts_too() -> None:
    def work() -> None:
        set_environment({"ONLY": "this", "PATH": os.environ["PATH"]})
        os.execvp("env", ["env"])  # noqa: S606 - no shell is the point

    lines = in_a_child(work)[1].splitlines()
    assert "ONLY=this" in lines
    assert {line.partition("=")[0] for line in lines} == {"ONLY", "PATH"}


PROGRAM = """
import os, sys
from pathlib import Path
from rolecall.runner.warm.forked_child import ProcessTitles
titles = ProcessTitles.find()
titles.mark(sys.argv[1])
titles.rename(*sys.argv[2].split())
print(Path("/proc/self/environ").read_bytes())
print(Path("/proc/self/cmdline").read_bytes())
"""


def run(ident: str, title: str, room: str = TITLE_ROOM) -> tuple[bytes, bytes]:
    """Return environment and command line of a process that has named itself."""
    environment = {"PATH": os.environ["PATH"], SLOT_VARIABLE: SLOT_VALUE, "AFTER": "stays"}
    program = [sys.executable, "-c", PROGRAM, ident, title, room]
    printed = subprocess.run(program, env=environment, capture_output=True, text=True, check=True).stdout
    first, second = (eval(line) for line in printed.splitlines())  # noqa: S307 - two literals of our own
    return first, second


def test_a_process_carries_the_mark_where_others_look_for_it() -> None:
    environment, _ = run("123", "title")
    assert f"{RUN_VARIABLE}=123".encode() in environment.split(b"\0")
    assert SLOT_VARIABLE.encode() not in environment
    assert b"AFTER=stays" in environment


def test_a_process_shows_the_words_of_its_title() -> None:
    _, command = run("1", f"python -m {RUNNER_MODULE}")
    assert command.rstrip(b"\0").split(b"\0") == [b"python", b"-m", RUNNER_MODULE.encode()]


def test_a_title_without_room_is_cut_and_spares_the_environment() -> None:
    environment, command = run("1", "x" * 5000, room="")
    assert set(command.rstrip(b"\0")) == {ord("x")}
    assert b"AFTER=stays" in environment


def test_a_process_without_the_slot_cannot_be_marked() -> None:
    with pytest.raises(OSError, match=SLOT_VARIABLE):
        ProcessTitles.find()


def test_a_name_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than 64"):
        ProcessTitles(0, 0, 0).mark("x" * 80)
