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
    """Raise KeyboardInterrupt in the body for SIGTERM and SIGHUP too; to be used in the main thread."""
    previous = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
