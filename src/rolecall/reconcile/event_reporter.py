"""What people hear of reconciles in Kubernetes Events: failures, recoveries, and runs that changed something.

A failure and a change say what started the run, so that a loop of two controllers shows who wakes whom. A run that
found everything in order says nothing: an idle cluster has no Events. The log tells of every run. Neighbours:
``reconciler`` reports, ``event_recorder`` writes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from rolecall.kube.references import ObjectKey, RawObject
from rolecall.reconcile.context import Attempt
from rolecall.reconcile.event_recorder import NORMAL, WARNING, Happening
from rolecall.reconcile.status import FAILURE, condition_of
from rolecall.runs.events import RunSummary


def _nobody(_obj: RawObject, _happening: Happening) -> None:
    """Stand for somebody who writes Events."""


@dataclass(slots=True)
class Reporter:
    """Tells ``record`` what came of the reconciles of one kind."""

    record: Callable[[RawObject, Happening], None] = _nobody
    _failing: set[ObjectKey] = field(default_factory=set)

    def failed(self, attempt: Attempt, message: str) -> None:
        """Report a failure; one that is due to the operator's stop is the object's no trouble."""
        if not attempt.is_stopping:
            self._failing.add(attempt.key)
            self.record(attempt.obj, Happening(WARNING, "ReconcileFailed", message + _started_by(attempt)))

    def succeeded(self, attempt: Attempt, summary: RunSummary) -> None:
        """Report a success that is one again, or that changed something."""
        failure = condition_of(attempt.status, FAILURE) or {}
        if attempt.key in self._failing or failure.get("status") == "True":
            self._failing.discard(attempt.key)
            self.record(attempt.obj, Happening(NORMAL, "ReconcileRecovered", "Reconciled after a failure"))
        if changed := summary.counts.changed:
            tasks = f"{changed} task{'s' if changed > 1 else ''} changed something"
            self.record(attempt.obj, Happening(NORMAL, "Reconciled", tasks + _started_by(attempt)))

    def forget(self, key: ObjectKey) -> None:
        """Drop what is known of an object that is gone."""
        self._failing.discard(key)


def _started_by(attempt: Attempt) -> str:
    """Return which changes of objects led to the run; nothing for what time brought, so that retries are equal."""
    told = [cause.text for cause in attempt.causes if cause.resource_version]
    return f"; started by {', '.join(told)}" if told else ""
