"""What people hear of reconciles in Kubernetes Events: failures, recoveries, and runs that changed something.

A failure and a change say what started the run, so that a loop of two controllers shows who wakes whom. A run that
found everything in order says nothing: an idle cluster has no Events. The log tells of every run.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from rolecall.kube.references import ObjectKey, RawObject
from rolecall.reconcile.conditions import FAILURE, condition_of
from rolecall.reconcile.context import ReconcileContext
from rolecall.reconcile.event_recorder import NORMAL, WARNING, EventSpec
from rolecall.runs.events import RunSummary


@dataclass(slots=True)
class EventReporter:
    """Tells ``record`` what came of the reconciles of one kind."""

    record: Callable[[RawObject, EventSpec], None]
    _failing: set[ObjectKey] = field(default_factory=set)

    def failed(self, context: ReconcileContext, message: str) -> None:
        """Report a failure; one that is due to the operator's stop is the object's no trouble."""
        if not context.is_stopping:
            self._failing.add(context.key)
            self.record(context.obj, EventSpec(WARNING, "ReconcileFailed", message + _started_by(context)))

    def succeeded(self, context: ReconcileContext, summary: RunSummary) -> None:
        """Report a success that is one again, or that changed something."""
        failure = condition_of(context.status, FAILURE) or {}
        if context.key in self._failing or failure.get("status") == "True":
            self._failing.discard(context.key)
            self.record(context.obj, EventSpec(NORMAL, "ReconcileRecovered", "Reconciled after a failure"))
        if changed := summary.counts.changed:
            tasks = f"{changed} task{'s' if changed > 1 else ''} changed something"
            self.record(context.obj, EventSpec(NORMAL, "Reconciled", tasks + _started_by(context)))

    def forget(self, key: ObjectKey) -> None:
        """Drop what is known of an object that is gone."""
        self._failing.discard(key)


def _started_by(context: ReconcileContext) -> str:
    """Return which changes of objects led to the run; nothing for what time brought, so that retries are equal."""
    told = [cause.text for cause in context.causes if cause.resource_version]
    return f"; started by {', '.join(told)}" if told else ""
