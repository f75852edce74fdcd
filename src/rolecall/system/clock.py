"""An interface for time, so that queues and informers can be tested without waiting.

The wall clock is used for timestamps that other programs see. The monotonic clock is used to measure and schedule,
because it never jumps; it includes the time during which the machine is suspended. Tests use a fake ``Clock``;
``LoopClock`` uses the running asyncio loop.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol


class Handle(Protocol):
    """A scheduled callback that can be cancelled."""

    def cancel(self) -> None:
        """Cancel the callback; do nothing if it has already run."""


class Clock(Protocol):
    """A wall clock, a monotonic clock and a scheduler."""

    def now(self) -> float:
        """Return the wall clock time in seconds since the epoch."""

    def monotonic(self) -> float:
        """Return the monotonic time in seconds."""

    def call_at(self, when_monotonic: float, callback: Callable[[], None]) -> Handle:
        """Call ``callback`` when ``monotonic()`` has reached ``when_monotonic``."""


class LoopClock:
    """The system's clocks, with callbacks on the running event loop."""

    def now(self) -> float:
        """Return the wall clock time in seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Return the monotonic time in seconds, including that during which the machine was suspended."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def call_at(self, when_monotonic: float, callback: Callable[[], None]) -> Handle:
        """Call ``callback`` on the running loop when ``monotonic()`` has reached ``when_monotonic``."""
        loop = asyncio.get_running_loop()
        return loop.call_later(max(0.0, when_monotonic - self.monotonic()), callback)


SYSTEM_CLOCK: Final = LoopClock()
"""The clock of a part that receives no other; ``run_operator`` passes its own to each part of an operator."""


async def sleep(clock: Clock, seconds: float) -> None:
    """Sleep for ``seconds`` of the given clock's time; zero or less only yields to other tasks."""
    if seconds <= 0:
        await asyncio.sleep(0)
        return
    reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def end() -> None:
        if not reached.done():
            reached.set_result(None)

    handle = clock.call_at(clock.monotonic() + seconds, end)
    try:
        await reached
    finally:
        handle.cancel()
