"""The work queue: the requests that wait for a reconcile, since when, and why.

A request waits at most once, is never handed out twice at the same time, and nothing that is added while it is
processed gets lost. A request becomes due immediately, at a time, or after an exponential backoff. Each add names its
cause, whose priority it has; at the end of a run the causes show whether others made the changes or the run itself.
The queue belongs to one event loop and needs no locks; the ``Dispatcher`` takes requests from it.

New and changed objects go before retries, and retries before periodic reconciles. Within a priority the order is first
in, first out. A lower priority gets at least one turn in ten, so that none starves.
"""

import heapq
import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from rolecall.system.clock import Clock, Handle
from rolecall.system.logs import printable

if TYPE_CHECKING:  # for annotations: tools that need only causes don't import the metrics
    from rolecall.runner.serving.metrics import ControllerMetrics

ItemT = TypeVar("ItemT", bound=Hashable)

SHORTEST_PERIOD_SECONDS = 1.0
"""The shortest time between two runs that an object or its role may request: a shorter one would occupy a worker."""

MAX_CAUSE_LENGTH = 512
_MAX_COUNT_LENGTH = 40
_MAX_PASSED_OVER = 8  # two priorities may be owed a turn at the same time, and even the second gets one in ten
_MAX_STOPPED_TIMERS = 64  # the heap is rebuilt when it has this many more stopped timers than running ones
_MAX_HANDED_OUT = 8  # causes of one request, because people read them
_MAX_REMEMBERED = 4096  # causes that arrive while a request is processed: any of them may be the one that matters

_MAX_DOUBLINGS = 63
"""Enough for any sensible maximum; the bound keeps the floats finite."""


class Priority(IntEnum):
    """How urgent a request is; the highest number goes first."""

    LOW = 0
    """Periodic reconciles, runs that prune requests, and objects of the initial reconcile that haven't changed."""
    MEDIUM = 1
    """Changes of other objects, and retries."""
    HIGH = 2
    """Changes of the primary itself, and the time that its role requested."""

    @property
    def label(self) -> str:
        """The label value in metrics."""
        return self.name.lower()


class FairScheduler:
    """Chooses the priority of the next turn: the highest that waits, or one that was passed over too often."""

    def __init__(self) -> None:
        self._passed_over = dict.fromkeys(Priority, 0)

    def next(self, waiting: Collection[Priority]) -> Priority:
        """Return the priority of the next turn, given those that wait. Raises ValueError if none waits."""
        owed = [priority for priority in waiting if self._passed_over[priority] >= _MAX_PASSED_OVER]
        chosen = max(owed, key=lambda priority: (self._passed_over[priority], priority)) if owed else max(waiting)
        for priority in waiting:
            self._passed_over[priority] += 1
        self._passed_over[chosen] = 0
        return chosen


class PriorityOrder(Generic[ItemT]):
    """Items in the order of their priorities, each item once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines: dict[Priority, OrderedDict[ItemT, float]] = {
            priority: OrderedDict() for priority in sorted(Priority, reverse=True)
        }
        self._scheduler = FairScheduler()

    def __len__(self) -> int:
        """Return the number of items."""
        return sum(map(len, self._lines.values()))

    def __iter__(self) -> Iterator[ItemT]:
        """Iterate over the items, the highest priority first."""
        for line in self._lines.values():
            yield from line

    @property
    def head(self) -> tuple[Priority, float] | None:
        """The highest priority that waits, and since when its first item has waited in it; None without items."""
        return next(((priority, next(iter(line.values()))) for priority, line in self._lines.items() if line), None)

    def find(self, item: ItemT) -> tuple[Priority, float] | None:
        """Return the priority in which an item waits, and since when (monotonic); None if it doesn't wait."""
        return next(((priority, line[item]) for priority, line in self._lines.items() if item in line), None)

    def put(self, item: ItemT, priority: Priority) -> None:
        """Put an item at the end of a priority, also if it waits in another."""
        self.remove(item)
        self._lines[priority][item] = self._clock.monotonic()

    def remove(self, item: ItemT) -> None:
        """Remove an item, if it waits."""
        for line in self._lines.values():
            line.pop(item, None)

    def count(self, priority: Priority) -> int:
        """Count the items of a priority; safe in any thread."""
        return len(self._lines[priority])

    def take(self) -> tuple[ItemT, Priority]:
        """Remove and return the next item, and its priority. Raises ValueError without items."""
        priority = self._scheduler.next([priority for priority, line in self._lines.items() if line])
        return self._lines[priority].popitem(last=False)[0], priority


RequestT = TypeVar("RequestT", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that double from the minimum to the maximum, in seconds."""

    minimum_seconds: float
    maximum_seconds: float

    def delay_seconds(self, failures: int) -> float:
        """Return the delay after ``failures`` earlier failures."""
        return min(self.minimum_seconds * 2.0 ** min(failures, _MAX_DOUBLINGS), self.maximum_seconds)


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a reconcile was requested; uid and resource version identify the version of an object behind it, if any.

    ``is_removal`` is set when that object was deleted. The text becomes one line of at most ``MAX_CAUSE_LENGTH``
    characters, because authors of objects choose names, and people read it in the log, the dashboard, and Events.
    """

    text: str
    uid: str = ""
    resource_version: str = ""
    is_removal: bool = False
    priority: Priority = field(default=Priority.MEDIUM, kw_only=True)
    may_be_in_loop: bool = field(default=False, kw_only=True)
    """Whether a run of this operator may have made the change, so that runs may trigger each other without end."""

    def __post_init__(self) -> None:
        """Shorten the text."""
        if len(self.text) <= MAX_CAUSE_LENGTH and self.text.isprintable():
            return
        line = " ".join(printable(self.text).split())
        if len(line) > MAX_CAUSE_LENGTH:
            kept = MAX_CAUSE_LENGTH - _MAX_COUNT_LENGTH
            line = f"{line[:kept]}… ({len(line) - kept} more characters)"
        object.__setattr__(self, "text", line)


_TOO_MANY = {priority: Cause("more changes than are remembered", priority=priority) for priority in Priority}
_Timer = tuple[float, int, RequestT, Cause]  # due (monotonic), tie-breaking number, request, cause


class Timers(Generic[RequestT]):
    """Calls ``on_due`` with each request and its cause when the request becomes due, in the order of their times.

    Ten thousand objects may wait for their next periodic reconcile. So a timer is a tuple in a heap, and only the
    earliest one is scheduled with the clock. A request has at most one timer: the earliest time wins.
    """

    def __init__(self, clock: Clock, on_due: Callable[[RequestT, Cause], None]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._running: dict[RequestT, _Timer[RequestT]] = {}
        self._heap: list[_Timer[RequestT]] = []
        self._numbers = itertools.count()
        self._armed: tuple[float, Handle] | None = None

    def __len__(self) -> int:
        """Return the number of requests that are not due yet."""
        return len(self._running)

    def __iter__(self) -> Iterator[RequestT]:
        """Iterate over the requests that are not due yet."""
        return iter(self._running)

    def start(self, request: RequestT, seconds: float, cause: Cause) -> None:
        """Make a request due after ``seconds``, unless it is due earlier."""
        due = self._clock.monotonic() + seconds
        running = self._running.get(request)
        if running is None or running[0] > due:
            timer = self._running[request] = (due, next(self._numbers), request, cause)
            heapq.heappush(self._heap, timer)
            self._arm()

    def stop(self, request: RequestT) -> None:
        """Stop the timer of a request, if it has one."""
        if self._running.pop(request, None) is not None:
            self._arm()

    def get(self, request: RequestT) -> tuple[float, Cause] | None:
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
    """The state of a request, for display; ``due`` is monotonic.

    It may have a timer (``due``) and also be queued. If all fields are empty, it is processed or waits for a change.
    """

    priority: Priority | None = None
    """The priority in which it is queued, None if it isn't."""
    due: float | None = None
    causes: tuple[str, ...] = ()
    """Why it is queued, or else why it has a timer."""
    failures: int = 0
    """The failures in a row."""
    is_backing_off: bool = False


class WorkQueue(Generic[RequestT]):
    """Requests that wait for a reconcile, de-duplicated, by priority and then in the order in which they became due.

    A request is *waiting* (a timer runs), *queued* (due, not yet taken) or *processing* (handed out by ``take``, not
    yet ``done``); it may be waiting and one of the others. It has the highest priority of its causes. Requests that
    ``accepts`` rejects are dropped. ``metrics`` counts the requests.
    """

    def __init__(
        self,
        clock: Clock,
        backoff: Backoff,
        metrics: "ControllerMetrics",
        accepts: Callable[[RequestT], bool] | None = None,
    ) -> None:
        self._clock = clock
        self._backoff = backoff
        self.metrics = metrics
        self._accepts = accepts or (lambda _request: True)
        self.on_due: Callable[[], None] = lambda: None
        """Called whenever another request becomes due."""
        self._order: PriorityOrder[RequestT] = PriorityOrder(clock)
        self._queued: dict[RequestT, list[Cause]] = {}
        self._processing: dict[RequestT, dict[Cause, None]] = {}
        self._timers: Timers[RequestT] = Timers(clock, self.add)
        self._failures: dict[RequestT, int] = {}
        self._backing_off: set[RequestT] = set()
        self._retry_soon: dict[RequestT, float] = {}
        for priority in Priority:
            metrics.set_depth(priority.label, partial(self._order.count, priority))

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

    def failures(self, request: RequestT) -> int:
        """Count the failures of a request in a row, since the last ``forget``."""
        return self._failures.get(request, 0)

    def is_processing(self, request: RequestT) -> bool:
        """Return whether a request is handed out and not done."""
        return request in self._processing

    def look_up(self, request: RequestT) -> RequestState:
        """Return the state of a request."""
        queued, timer = self._order.find(request), self._timers.get(request)
        causes = self._queued.get(request) or ([timer[1]] if timer else ())
        return RequestState(
            priority=queued[0] if queued else None,
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
        else:
            dirty[cause if len(dirty) < _MAX_REMEMBERED else _TOO_MANY[cause.priority]] = None

    def add_after(self, request: RequestT, seconds: float, cause: Cause) -> None:
        """Make a request due after ``seconds``, or now if that is not above 0. Of several times the earliest counts."""
        if seconds <= 0:
            self.add(request, cause)
        elif self._accepts(request):
            self._timers.start(request, seconds, cause)

    def add_at(self, request: RequestT, epoch_seconds: float, cause: Cause) -> None:
        """Make a request due at a time of the wall clock, in seconds since the epoch, but in a second at the earliest.

        Otherwise, a role that requests a time in the past would occupy a worker continuously.
        """
        self.add_after(request, max(SHORTEST_PERIOD_SECONDS, epoch_seconds - self._clock.now()), cause)

    def add_rate_limited(self, request: RequestT, cause: Cause) -> float:
        """Count a failure, make the request due after its backoff, and return that delay in seconds."""
        self.metrics.retried(request)
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

    def retry_within(self, seconds: float, cause: Cause) -> None:
        """Make every request that waits in backoff due within ``seconds``; its failures still count.

        A request that is being processed now is retried as soon if it fails, because it may have seen the old state.
        """
        self._retry_soon.update(dict.fromkeys(self._processing, seconds))
        for request in sorted(self._backing_off, key=self._timers.order):
            self._timers.start(request, seconds, cause)

    def lower(self, request: RequestT, priority: Priority) -> None:
        """Move a due request to the end of a lower priority, because it is no longer urgent."""
        queued = self._order.find(request)
        if queued is not None and queued[0] > priority:
            self._order.put(request, priority)

    def take(self) -> tuple[RequestT, tuple[Cause, ...]]:
        """Take the due request that is next, with its causes (at most eight).

        Its timer is cancelled: the reconcile decides again when it is due next. Call ``done`` afterwards. Raises
        ValueError if no request is due.
        """
        request, priority = self._order.take()
        causes = self._queued.pop(request)
        self._timers.stop(request)
        self._backing_off.discard(request)
        self._processing[request] = {}
        self.metrics.taken(request, priority.label)
        return request, tuple(causes)

    def done(self, request: RequestT, counts: Callable[[Cause], bool] | None = None) -> None:
        """End the processing of a request.

        If it was added in the meantime, it is due again, provided that ``counts`` accepts at least one of those causes.
        Only accepted causes determine its priority.
        """
        dirty = self._processing.pop(request)
        self._retry_soon.pop(request, None)
        kept = [cause for cause in dirty if cause in _TOO_MANY.values() or counts is None or counts(cause)]
        if kept and self._accepts(request):
            self._enqueue(request, kept)

    def is_due_again(self, request: RequestT, counts: Callable[[Cause], bool]) -> bool:
        """Return whether a request that is being processed was added in the meantime, with a cause that counts."""
        return any(map(counts, self._processing.get(request, ())))

    def discard(self, belongs: Callable[[RequestT], bool]) -> None:
        """Drop the requests that a function selects, and their failures; those being processed continue."""
        for request in filter(belongs, list(dict.fromkeys((*self._queued, *self._timers, *self._failures)))):
            self._drop(request)
        self.metrics.forget(belongs)

    def discard_one(self, request: RequestT) -> None:
        """Drop one request like ``discard``, without a search."""
        self._drop(request)
        self.metrics.forget(lambda each: each == request)

    def _drop(self, request: RequestT) -> None:
        if self._queued.pop(request, None) is not None:
            self._order.remove(request)
            self.metrics.dropped(request)
        self._timers.stop(request)
        self.forget(request)

    def _enqueue(self, request: RequestT, causes: Sequence[Cause]) -> None:
        priority = max(cause.priority for cause in causes)
        queued = self._order.find(request)
        if queued is None:
            self._queued[request] = []
            self._order.put(request, priority)
            self.metrics.added(request)
            self.on_due()
        elif priority > queued[0]:
            self._order.put(request, priority)
        causes_so_far = self._queued[request]
        for cause in causes:
            if len(causes_so_far) < _MAX_HANDED_OUT and cause not in causes_so_far:
                causes_so_far.append(cause)
