"""Which reconciles become Kubernetes Events: failures, recoveries, and runs that changed something.

The Events of a failure and of a change say what started the run, so that in a loop of two controllers you see who
wakes whom. A run that found everything in order causes no Event, so an idle cluster has none. The log has every run.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from rolecall.kube.metadata import uid_of
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.reconcile.conditions import FAILURE, condition_of
from rolecall.runner.reconcile.context import ReconcileContext
from rolecall.runner.reconcile.event_recorder import NORMAL, WARNING, EventSpec
from rolecall.runner.runs.events import RunSummary


@dataclass(slots=True)
class EventReporter:
    """Reports the reconciles of one kind as Events to ``record``."""

    record: Callable[[RawObject, EventSpec], None]
    _failing: dict[ObjectKey, str] = field(default_factory=dict)
    """The objects whose last run failed, with their uid."""

    def failed(self, context: ReconcileContext, message: str) -> None:
        """Report a failure."""
        self._failing[context.key] = uid_of(context.obj)
        self.record(context.obj, EventSpec(WARNING, "ReconcileFailed", message + _started_by(context)))

    def succeeded(self, context: ReconcileContext, summary: RunSummary) -> None:
        """Report a success after a failure, and a success that changed something."""
        failure = condition_of(context.status, FAILURE) or {}
        had_failed = self._failing.pop(context.key, None) == uid_of(context.obj)
        if had_failed or failure.get("status") == "True":
            self.record(context.obj, EventSpec(NORMAL, "ReconcileRecovered", "Reconciled after a failure"))
        if changed := summary.counts.changed:
            tasks = f"{changed} task{'s' if changed > 1 else ''} changed something"
            self.record(context.obj, EventSpec(NORMAL, "Reconciled", tasks + _started_by(context)))

    def forget(self, key: ObjectKey) -> None:
        """Drop what is known about an object that is gone."""
        self._failing.pop(key, None)


def _started_by(context: ReconcileContext) -> str:
    """Return which changes of objects started the run; empty for timers and retries, so that their Events are equal."""
    told = [cause.text for cause in context.causes if cause.resource_version]
    return f"; started by {', '.join(told)}" if told else ""
