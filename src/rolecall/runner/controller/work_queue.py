"""The work queue: the requests that wait for a reconcile, since when, and why.

A request waits at most once, is never handed out twice at the same time, and nothing that is added while it is
processed gets lost. A request becomes due at once, at a time, or after an exponential backoff. Each add names its
cause, which knows its priority, and at the end of a run its own writes can be told from changes by others. The queue
belongs to one event loop and needs no locks; the ``dispatcher`` takes requests from it.

Timers for any number of requests, with one scheduled callback of the clock.

Ten thousand objects may wait for their next periodic reconcile. So a timer is a tuple in a heap, and only the earliest
one is scheduled with the clock. A request has at most one timer: the earliest time wins.

Where a request of a work queue stands, for people who look: what it waits for, since when or until when, and why.

Times are those of the queue's monotonic clock.

Observers of controllers and work queues, for whoever measures them.

This layer knows nothing about metrics. The methods of an observer must return at once and must not raise.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from rolecall.runner.config.settings import DEFAULT_BACKOFF, Backoff
from rolecall.runner.controller.priorities import Priority, PriorityOrder
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


@dataclass(frozen=True, slots=True)
class RequestState:
    """A request may have a timer (``due``) and be queued or processed at once; if all is empty, it waits for news."""

    is_processing: bool = False
    priority: Priority | None = None
    """The priority in which it is queued, None if it is not."""
    queued_since: float | None = None
    due: float | None = None
    causes: tuple[str, ...] = ()
    """Why it is queued, or else why it has a timer."""
    failures: int = 0
    """The failures in a row."""
    is_backing_off: bool = False


class QueueObserver(Protocol):
    """Observes the requests of a work queue."""

    def added(self, request: Hashable, priority: str) -> None:
        """Take note that a request became due."""

    def moved(self, request: Hashable, priority: str) -> None:
        """Take note that a request that is due has another priority now."""

    def taken(self, request: Hashable) -> None:
        """Take note that a worker took a request."""

    def dropped(self, request: Hashable) -> None:
        """Take note that a request that was due is dropped."""

    def finished(self, request: Hashable) -> None:
        """Take note that a worker is done with a request."""

    def retried(self, request: Hashable) -> None:
        """Take note that a request is retried after a failure."""


class ReconcileObserver(Protocol):
    """Observes reconciles."""

    def started(self, request: Hashable) -> None:
        """Take note that a reconcile has started."""

    def ended(self, request: Hashable, outcome: str) -> None:
        """Take note of how it ended: success, error, requeue, requeue_after or panic."""


class Unobserved:
    """Measures nothing."""

    def added(self, request: Hashable, priority: str) -> None:
        """Ignore it."""

    def moved(self, request: Hashable, priority: str) -> None:
        """Ignore it."""

    def taken(self, request: Hashable) -> None:
        """Ignore it."""

    def dropped(self, request: Hashable) -> None:
        """Ignore it."""

    def finished(self, request: Hashable) -> None:
        """Ignore it."""

    def retried(self, request: Hashable) -> None:
        """Ignore it."""

    def started(self, request: Hashable) -> None:
        """Ignore it."""

    def ended(self, request: Hashable, outcome: str) -> None:
        """Ignore it."""


UNOBSERVED = Unobserved()


_MAX_HANDED_OUT = 8  # causes of one request, because people read them
_MAX_REMEMBERED = 4096  # causes that arrive while a request is processed: any of them may be the one that matters


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a reconcile was requested; uid and resource version name the version of an object behind it, if there is one.

    ``is_removal`` is set when that object is gone.
    """

    text: str
    uid: str = ""
    resource_version: str = ""
    is_removal: bool = False
    priority: Priority = field(default=Priority.MEDIUM, kw_only=True)


_RETRIED = Cause("retry requested")
_TOO_MANY = {priority: Cause("more changes than are remembered", priority=priority) for priority in Priority}


class WorkQueue(Generic[RequestT]):
    """Requests that wait for a reconcile, de-duplicated, by priority and then in the order in which they became due.

    A request is *waiting* (a timer runs), *queued* (due, not yet taken) or *processing* (handed out by ``take``, not
    yet ``done``); it may be waiting and one of the others. It has the highest priority of its causes. A
    request that ``accepts`` refuses is dropped.
    """

    def __init__(
        self,
        clock: Clock,
        backoff: Backoff = DEFAULT_BACKOFF,
        observer: QueueObserver = UNOBSERVED,
        accepts: Callable[[RequestT], bool] | None = None,
    ) -> None:
        self._clock = clock
        self._backoff = backoff
        self._observer = observer
        self._order: PriorityOrder[RequestT] = PriorityOrder(clock)
        self._queued: dict[RequestT, list[Cause]] = {}
        self._processing: dict[RequestT, dict[Cause, None]] = {}
        self._timers: Timers[RequestT, Cause] = Timers(clock, self.add)
        self._failures: dict[RequestT, int] = {}
        self._backing_off: set[RequestT] = set()
        self._retry_soon: dict[RequestT, float] = {}
        self._on_due: Callable[[], None] = _ignore
        self._accepts = accepts or _accept

    def __len__(self) -> int:
        """Count the requests that are due and not yet taken."""
        return len(self._order)

    @property
    def waiting(self) -> int:
        """The number of requests that are not due yet."""
        return len(self._timers)

    @property
    def processing(self) -> int:
        """The number of requests that are handed out and not done."""
        return len(self._processing)

    @property
    def head(self) -> tuple[Priority, float] | None:
        """The highest priority that is due, and since when (monotonic) its first request has it; None without any."""
        return self._order.head

    def subscribe(self, on_due: Callable[[], None]) -> None:
        """Call ``on_due`` whenever another request becomes due."""
        self._on_due = on_due

    def failures(self, request: RequestT) -> int:
        """Count the failures in a row, since the last ``forget``, of a request."""
        return self._failures.get(request, 0)

    def is_processing(self, request: RequestT) -> bool:
        """Return whether a request is handed out and not done."""
        return request in self._processing

    def look_up(self, request: RequestT) -> RequestState:
        """Return where a request stands; nothing changes by it."""
        priority, timer = self._order.priority_of(request), self._timers.get(request)
        causes = self._queued.get(request) or ([timer[1]] if timer else ())
        return RequestState(
            is_processing=request in self._processing,
            priority=priority,
            queued_since=None if priority is None else self._order.since(request),
            due=timer[0] if timer else None,
            causes=tuple(cause.text for cause in causes),
            failures=self._failures.get(request, 0),
            is_backing_off=request in self._backing_off,
        )

    def add(self, request: RequestT, cause: Cause) -> None:
        """Make a request due now; one that is being processed becomes due again when it is ``done``."""
        if not self._accepts(request):
            return
        dirty = self._processing.get(request)
        if dirty is None:
            self._enqueue(request, (cause,))
        elif len(dirty) < _MAX_REMEMBERED:
            dirty[cause] = None
        else:
            dirty[_TOO_MANY[cause.priority]] = None

    def add_after(self, request: RequestT, seconds: float, cause: Cause) -> None:
        """Make a request due after ``seconds``, or now if that is not above 0. Of several times the earliest counts.

        Raises ValueError when ``seconds`` is not a finite number.
        """
        if not math.isfinite(seconds):
            raise ValueError(f"delay of request {request}: expected a finite number of seconds, got {seconds!r}")
        if seconds <= 0:
            self.add(request, cause)
        elif self._accepts(request):
            self._timers.start(request, seconds, cause)

    def add_at(self, request: RequestT, epoch_seconds: float, cause: Cause) -> None:
        """Make a request due at a time of the wall clock, in seconds since the epoch."""
        self.add_after(request, epoch_seconds - self._clock.now(), cause)

    def add_rate_limited(self, request: RequestT, cause: Cause) -> float:
        """Count a failure, make the request due after its backoff, and return that delay in seconds."""
        self._observer.retried(request)
        failures = self._failures.get(request, 0)
        self._failures[request] = failures + 1
        self._backing_off.add(request)
        delay = min(self._backoff.delay_seconds(failures), self._retry_soon.get(request, math.inf))
        self.add_after(request, delay, cause)
        return delay

    def forget(self, request: RequestT) -> None:
        """Reset the failures of a request: its next backoff starts at the minimum."""
        self._failures.pop(request, None)
        self._backing_off.discard(request)

    def retry_within(self, seconds: float, cause: Cause = _RETRIED) -> None:
        """Make every request that waits in backoff due within ``seconds``; its failures still count.

        A request that is being processed now is retried as soon if it fails, because it may have seen the old state.
        """
        self._retry_soon.update(dict.fromkeys(self._processing, seconds))
        for request in sorted(self._backing_off, key=self._timers.order):
            self._timers.start(request, seconds, cause)

    def lower(self, request: RequestT, priority: Priority) -> None:
        """Move a request that is due to the end of a lower priority: what made it urgent is over."""
        present = self._order.priority_of(request)
        if present is not None and present > priority:
            self._order.put(request, priority)
            self._observer.moved(request, priority.label)

    def take(self) -> tuple[RequestT, tuple[Cause, ...]]:
        """Take the due request that has the next turn, with its causes (at most eight).

        Its timer is cancelled: the reconcile decides anew when it is due next. Call ``done`` afterwards. Raises
        ValueError if no request is due.
        """
        request = self._order.take()
        causes = self._queued.pop(request)
        self._timers.stop(request)
        self._backing_off.discard(request)
        self._processing[request] = {}
        self._observer.taken(request)
        return request, tuple(causes)

    def done(self, request: RequestT, wakes: Callable[[Cause], bool] | None = None) -> None:
        """End the processing of a request.

        If it was added meanwhile it is due again, provided that ``wakes`` accepts at least one of those causes. Only
        causes that are accepted count for its priority.
        """
        dirty = self._processing.pop(request)
        self._observer.finished(request)
        self._retry_soon.pop(request, None)
        kept = [cause for cause in dirty if cause in _TOO_MANY.values() or wakes is None or wakes(cause)]
        if kept and self._accepts(request):
            self._enqueue(request, kept)

    def discard(self, belongs: Callable[[RequestT], bool]) -> None:
        """Drop the requests that a function names, and their failures; what is being processed goes on."""
        for request in [each for each in self._queued if belongs(each)]:
            del self._queued[request]
            self._order.remove(request)
            self._observer.dropped(request)
        for request in [each for each in self._timers if belongs(each)]:
            self._timers.stop(request)
        for request in [each for each in self._failures if belongs(each)]:
            self.forget(request)

    def shut_down(self) -> None:
        """Stop handing out and accepting requests, and drop those that wait."""
        self._accepts = _refuse
        self._timers.clear()
        self._order.clear()
        self._queued.clear()

    def _enqueue(self, request: RequestT, causes: Sequence[Cause]) -> None:
        priority = max(cause.priority for cause in causes)
        present = self._order.priority_of(request)
        if present is None:
            self._queued[request] = []
            self._order.put(request, priority)
            self._observer.added(request, priority.label)
            self._on_due()
        elif priority > present:
            self._order.put(request, priority)
            self._observer.moved(request, priority.label)
        causes_so_far = self._queued[request]
        for cause in causes:
            if len(causes_so_far) < _MAX_HANDED_OUT and cause not in causes_so_far:
                causes_so_far.append(cause)


def _accept(_request: object) -> bool:
    """Accept every request."""
    return True


def _refuse(_request: object) -> bool:
    """Accept no request."""
    return False


def _ignore() -> None:
    """Do nothing: nobody waits for requests."""
