"""Timers for any number of requests on one handle of the clock.

Ten thousand objects wait for their next periodic reconcile, so a timer is a tuple in a heap, and the clock is asked
to call for the earliest of them only. A request has at most one timer: of several times the earliest counts. The
``work_queue`` is the only user.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from rolecall.controller.clock import Clock, Handle

RequestT = TypeVar("RequestT", bound=Hashable)
CauseT = TypeVar("CauseT")

_Timer = tuple[float, int, RequestT, CauseT]  # due (monotonic), number that keeps order, request, cause
_STOPPED_IN_HEAP = 64  # that many stopped timers may lie in the heap beside as many as are running


class Timers(Generic[RequestT, CauseT]):
    """Requests with the time at which each becomes due; ``on_due`` is called with request and cause, in that order."""

    def __init__(self, clock: Clock, on_due: Callable[[RequestT, CauseT], None]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._running: dict[RequestT, _Timer[RequestT, CauseT]] = {}
        self._heap: list[_Timer[RequestT, CauseT]] = []
        self._numbers = itertools.count()
        self._armed: tuple[float, Handle] | None = None

    def __len__(self) -> int:
        """Count the requests that are not due yet."""
        return len(self._running)

    def start(self, request: RequestT, seconds: float, cause: CauseT) -> None:
        """Make a request due after ``seconds``, unless it is due earlier anyway."""
        due = self._clock.monotonic() + seconds
        running = self._running.get(request)
        if running is not None and running[0] <= due:
            return
        timer = (due, next(self._numbers), request, cause)
        self._running[request] = timer
        heapq.heappush(self._heap, timer)
        self._arm()

    def stop(self, request: RequestT) -> None:
        """Forget the timer of a request, if it has one."""
        if self._running.pop(request, None) is not None:
            self._arm()

    def clear(self) -> None:
        """Forget all timers."""
        self._running.clear()
        self._heap.clear()
        self._arm()

    def order(self, request: RequestT) -> tuple[float, int]:
        """Return what sorts requests by the time at which they are due; first those that have no timer."""
        timer = self._running.get(request)
        return (-math.inf, 0) if timer is None else timer[:2]

    def _arm(self) -> None:
        """Have the clock call at the earliest timer, and only then."""
        if len(self._heap) > 2 * len(self._running) + _STOPPED_IN_HEAP:
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
