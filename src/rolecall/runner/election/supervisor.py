"""The parent process of another program: the guard of an operator's Lease, or process 1 of the images.

The guard knows when the operator and all its descendants must have ended, and kills them then. It receives each renewal
through a pipe. No state of the operator blocks it: a stopped operator, an interpreter that runs no other thread, a full
pipe for log lines, a lack of descriptors or of memory.

Otherwise it is invisible: it forwards signals to the operator, reaps orphans as the first process of a container must,
and ends as the operator ends. It is executed by its path in an isolated interpreter and imports only parts of the
standard library, so that it takes little memory.

With ``--init COMMAND`` it starts a command and does only the latter, without a Lease: this is process 1 of the images,
``/tini``. The command gets its own process group and the terminal, if there is one, as with tini. The command's exit
code is the exit code; 127 if the command doesn't exist, 126 if it can't be executed.
"""

import ctypes
import math
import os
import resource
import select
import signal
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

MESSAGE = struct.Struct("=d")
"""A message of the operator: when it must have ended, in seconds of ``CLOCK_BOOTTIME``; infinity for never."""

IGNORED = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
"""Signals of a terminal that would stop the guard while the operator continues."""

_FAULTS = {getattr(signal, f"SIG{name}") for name in ("ABRT", "BUS", "FPE", "ILL", "SEGV", "SYS", "TRAP")}
_UNCATCHABLE = (signal.SIGKILL, signal.SIGSTOP)
FORWARDED = tuple(sorted(signal.valid_signals() - {*IGNORED, *_FAULTS, *_UNCATCHABLE, signal.SIGCHLD}))
"""All signals that another process may send to the operator."""

HANDLED = (*FORWARDED, signal.SIGCHLD)
EXPIRED_EXIT_CODE = 1
_CANNOT_EXECUTE, _NOT_FOUND, _EXIT_CODE_OF_SIGNALS = 126, 127, 128
_SECONDS_TO_END = 1.0
"""How long the operator may take to end after it has closed the pipe, which only its end does."""

_KILL_LIMIT_SECONDS = 10.0
_KILL_AGAIN_MILLISECONDS = 50
_READ_BYTES = 1 << 16
_SET_NAME, _SET_CHILD_SUBREAPER = 15, 36
_BOOT_CLOCK, _NONBLOCKING, _ABSOLUTE_TIME = 7, os.O_NONBLOCK, 1


class _TimerSpec(ctypes.Structure):
    _fields_ = (("interval", ctypes.c_long * 2), ("value", ctypes.c_long * 2))


class BootTimer:
    """A timer that counts the time of a suspended machine too; ``descriptor`` becomes readable when it expires."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.descriptor = library.timerfd_create(_BOOT_CLOCK, _NONBLOCKING)
        if self.descriptor < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def set(self, when: float) -> None:
        """Let the timer expire at a time of ``CLOCK_BOOTTIME``, never if it is infinity."""
        seconds, fraction = (0, 0.0) if math.isinf(when) else divmod(max(when, 0.001), 1)
        spec = _TimerSpec((0, 0), (int(seconds), int(fraction * 1e9)))
        self._library.timerfd_settime(self.descriptor, _ABSOLUTE_TIME, ctypes.byref(spec), None)


class Guard:
    """Watches one operator, its child, until it has ended."""

    def __init__(self, operator: int, messages: int, timer: BootTimer) -> None:
        self._operator, self._messages, self._timer = operator, messages, timer
        self._kill_at = math.inf
        self._status: int | None = None
        self._signals = _catch_signals()
        self._poll = select.poll()
        for descriptor in (messages, self._signals, timer.descriptor):
            self._poll.register(descriptor, select.POLLIN)

    def watch(self) -> int | None:
        """Wait until the operator has ended, and kill its descendants; return its status, None if it was killed."""
        while self._status is None:
            ready = {descriptor for descriptor, _ in self._poll.poll()}
            if self._messages in ready:
                self._read_messages()
            # Before all else, so that nothing else happens after the guard itself was frozen.
            if _now() >= self._kill_at:
                self._kill_everything()
                return None
            if self._signals in ready:
                self._handle_signals()
        self._kill_everything()
        return self._status

    def _read_messages(self) -> None:
        received = os.read(self._messages, _READ_BYTES)
        if received:
            # Messages are shorter than the atomic write size of a pipe, so they are complete.
            self._kill_at = [when for (when,) in MESSAGE.iter_unpack(received)][-1]
        else:
            self._poll.unregister(self._messages)
            self._kill_at = min(self._kill_at, _now() + _SECONDS_TO_END)
        self._timer.set(self._kill_at)

    def _handle_signals(self) -> None:
        for number in os.read(self._signals, _READ_BYTES):
            if number == signal.SIGCHLD:
                self._reap()
            elif self._status is None:
                os.kill(self._operator, number)

    def _reap(self) -> bool:
        """Reap all children that have ended; return whether there are others."""
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._operator:
                    self._status = ended[1]
        except ChildProcessError:
            return False
        return True

    def _kill_everything(self) -> None:
        """Kill all processes below the guard until there are none, or the limit is reached."""
        if self._status is None:
            os.kill(self._operator, signal.SIGKILL)  # it can't start other processes during the search
        deadline = _now() + _KILL_LIMIT_SECONDS
        wait = select.poll()
        wait.register(self._signals, select.POLLIN)
        while self._reap() and _now() < deadline:
            for pid in _below(os.getpid()):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if wait.poll(_KILL_AGAIN_MILLISECONDS):
                os.read(self._signals, _READ_BYTES)


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _catch_signals() -> int:
    """Return a descriptor from which the numbers of signals are read as they arrive."""
    reading, writing = os.pipe()
    for descriptor in (reading, writing):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in HANDLED:
        signal.signal(number, lambda *_: None)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
    return reading


def _below(pid: int) -> Iterator[int]:
    """Yield the ids of all processes below a process."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib takes more memory than all the rest
        if name.isdigit():
            children.setdefault(_parent_of(name), []).append(int(name))
    left = [pid]
    while left:
        found = children.pop(left.pop(), [])
        yield from found
        left += found


def _parent_of(name: str) -> int:
    """Return the parent of a process in /proc, 0 if it has ended in the meantime."""
    try:
        with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - see above
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def _end_as(status: int | None) -> None:
    """End this process as another one has ended."""
    if status is not None and os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        os._exit(_EXIT_CODE_OF_SIGNALS + number)  # the first process of a container does not end by its own signals
    os._exit(EXPIRED_EXIT_CODE if status is None else os.waitstatus_to_exitcode(status))


def _start_command(command: list[str]) -> int:
    """Start a command in its own process group, which gets the terminal if there is one; return its id.

    The signals that the caller handles stay blocked until it does.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    child = os.fork()
    if child:
        return child
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        with suppress(OSError):  # standard input is not a terminal
            os.tcsetpgrp(0, os.getpgrp())
        for number in (signal.SIGTTOU, signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores the latter two
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execvp(command[0], command)  # noqa: S606 - no shell is wanted
    except OSError as error:
        sys.stderr.write(f"cannot start {command[0]}: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _CANNOT_EXECUTE)


def _init(words: list[str]) -> None:
    """Start the command in the arguments of ``/tini`` and end as it ends."""
    command = words[1:] if words[:1] == ["--"] else words
    if not command or (command is words and command[0].startswith("-")):
        sys.exit(f"usage: /tini [--] COMMAND [ARGUMENT...]; found: {' '.join(words) or 'no command'}")
    library = ctypes.CDLL(None, use_errno=True)
    library.prctl(_SET_NAME, b"rolecall-init", 0, 0, 0)
    library.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = _start_command(command)
    messages, _never_written = os.pipe()
    _end_as(Guard(child, messages, BootTimer(library)).watch())


def _guard(operator: int, messages: int) -> None:
    """Guard an operator, which has the other end of the pipe ``messages``."""
    library = ctypes.CDLL(None, use_errno=True)
    library.prctl(_SET_NAME, b"lease-guard", 0, 0, 0)
    # A traceback would wait for a reader of a full pipe.
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    _end_as(Guard(operator, messages, BootTimer(library)).watch())


def main() -> None:
    """Start the command after ``--init``, or guard the operator whose id and end of the pipe are the arguments."""
    if sys.argv[1:2] == ["--init"]:
        _init(sys.argv[2:])
    else:
        operator, messages = map(int, sys.argv[1:])
        _guard(operator, messages)


if __name__ == "__main__":
    main()
