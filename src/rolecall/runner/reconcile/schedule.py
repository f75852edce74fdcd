"""When an object is reconciled again after a run that succeeded.

A requeue that the role requested comes first, then a deletion that waits for the run of its finalizer, then the
period: the object's annotation, its watch, or the flag.
"""

from rolecall.kube.durations import parse_non_negative_duration
from rolecall.kube.metadata import annotation_of, is_being_deleted
from rolecall.kube.references import RawObject
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.controller import Result
from rolecall.runner.controller.priorities import Priority
from rolecall.runner.controller.work_queue import Cause
from rolecall.runner.reconcile.context import ReconcileContext
from rolecall.runner.runs.events import RunSummary

PERIOD_ANNOTATION = "ansible.sdk.operatorframework.io/reconcile-period"
SHORTEST_PERIOD_SECONDS = 1.0
"""The shortest period that an object may ask for: a shorter one would occupy a worker all the time."""

FINALIZER_REQUEUE_SECONDS = 5.0
"""The delay when an object was deleted during its run, as in the Go runner."""

_REQUESTED = Cause("requeue_after", priority=Priority.HIGH)
_DELETED = Cause("deleted during its run", priority=Priority.HIGH)
_PERIOD = Cause("period", priority=Priority.LOW)


def period_seconds(obj: RawObject, watch: Watch, default_seconds: float) -> float:
    """Return the seconds from a success to the next run, 0 for none. Raises ValueError for an invalid annotation."""
    text = annotation_of(obj, PERIOD_ANNOTATION)
    if text is None:
        return watch.reconcile_period_seconds or default_seconds
    seconds = parse_non_negative_duration(text)
    return max(seconds, SHORTEST_PERIOD_SECONDS) if seconds else 0.0


def after_success(context: ReconcileContext, summary: RunSummary, *, has_finalizer: bool) -> Result:
    """Return when the next run is due; ``has_finalizer`` says whether the watch has one."""
    if context.requests_requeue:
        return Result(summary.requeue_after_seconds, summary.requeue_at, cause=_REQUESTED)
    if has_finalizer and not context.finalizing and is_being_deleted(context.fresh):
        return Result(FINALIZER_REQUEUE_SECONDS, cause=_DELETED)
    return Result(context.period_seconds or None, cause=_PERIOD)
