"""Timers for any number of requests, with one scheduled callback of the clock.

Ten thousand objects may wait for their next periodic reconcile. So a timer is a tuple in a heap, and only the earliest
one is scheduled with the clock. A request has at most one timer: the earliest time wins.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from rolecall.system.clock import Clock, Handle

RequestT = TypeVar("RequestT", bound=Hashable)
CauseT = TypeVar("CauseT")

_Timer = tuple[float, int, RequestT, CauseT]  # due (monotonic), tie-breaking number, request, cause
_MAX_STOPPED_TIMERS = 64  # the heap is rebuilt when it has this many more stopped timers than running ones


class Timers(Generic[RequestT, CauseT]):
    """Calls ``on_due`` with each request and its cause when the request becomes due, in the order of their times."""

    def __init__(self, clock: Clock, on_due: Callable[[RequestT, CauseT], None]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._running: dict[RequestT, _Timer[RequestT, CauseT]] = {}
        self._heap: list[_Timer[RequestT, CauseT]] = []
        self._numbers = itertools.count()
        self._armed: tuple[float, Handle] | None = None

    def __len__(self) -> int:
        """Return the number of requests that are not due yet."""
        return len(self._running)

    def __iter__(self) -> Iterator[RequestT]:
        """Iterate over the requests that are not due yet."""
        return iter(self._running)

    def start(self, request: RequestT, seconds: float, cause: CauseT) -> None:
        """Make a request due after ``seconds``, unless it is due earlier."""
        due = self._clock.monotonic() + seconds
        running = self._running.get(request)
        if running is not None and running[0] <= due:
            return
        timer = (due, next(self._numbers), request, cause)
        self._running[request] = timer
        heapq.heappush(self._heap, timer)
        self._arm()

    def stop(self, request: RequestT) -> None:
        """Stop the timer of a request, if it has one."""
        if self._running.pop(request, None) is not None:
            self._arm()

    def clear(self) -> None:
        """Stop all timers."""
        self._running.clear()
        self._heap.clear()
        self._arm()

    def get(self, request: RequestT) -> tuple[float, CauseT] | None:
        """Return when (monotonic) a request becomes due, and its cause; None if it has no timer."""
        timer = self._running.get(request)
        return None if timer is None else (timer[0], timer[3])

    def order(self, request: RequestT) -> tuple[float, int]:
        """Return a sort key that orders requests by their due time; requests without a timer come first."""
        timer = self._running.get(request)
        return (-math.inf, 0) if timer is None else timer[:2]

    def _arm(self) -> None:
        """Schedule the clock's callback for the earliest timer."""
        if len(self._heap) > 2 * len(self._running) + _MAX_STOPPED_TIMERS:
            self._heap = list(self._running.values())
            heapq.heapify(self._heap)
        while self._heap and self._running.get(self._heap[0][2]) is not self._heap[0]:
            heapq.heappop(self._heap)
        due = self._heap[0][0] if self._heap else None
        if self._armed is not None and self._armed[0] != due:
            self._armed[1].cancel()
            self._armed = None
        if self._armed is None and due is not None:
            self._armed = (due, self._clock.call_at(due, self._fire))

    def _fire(self) -> None:
        self._armed = None
        now = self._clock.monotonic()
        while self._heap and self._heap[0][0] <= now:
            timer = heapq.heappop(self._heap)
            if self._running.get(timer[2]) is timer:
                del self._running[timer[2]]
                self._on_due(timer[2], timer[3])
        self._arm()
