"""The terminal as long-running commands use it: progress and errors on standard error, colored lines, and signals.

SIGTERM and SIGHUP interrupt a command as Ctrl-C does, so that the operators and control planes that it has started
don't outlive it. By default, Python exits on these signals without running any ``finally``.
"""

import os
import select
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, Protocol, TextIO

import structlog

from rolecall.system import logs
from rolecall.system.logs import LogSettings, printable

BROKEN_PIPE: Final = 141
"""The exit code of a command whose reader has left, as in ``rolecall record show FILE | head``, as of SIGPIPE."""

_REPORTED_ANYWAY: Final = frozenset({"run", "reconciler"})
"""The loggers of what becomes of runs."""

_REPEAT_SECONDS: Final = 0.02
"""The time after which an interrupt that was ignored is raised again: most finalizers have ended by then."""

INTERRUPTED: Final = 130
"""The exit code of an interrupted command: that of a shell for SIGINT."""


def exit_code_of(command: Callable[[], int]) -> int:
    """Return the exit code of a command, or BROKEN_PIPE if the reader of its standard output leaves before its end."""
    try:
        try:
            return command()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not _reader_has_left():
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the interpreter's last flush
        return BROKEN_PIPE


def _reader_has_left() -> bool:
    """Return whether standard output is a pipe without a reader; other pipes can break, too."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def configure_quiet_logs() -> None:
    """Log errors only, for a command whose output reports its runs: a failure is a result there."""
    logs.configure(LogSettings(level="error"), _without_results)


def _without_results(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if event.get("logger") in _REPORTED_ANYWAY:
        raise structlog.DropEvent
    return event


class StyledLine(Protocol):
    """A line and its style, as rich names it."""

    @property
    def text(self) -> str:
        """What is printed."""

    @property
    def style(self) -> str:
        """How, on a terminal."""


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows progress: a changing line on a terminal, otherwise a line for each message."""
    with progress_with_lines() as (report, _):
        yield report


@contextmanager
def progress_with_lines() -> Iterator[tuple[Callable[[str], None], Callable[[Iterable[StyledLine]], None]]]:
    """Yield a function that shows progress, and one that prints lines to standard output in the meantime."""

    def show(lines: Iterable[StyledLine]) -> None:
        print_lines(lines)
        sys.stdout.flush()

    if not sys.stderr.isatty():
        yield lambda text: print(text, file=sys.stderr), show  # noqa: T201
        return
    from rich.console import Console  # noqa: PLC0415

    with Console(stderr=True).status("Starting") as status:

        def show_above(lines: Iterable[StyledLine]) -> None:
            status.stop()  # while the status line is active, rich redirects standard output
            show(lines)
            status.start()

        yield status.update, show_above


def width_of(stream: TextIO) -> int:
    """Return the number of columns of a terminal, or of the variable COLUMNS if it is set; 0 for a file or a pipe."""
    given = os.environ.get("COLUMNS", "")
    if given.isascii() and given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):  # no terminal, or no file
        return 0


def print_lines(lines: Iterable[StyledLine]) -> None:
    """Print lines to standard output, with their styles if that is a terminal and NO_COLOR is not set."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        sys.stdout.writelines(f"{printable(line.text)}\n" for line in lines)
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console()
    for line in lines:
        console.print(Text(printable(line.text), line.style), soft_wrap=True)


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """End the body by SIGTERM and SIGHUP as SIGINT does: with KeyboardInterrupt; to be used in the main thread.

    The interpreter ignores exceptions raised in finalizers, for example in that of a pool of connections. SIGALRM then
    raises it again.
    """
    signals = (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
    previous, previous_hook = {number: signal.signal(number, _interrupt) for number in signals}, sys.unraisablehook

    def report(ignored: "sys.UnraisableHookArgs") -> None:
        if ignored.exc_type is KeyboardInterrupt:
            signal.setitimer(signal.ITIMER_REAL, _REPEAT_SECONDS)
        else:
            previous_hook(ignored)

    sys.unraisablehook = report
    try:
        yield
    finally:
        sys.unraisablehook = previous_hook
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in previous.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    # asyncio.run has a handler that cancels its main task. An exception would be raised in the task that is running.
    as_interrupt = signal.getsignal(signal.SIGINT)
    if callable(as_interrupt):
        as_interrupt(number, frame)
    else:  # a background job of a shell ignores SIGINT
        raise KeyboardInterrupt
