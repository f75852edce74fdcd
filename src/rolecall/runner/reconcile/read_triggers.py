"""Triggers of one kind that may form loops: reads and dependents, which runs for other objects change too.

The read sets decide which changes of something that runs have read are relevant. Then the object is reconciled if it
exists and is selected, if no run of its own made the change, and after a delay if objects trigger each other in a loop.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.store import Entry
from rolecall.runner.controller.work_queue import Backoff, Cause, WorkQueue
from rolecall.runner.reads.read_sets import ReadCause, ReadSets
from rolecall.runner.reads.read_watches import ReadWatches
from rolecall.runner.reconcile.context import ReconcileContext
from rolecall.runner.reconcile.kubernetes_events import NORMAL, EventSpec
from rolecall.runner.runs.own_writes import DependentCause, SelfTriggers
from rolecall.system.clock import Clock

DELAYED: Final = "ReconcileDelayed"
_RESPONSE_SECONDS = 0.5
"""The time in which the response to a write of a run arrives, if the event of the write has arrived."""

_MAX_NAMED: Final = 3
_BACKOFF: Final = Backoff(1.0, 300.0)
_QUIET_SECONDS: Final = 60.0
_SUSPECTED: Final = 5
"""How many runs in a minute may be caused by changes of dependents whose writer is unknown, and change something."""

CauseT = TypeVar("CauseT", bound=Cause)


@dataclass(slots=True)
class _Loop:
    """The runs of an object in a row that may belong to a loop, and when the last of them ended."""

    runs: int = 0
    ended: float = 0.0
    suspected: int = 0
    """The runs in a row whose dependents unknown clients changed, at most a minute after the first of them."""

    since: float = 0.0


@dataclass(slots=True)
class LoopBackoff:
    """The delays of the objects of one kind that trigger each other by their reads, or by a common dependent.

    Two roles that read each other's writes would run without end, and so would all objects that share something that
    each of them writes. Such a loop needs a write of a run: an object that was triggered only by changes that runs of
    this operator made, and whose run changed something, waits one second before such changes trigger it again, then
    twice as long each time, up to five minutes. The time counts from the end of the run: a later change triggers
    immediately. The writer of a dependent may also be another replica, or another operator. So runs that such changes
    cause count too, once there were five in a minute.

    A run that changes nothing ends this, and so does any other trigger, or a minute without one (or the wait, if that
    is longer). A minute, because the trigger of a loop takes as long as the runs of all objects in the loop.
    """

    clock: Clock
    _loops: dict[ObjectKey, _Loop] = field(default_factory=dict)

    def run_ended(self, key: ObjectKey, causes: Iterable[Cause], *, changed: bool) -> None:
        """Record the causes of a run, and whether it changed anything."""
        causes = tuple(causes)
        may_be_loop = all(isinstance(cause, DependentCause) or cause.may_be_in_loop for cause in causes)
        if not (changed and causes and may_be_loop):
            self.forget(key)
            return
        now = self.clock.monotonic()
        loop = self._loops.setdefault(key, _Loop(since=now))
        if not all(cause.may_be_in_loop for cause in causes):
            if loop.suspected < _SUSPECTED and now - loop.since > _QUIET_SECONDS:
                loop.suspected, loop.since = 0, now
            loop.suspected += 1
            if loop.suspected < _SUSPECTED:
                return
        loop.runs, loop.ended = loop.runs + 1, now

    def is_in_loop(self, key: ObjectKey) -> bool:
        """Return whether the last run of an object may belong to a loop."""
        return key in self._loops and self._loops[key].runs > 0

    def seconds(self, key: ObjectKey, cause: Cause) -> float:
        """Return the delay of an object after a change of a read or a dependent."""
        loop = self._loops.get(key, _Loop())
        is_suspected = isinstance(cause, DependentCause) and loop.suspected >= _SUSPECTED
        if not loop.runs or not (cause.may_be_in_loop or is_suspected):
            return 0.0
        wait = _BACKOFF.delay_seconds(loop.runs - 1)
        passed = self.clock.monotonic() - loop.ended
        if passed >= max(wait, _QUIET_SECONDS):
            self.forget(key)
        return max(0.0, wait - passed)

    def forget(self, key: ObjectKey) -> None:
        """Drop the state of an object that was deleted."""
        self._loops.pop(key, None)


@dataclass(slots=True)
class ReadTriggers:
    """Enqueues the objects of one kind in ``queue``.

    ``find`` returns the entry of an object in the informer's store, ``record`` writes an Event about an object.
    """

    watch: Watch
    find: Callable[[ObjectKey], Entry | None]
    queue: WorkQueue[ObjectKey]
    self_triggers: SelfTriggers
    record: Callable[[RawObject, EventSpec], None]
    watches: ReadWatches
    clock: Clock
    sets: ReadSets = field(init=False)
    """The read sets of the objects."""

    _backoff: LoopBackoff = field(init=False)

    def __post_init__(self) -> None:
        """Exclude kinds that other keys of the watch decide about."""
        others = {trigger.gvk for trigger in self.watch.triggers} | self.watch.blacklist
        ignored = frozenset((gvk.group, gvk.kind) for gvk in others)
        self.sets = ReadSets(self.watches, ignored, self.on_change)
        self._backoff = LoopBackoff(self.clock)

    def run_ended(self, context: ReconcileContext) -> None:
        """Take the read set of a run, and enqueue its object again if something has changed in the meantime."""
        key, outcome = context.key, context.outcome
        if outcome.is_known:
            # By now the responses to all writes are known, so the writer of a dependent's version is too.
            causes = (
                self._with_loop(key, each) if isinstance(each, DependentCause) else each for each in context.causes
            )
            self._backoff.run_ended(key, causes, changed=outcome.counts.changed > 0)
        for cause in self.sets.end(key, successful=outcome.is_successful):
            if not self.self_triggers.is_self_trigger(key, cause):
                self._enqueue(key, cause)

    def forget(self, key: ObjectKey) -> None:
        """Drop the state of an object that was deleted or is no longer selected."""
        self._backoff.forget(key)
        self.sets.forget(key)

    def on_change(self, key: ObjectKey, cause: Cause) -> None:
        """Enqueue an object after a change of something that it has read, or of a dependent."""
        if self.queue.is_processing(key):
            # The end of the run decides about it, when its own writes are known; a loop must not restart its backoff.
            self.queue.add(key, self._with_loop(key, cause))
        elif not self.self_triggers.is_self_trigger(key, cause):
            self._enqueue(key, cause)

    def postpone(self, key: ObjectKey, cause: Cause) -> bool:
        """Enqueue an object later if a change during its run belongs to a loop; return whether it does."""
        entry, cause = self.find(key), self._with_loop(key, cause)
        seconds = self._backoff.seconds(key, cause)
        if seconds <= 0 or entry is None:
            return False
        self._delay(key, entry, cause, seconds)
        return True

    def _enqueue(self, key: ObjectKey, cause: Cause, *, is_late: bool = False) -> None:
        """Make a request, after a delay if the object is triggered in a loop."""
        entry = self.find(key)
        if entry is None or not self.watch.selector.matches(entry.labels):
            return
        cause = self._with_loop(key, cause)
        if not (cause.may_be_in_loop or is_late) and self._backoff.is_in_loop(key):
            # The event of a write may arrive before its response, and until then its writer is unknown.
            later = self.clock.monotonic() + _RESPONSE_SECONDS
            self.clock.call_at(later, lambda: self._enqueue(key, cause, is_late=True))
            return
        self._delay(key, entry, cause, self._backoff.seconds(key, cause))

    def _delay(self, key: ObjectKey, entry: Entry, cause: Cause, seconds: float) -> None:
        """Make a request after some seconds, with an Event that names the object and the writers of the change."""
        if seconds > 0:
            writers = self.self_triggers.own_writes.writers(cause)
            names = ", ".join(f"{gvk.kind} {writer}" for gvk, writer in writers[:_MAX_NAMED])
            if isinstance(cause, ReadCause):
                changed = f"{cause.change.gvk.kind} {cause.change.name}".strip() if cause.change else "Something"
                by = f" and which a run for {names} has written" if names else ""
                what = f"{changed}, which was read{by},"
            else:
                by = f"a run for {names}" if names else "another client"
                what = f"{cause.text}, which {by} has changed,"
            wait = f"waits {math.ceil(seconds)} s, because its own runs change something each time"
            text = f"{what} triggers it again; {wait}"
            self.record(entry.tombstone(self.watch.gvk), EventSpec(NORMAL, DELAYED, text))
        self.queue.add_after(key, seconds, cause)

    def _with_loop(self, key: ObjectKey, cause: CauseT) -> CauseT:
        return replace(cause, may_be_in_loop=self.self_triggers.may_be_in_loop(key, cause))
