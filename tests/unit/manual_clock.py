"""A clock that the test moves: callbacks run in the order of their times, only when the test says so."""

import asyncio
import heapq
import itertools
from collections.abc import Callable


class ManualHandle:
    """A scheduled callback of a ManualClock."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Prevent the callback."""
        self.callback = None


class ManualClock:
    """Implements ``rolecall.system.clock.Clock``; wall time is monotonic time plus ``epoch``."""

    def __init__(self, epoch: float = 1_700_000_000.0) -> None:
        self._epoch = epoch
        self._time = 0.0
        self._numbers = itertools.count()
        self._scheduled: list[tuple[float, int, ManualHandle]] = []

    def now(self) -> float:
        """Return the wall clock's time in seconds since the epoch."""
        return self._epoch + self._time

    def monotonic(self) -> float:
        """Return the seconds since the clock was made."""
        return self._time

    def call_at(self, when_monotonic: float, callback: Callable[[], None]) -> ManualHandle:
        """Schedule a callback."""
        handle = ManualHandle(callback)
        heapq.heappush(self._scheduled, (when_monotonic, next(self._numbers), handle))
        return handle

    @property
    def handles(self) -> int:
        """The number of callbacks that are scheduled and not cancelled."""
        return sum(handle.callback is not None for _, _, handle in self._scheduled)

    def advance(self, seconds: float) -> None:
        """Move the time forward and run what becomes due, each at its own time."""
        end = self._time + seconds
        while self._scheduled and self._scheduled[0][0] <= end:
            when, _, handle = heapq.heappop(self._scheduled)
            self._time = max(self._time, when)
            callback, handle.callback = handle.callback, None
            if callback is not None:
                callback()
        self._time = end

    async def advance_and_settle(self, seconds: float) -> None:
        """Move the time forward, then let the tasks that were woken go as far as they can."""
        self.advance(seconds)
        await settle()


async def settle(rounds: int = 50) -> None:
    """Run every task that can continue."""
    for _ in range(rounds):
        await asyncio.sleep(0)
