"""Reads as triggers of one kind: what wakes its objects because their runs have read it.

The read sets say which changes are news. This is what follows: the object is reconciled if it exists and is selected,
if no run of its own made the change, and after a delay if objects wake each other without end.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.kube.selectors import LabelSelector
from rolecall.runner.controller.store import Entry
from rolecall.runner.controller.work_queue import WorkQueue
from rolecall.runner.reads.observed_state import Target
from rolecall.runner.reads.read_sets import ReadBackoff, ReadCause, ReadRules, ReadSets
from rolecall.runner.reads.read_watches import ReadWatches
from rolecall.runner.reconcile.context import ReconcileContext
from rolecall.runner.reconcile.kubernetes_events import NORMAL, EventSpec
from rolecall.runner.reconcile.own_writes import SelfTriggers

DELAYED: Final = "ReconcileDelayed"
_MOST_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class SelectedPrimaries:
    """The objects of the kind: which of them exist, and which are selected."""

    gvk: GVK
    find: Callable[[ObjectKey], Entry | None]
    selector: LabelSelector


class ReadTriggers:
    """Wakes the objects of one kind, by requests in ``queue``; ``record`` writes an Event about an object."""

    def __init__(
        self,
        primaries: SelectedPrimaries,
        queue: WorkQueue[ObjectKey],
        self_triggers: SelfTriggers,
        record: Callable[[RawObject, EventSpec], None],
        delays: ReadBackoff,
    ) -> None:
        self._primaries = primaries
        self._queue = queue
        self._self_triggers = self_triggers
        self._record = record
        self._delays = delays
        self._sets: ReadSets | None = None

    def read_sets(self, watches: ReadWatches, rules: ReadRules) -> ReadSets:
        """Return the read sets of the objects, which are woken from here."""
        self._sets = ReadSets(watches, rules, self._wake)
        return self._sets

    def run_ended(self, context: ReconcileContext) -> None:
        """Take the read set of a run, and wake its object again if something has changed meanwhile."""
        key, summary = context.key, context.summary
        if self._sets is None:
            return
        if summary is not None:
            self._delays.run_ended(key, context.causes, changed=summary.counts.changed > 0)
        for cause in self._sets.end(key, successful=summary is not None and summary.is_successful):
            if not self._self_triggers.is_self_trigger(key, cause):
                self._add(key, cause)

    def is_old(self, key: ObjectKey, cause: ReadCause) -> bool:
        """Return whether a change that came in during a run is no news after it."""
        return self._sets is not None and not self._sets.counts(key, cause)

    def targets(self, key: ObjectKey) -> tuple[Target, ...]:
        """Return what wakes an object because its runs have read it."""
        return self._sets.targets(key) if self._sets is not None else ()

    def forget(self, key: ObjectKey) -> None:
        """Drop what is known about an object that is gone or no longer selected."""
        self._delays.forget(key)
        if self._sets is not None:
            self._sets.forget(key)

    def _wake(self, key: ObjectKey, cause: ReadCause) -> None:
        if self._queue.is_processing(key):
            # The end of the run decides about it, when its own writes are known; a loop must not restart its delays.
            self._queue.add(key, self._with_loop(key, cause))
        elif not self._self_triggers.is_self_trigger(key, cause):
            self._add(key, cause)

    def _add(self, key: ObjectKey, cause: ReadCause) -> None:
        """Make a request, after a delay if the object is woken by reads again and again."""
        entry = self._primaries.find(key)
        if entry is None or not self._primaries.selector.matches(entry.labels):
            return
        cause = self._with_loop(key, cause)
        seconds = self._delays.seconds(key) if cause.may_be_in_loop else 0.0
        if seconds > 0:
            self._tell(entry, cause, seconds)
        self._queue.add_after(key, seconds, cause)

    def _with_loop(self, key: ObjectKey, cause: ReadCause) -> ReadCause:
        return replace(cause, may_be_in_loop=self._self_triggers.may_be_in_loop(key, cause))

    def _tell(self, entry: Entry, cause: ReadCause, seconds: float) -> None:
        writers = self._self_triggers.own_writes.writers(cause.uid, cause.resource_version)
        names = ", ".join(f"{gvk.kind} {key}" for gvk, key in writers[:_MOST_NAMED])
        by = f" and which a run for {names} has written" if names else ""
        what = f"{cause.change.gvk.kind} {cause.change.name}".strip() if cause.change else "Something"
        wait = f"waits {math.ceil(seconds)} s, because its own runs change something each time"
        text = f"{what}, which was read{by}, wakes it again; {wait}"
        self._record(entry.tombstone(self._primaries.gvk), EventSpec(NORMAL, DELAYED, text))
