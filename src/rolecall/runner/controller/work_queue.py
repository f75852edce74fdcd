"""The work queue: the requests that wait for a reconcile, since when, and why.

A request waits at most once, is never handed out twice at the same time, and nothing that is added while it is
processed gets lost. A request becomes due at once, at a time, or after an exponential backoff. Each add names its
cause, which knows its priority, and at the end of a run its own writes can be told from changes by others. The queue
belongs to one event loop and needs no locks; the ``dispatcher`` takes requests from it.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rolecall.runner.controller.backoff import DEFAULT_BACKOFF, Backoff
from rolecall.runner.controller.observer import UNOBSERVED, QueueObserver
from rolecall.runner.controller.priorities import Priority, PriorityOrder
from rolecall.runner.controller.request_state import RequestState
from rolecall.runner.controller.timers import Timers
from rolecall.system.clock import Clock

RequestT = TypeVar("RequestT", bound=Hashable)

_MOST_HANDED_OUT = 8  # causes of one request, because people read them
_MOST_REMEMBERED = 4096  # causes that arrive while a request is processed: any of them may be the one that matters


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a reconcile was requested; uid and resource version name the version of an object behind it, if there is one.

    ``is_removal`` is set when that object is gone.
    """

    text: str
    uid: str = ""
    resource_version: str = ""
    is_removal: bool = False
    priority: Priority = field(default=Priority.MIDDLE, kw_only=True)


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
        elif len(dirty) < _MOST_REMEMBERED:
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
            if len(causes_so_far) < _MOST_HANDED_OUT and cause not in causes_so_far:
                causes_so_far.append(cause)


def _accept(_request: object) -> bool:
    """Accept every request."""
    return True


def _refuse(_request: object) -> bool:
    """Accept no request."""
    return False


def _ignore() -> None:
    """Do nothing: nobody waits for requests."""
