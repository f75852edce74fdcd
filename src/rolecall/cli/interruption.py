"""Ends a command by SIGTERM or SIGHUP as Ctrl-C does, so that what it has started does not outlive it.

Python ends a process by these signals at once: no ``finally`` is run, and operators and control planes stay.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

INTERRUPTED: Final = 130
"""The exit code of an interrupted command: that of a shell for SIGINT."""


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """End the body by SIGTERM and SIGHUP as SIGINT does: with KeyboardInterrupt; to be used in the main thread."""
    previous = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    # asyncio.run has a handler that cancels its main task. An exception would be raised in whatever task runs just now.
    as_interrupt = signal.getsignal(signal.SIGINT)
    if callable(as_interrupt):
        as_interrupt(number, frame)
    else:  # a background job of a shell ignores SIGINT
        raise KeyboardInterrupt
