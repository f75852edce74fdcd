"""Make a forked child like a process that was executed: descriptors, signals, standard streams, command line, exit.

A child inherits everything: open files, signal handlers, exit hooks, the parent's ``sys.stdout``. Each function here
undoes one part of that. Call them in the child, right after the fork.

A process that is forked but not executed also keeps its parent's command line and environment, as /proc shows them to
others. Both are in the process's own memory. ``ProcessTitles`` overwrites them, so that the processes of a run carry
the run's mark (see ``runs.process_marks``) from the start, and ``ps`` shows what a process does. The server is started
with ``SLOT_VARIABLE`` in its environment, which reserves the space for the mark.
"""

import atexit
import ctypes
import io
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Self

from rolecall.runner.runs.process_marks import RUN_VARIABLE
from rolecall.runner.warm.shared_objects import CodeInUse

SLOT_VARIABLE = "ROLECALL_NON"
"""Reserves space for the mark; its name is as long as ``RUN_VARIABLE``, which overwrites it."""

SLOT_VALUE = "-" * 64
TITLE_ROOM = " " * 96
"""An argument of the server that reserves space for longer command lines."""

_FIRST_FIELD = 3
_ARGUMENTS_START, _ARGUMENTS_END, _ENVIRONMENT_START, _ENVIRONMENT_END = 48, 49, 50, 51
_LAST_DESCRIPTOR = 1 << 20
INTERRUPTED = -2
"""Stands in for the exit code after a KeyboardInterrupt, when an interpreter sends itself SIGINT."""
_ENCODING, _ERRORS = sys.stdout.encoding, sys.stdout.errors or "strict"
_IS_UNBUFFERED = bool(getattr(sys.stdout, "write_through", False))
"""What the interpreter has chosen for the standard streams, from the locale and from PYTHONUNBUFFERED."""


def _descriptors_of_libffi() -> tuple[int, ...]:
    """Return the descriptors of libffi's own file, which it opens once if it is built with static trampolines.

    It maps this file again whenever ctypes makes more callbacks. Without it that is a MemoryError, or another file that
    has the number by then is mapped.
    """
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # that of the directory itself is closed by now
            if entry.readlink().name.startswith("libffi.so"):
                found.append(int(entry.name))
    return tuple(found)


_LIBFFI = _descriptors_of_libffi()
"""Found in the server, after ctypes was imported; forked children have the same ones."""


def reset_signals() -> None:
    """Restore the signal handlers of a new interpreter; ignored signals stay ignored, as after ``exec``."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())


def close_descriptors_except(kept: Iterable[int] = ()) -> None:
    """Close every descriptor except the standard ones, that of libffi, and these."""
    first = 3
    for descriptor in sorted({*kept, *_LIBFFI}):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, _LAST_DESCRIPTOR)


def set_standard_streams(stdin: int, stdout: int, stderr: int) -> None:
    """Make these descriptors the standard streams of Python and of processes that are started later."""
    taken = [os.dup(descriptor) for descriptor in (stdin, stdout, stderr)]
    for number, descriptor in enumerate(taken):
        os.dup2(descriptor, number)
        os.close(descriptor)
    open_standard_streams()


def open_standard_streams() -> None:
    """Open Python's standard streams again, on the current descriptors 0, 1 and 2."""
    sys.stdin = sys.__stdin__ = _stream(0, "r", _ERRORS)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _stream(1, "w", _ERRORS)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(2, "w", "backslashreplace")  # type: ignore[misc]


def _stream(descriptor: int, mode: str, errors: str) -> io.TextIOWrapper:
    is_direct = _IS_UNBUFFERED and mode == "w"
    binary = open(descriptor, f"{mode}b", 0 if is_direct else -1, closefd=False)  # noqa: SIM115 - open until the process ends
    by_lines = not is_direct and (descriptor == 2 or os.isatty(descriptor))  # noqa: PLR2004 - standard error
    return io.TextIOWrapper(
        binary, encoding=_ENCODING, errors=errors, newline="\n", line_buffering=by_lines, write_through=is_direct
    )


def set_environment(environment: Mapping[str, str]) -> None:
    """Replace the whole environment, and drop what Python has derived from the old one."""
    os.environ.clear()
    ctypes.CDLL(None).clearenv()  # what a C library has set is not known to Python
    os.environ.update(environment)
    time.tzset()
    tempfile.tempdir = None


def run_and_exit(work: Callable[[], object], used: CodeInUse | None = None) -> NoReturn:
    """Do the work of a forked process, then exit as an interpreter does: with its own exit hooks and exit code.

    The functions that it has used are reported to ``used``.
    """
    code = 1
    try:
        atexit._clear()  # noqa: SLF001 - these are the parent's hooks; there is no public way
        code = exit_code_of(work)
        with suppress(Exception):
            threading._shutdown()  # type: ignore[attr-defined] # noqa: SLF001 - no public way to join the threads
        run_exit_hooks()
        if code == INTERRUPTED:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        if used:
            used.report()
    finally:
        os._exit(code)


def run_exit_hooks() -> None:
    """Call the exit hooks of this process, and write what its standard streams hold."""
    atexit._run_exitfuncs()  # noqa: SLF001 - there is no public way
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with suppress(OSError, ValueError):  # the work may have closed it
            if stream is not None:
                stream.flush()


def exit_code_of(work: Callable[[], object]) -> int:
    """Do the work of a process in this one; return the exit code of an interpreter, or ``INTERRUPTED``."""
    try:
        work()
    except SystemExit as leaving:
        if leaving.code is None:
            return 0
        if isinstance(leaving.code, int):
            return leaving.code & 0xFF
        sys.stderr.write(f"{leaving.code}\n")
        return 1
    except BaseException as error:  # noqa: BLE001 - the last line of defense of a process
        traceback.print_exc()
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


@dataclass(frozen=True, slots=True)
class ProcessTitles:
    """Where the command line and the slot for the mark are in memory."""

    arguments: int
    arguments_size: int
    slot: int

    @classmethod
    def find(cls) -> Self:
        """Find the addresses. Raises OSError if /proc does not show them or the process has no slot."""
        stat = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        fields = (_ARGUMENTS_START, _ARGUMENTS_END, _ENVIRONMENT_START, _ENVIRONMENT_END)
        start, end, first, last = (int(stat[field - _FIRST_FIELD]) for field in fields)
        if not 0 < start < end <= first < last:
            raise OSError("/proc/self/stat does not show where the command line of this process is")
        offset = ctypes.string_at(first, last - first).find(f"{SLOT_VARIABLE}={SLOT_VALUE}".encode())
        if offset < 0:
            raise OSError(f"{SLOT_VARIABLE} is missing in the environment of this process")
        return cls(start, end - start, first + offset)

    def mark(self, ident: str) -> None:
        """Mark this process as one of a run. Raises ValueError if the run's name is too long."""
        text = f"{RUN_VARIABLE}={ident}".encode()
        room = len(SLOT_VARIABLE) + 1 + len(SLOT_VALUE)
        if len(text) > room:
            raise ValueError(f"cannot mark the processes of run {ident!r}: its name is longer than {len(SLOT_VALUE)}")
        ctypes.memmove(self.slot, text.ljust(room, b"\0"), room)

    def rename(self, *words: str) -> None:
        """Set the command line; what does not fit is cut off."""
        text = "\0".join(words).encode(errors="replace")[: self.arguments_size - 1]
        ctypes.memmove(self.arguments, text.ljust(self.arguments_size, b"\0"), self.arguments_size)
