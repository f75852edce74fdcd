"""Time, behind one small interface, so that queues and informers can be tested without waiting.

A wall clock says when something happened or shall happen to the outside world; a monotonic clock measures and
schedules, because it never jumps. Everything in this layer takes a ``Clock`` instead of asking the interpreter, and the
tests move a clock of their own. The neighbour is ``asyncio``: ``LoopClock`` schedules on the running loop.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Handle(Protocol):
    """A scheduled callback that can be taken back."""

    def cancel(self) -> None:
        """Prevent the callback; nothing happens when it has run already."""


class Clock(Protocol):
    """What this layer asks of time."""

    def now(self) -> float:
        """Give the wall clock's time, in seconds since the epoch."""

    def monotonic(self) -> float:
        """Give a time, in seconds, that only ever grows."""

    def call_at(self, when_monotonic: float, callback: Callable[[], None]) -> Handle:
        """Call ``callback`` when ``monotonic()`` has reached ``when_monotonic``."""


class LoopClock:
    """The real time, scheduled on the running event loop."""

    def now(self) -> float:
        """Give the wall clock's time, in seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Give the system's monotonic time in seconds."""
        return time.monotonic()

    def call_at(self, when_monotonic: float, callback: Callable[[], None]) -> Handle:
        """Call ``callback`` on the running loop when ``monotonic()`` has reached ``when_monotonic``."""
        loop = asyncio.get_running_loop()
        return loop.call_later(max(0.0, when_monotonic - time.monotonic()), callback)


async def sleep(clock: Clock, seconds: float) -> None:
    """Suspend the caller for ``seconds`` of the given clock's time; nothing or less lets others have a turn."""
    if seconds <= 0:
        await asyncio.sleep(0)
        return
    reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not reached.done():
            reached.set_result(None)

    handle = clock.call_at(clock.monotonic() + seconds, wake)
    try:
        await reached
    finally:
        handle.cancel()
