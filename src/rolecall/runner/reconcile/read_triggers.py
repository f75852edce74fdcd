"""Reads as triggers of one kind: enqueues its objects when something changes that their runs have read.

The read sets decide which changes are relevant. Then the object is reconciled if it exists and is selected, if no run
of its own made the change, and after a delay if objects trigger each other in a loop.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.store import Entry
from rolecall.runner.controller.work_queue import WorkQueue
from rolecall.runner.reads.read_sets import ReadBackoff, ReadCause, ReadSets
from rolecall.runner.reads.read_watches import ReadWatches
from rolecall.runner.reconcile.context import ReconcileContext
from rolecall.runner.reconcile.kubernetes_events import NORMAL, EventSpec
from rolecall.runner.runs.own_writes import SelfTriggers
from rolecall.system.clock import Clock

DELAYED: Final = "ReconcileDelayed"
_RESPONSE_SECONDS = 0.5
"""The time in which the response to a write of a run arrives, if the event of the write has arrived."""

_MAX_NAMED: Final = 3


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

    _backoff: ReadBackoff = field(init=False)

    def __post_init__(self) -> None:
        """Exclude kinds that other keys of the watch decide about."""
        others = {trigger.gvk for trigger in self.watch.triggers} | self.watch.blacklist
        ignored = frozenset((gvk.group, gvk.kind) for gvk in others)
        self.sets = ReadSets(self.watches, ignored, self._on_change)
        self._backoff = ReadBackoff(self.clock)

    def run_ended(self, context: ReconcileContext) -> None:
        """Take the read set of a run, and enqueue its object again if something has changed in the meantime."""
        key, outcome = context.key, context.outcome
        if outcome.is_known:
            self._backoff.run_ended(key, context.causes, changed=outcome.counts.changed > 0)
        for cause in self.sets.end(key, successful=outcome.is_successful):
            if not self.self_triggers.is_self_trigger(key, cause):
                self._enqueue(key, cause)

    def forget(self, key: ObjectKey) -> None:
        """Drop the state of an object that was deleted or is no longer selected."""
        self._backoff.forget(key)
        self.sets.forget(key)

    def _on_change(self, key: ObjectKey, cause: ReadCause) -> None:
        if self.queue.is_processing(key):
            # The end of the run decides about it, when its own writes are known; a loop must not restart its backoff.
            self.queue.add(key, self._with_loop(key, cause))
        elif not self.self_triggers.is_self_trigger(key, cause):
            self._enqueue(key, cause)

    def _enqueue(self, key: ObjectKey, cause: ReadCause, *, is_late: bool = False) -> None:
        """Make a request, after a delay if reads trigger the object repeatedly."""
        entry = self.find(key)
        if entry is None or not self.watch.selector.matches(entry.labels):
            return
        cause = self._with_loop(key, cause)
        if not (cause.may_be_in_loop or is_late) and self._backoff.is_in_loop(key):
            # The event of a write may arrive before its response, and until then its writer is unknown.
            later = self.clock.monotonic() + _RESPONSE_SECONDS
            self.clock.call_at(later, lambda: self._enqueue(key, cause, is_late=True))
            return
        seconds = self._backoff.seconds(key) if cause.may_be_in_loop else 0.0
        if seconds > 0:
            writers = self.self_triggers.own_writes.writers(cause.uid, cause.resource_version)
            names = ", ".join(f"{gvk.kind} {writer}" for gvk, writer in writers[:_MAX_NAMED])
            by = f" and which a run for {names} has written" if names else ""
            changed = f"{cause.change.gvk.kind} {cause.change.name}".strip() if cause.change else "Something"
            wait = f"waits {math.ceil(seconds)} s, because its own runs change something each time"
            text = f"{changed}, which was read{by}, triggers it again; {wait}"
            self.record(entry.tombstone(self.watch.gvk), EventSpec(NORMAL, DELAYED, text))
        self.queue.add_after(key, seconds, cause)

    def _with_loop(self, key: ObjectKey, cause: ReadCause) -> ReadCause:
        return replace(cause, may_be_in_loop=self.self_triggers.may_be_in_loop(key, cause))
