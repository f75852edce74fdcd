"""The conditions by which tools tell whether an object is finished: ``Ready``, ``Reconciling`` and ``Stalled``.

They follow the rules of kstatus and the API conventions, and are set on top of the Go runner's conditions, in the same
write. They change only with the outcome of a run, and when a run begins for a generation that no run has judged yet: a
run of an unchanged generation leaves them as they are, and so does a run that the operator interrupts. All three share
one reason, and name the generation.

A condition of these types with another reason is the role's own. It stays, unless a run has failed and it says
otherwise. Everything is computed from the old status, so an operator that restarts goes on where it was.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from rolecall.runner.config.watches import Watch
from rolecall.runner.reconcile.conditions import FAILURE, ConditionList, Stamp, Status, condition_of, parse_time
from rolecall.runner.reconcile.pause import PAUSED_ANNOTATION
from rolecall.runner.reconcile.status import ReconcileOutcome
from rolecall.runner.runs.events import cut

READY, RECONCILING, STALLED = "Ready", "Reconciling", "Stalled"
RUN_IN_PROGRESS, RUN_SUCCEEDED, RUN_FAILED = "RunInProgress", "RunSucceeded", "RunFailed"
RUN_REQUEUED, RUNS_PAUSED, NOT_READY_YET = "RunRequeued", "RunsPaused", "NotReadyYet"

STALLED_AFTER = timedelta(seconds=30)
"""Five retries with the default backoff: what a run waits for has often come by then."""

_TYPES = (READY, RECONCILING, STALLED)
_REASONS = frozenset({RUN_IN_PROGRESS, RUN_SUCCEEDED, RUN_FAILED, RUN_REQUEUED, RUNS_PAUSED, NOT_READY_YET})
_SUCCESS = "The last run succeeded"
_REQUEUE = "The last run succeeded and asked for another one"
_PAUSE = f'Nothing runs as long as the annotation {PAUSED_ANNOTATION} is "true"'
_RETRY = "The last run failed and is tried again: "


@dataclass(frozen=True, slots=True)
class Readiness:
    """Adds the conditions to each status of one kind; if they are off, removes those that an operator has left.

    ``stalled_after`` is how long runs must have failed before an object counts as stalled. Every method takes the
    status of the object before, and the new one to which the conditions are added.
    """

    is_on: bool
    stalled_after: timedelta = STALLED_AFTER

    @classmethod
    def of_watch(cls, watch: Watch, *, default: bool) -> "Readiness":
        """Return what a watch asks for; ``default`` is whether the conditions are on if it says nothing."""
        is_on = default if watch.ready_conditions is None else watch.ready_conditions
        seconds = watch.stalled_after_seconds
        return cls(is_on, STALLED_AFTER if seconds is None else timedelta(seconds=seconds))

    def while_running(self, old: Status, new: Status, stamp: Stamp) -> Status:
        """Return the status during a run."""
        if not self.is_on:
            return without_ours(new)
        return new if _is_judged(old, stamp) else _unjudged(new, stamp, RUN_IN_PROGRESS, "The run is in progress")

    def while_paused(self, old: Status, new: Status, stamp: Stamp) -> Status:
        """Return the status of a paused object; an edit in the meantime shows in its generation."""
        if not self.is_on:
            return without_ours(new)
        is_known = condition_of(old, READY) is not None or old.get("observedGeneration") == stamp.generation
        return new if is_known else _unjudged(new, stamp, RUNS_PAUSED, _PAUSE)

    def after_run(self, old: Status, new: Status, outcome: ReconcileOutcome, stamp: Stamp) -> Status:
        """Return the status after a run, or after a reconcile that failed before it."""
        if not self.is_on:
            return without_ours(new)
        conditions = _Three(new, stamp)
        if outcome.failure is not None:
            has_stalled = _is_role_stalled(old) or self._has_stalled(old, outcome, stamp)
            conditions.fail(outcome.failure, has_stalled=has_stalled)
        elif outcome.unready:
            conditions.put(NOT_READY_YET, ("False", "True", "False"), (outcome.unready, outcome.unready))
        elif outcome.unready is None and outcome.requests_requeue and not _is_roles(condition_of(old, READY)):
            conditions.put(RUN_REQUEUED, ("Unknown", "True", "False"), (_REQUEUE, _REQUEUE))
        else:
            conditions.put(RUN_SUCCEEDED, ("True", "False", "False"), (_SUCCESS, ""))
        return conditions.status

    def _has_stalled(self, old: Status, outcome: ReconcileOutcome, stamp: Stamp) -> bool:
        """Return whether another retry is not expected to help."""
        if outcome.is_final or not self.stalled_after:
            return True
        if not _has_failed_before(old, stamp):
            return False
        since = _not_ready_since(old)
        return _is_true(old, STALLED) or (since is not None and stamp.now - since >= self.stalled_after)


class _Three:
    """The three conditions of a new status, to be set together."""

    def __init__(self, new: Status, stamp: Stamp) -> None:
        self._new = new
        self._stamp = stamp
        self._conditions = ConditionList(new, stamp)

    @property
    def status(self) -> Status:
        return {**self._new, "conditions": self._conditions.items}

    def put(self, reason: str, values: tuple[str, str, str], messages: tuple[str, str]) -> None:
        """Set Ready, Reconciling and Stalled, but none that the role has written; the messages are of the first two."""
        for kind, value, message in zip(_TYPES, values, (*messages, ""), strict=True):
            if not _is_roles(condition_of(self._new, kind)):
                self._set(kind, value, reason, message)

    def fail(self, failure: str, *, has_stalled: bool) -> None:
        """Set the three after a failure; what the role has written stays if it says the same."""
        retry = "" if has_stalled else _RETRY + failure
        values = ("False", "False", "True") if has_stalled else ("False", "True", "False")
        for kind, value, message in zip(_TYPES, values, (failure, retry, failure if has_stalled else ""), strict=True):
            found = condition_of(self._new, kind)
            if not _is_roles(found) or found is None or found.get("status") != value:
                self._set(kind, value, RUN_FAILED, message)

    def _set(self, kind: str, value: str, reason: str, message: str) -> None:
        self._conditions.put(kind, value, reason, cut(message))
        self._conditions.observe(kind)


def _unjudged(new: Status, stamp: Stamp, reason: str, message: str) -> Status:
    """Return the status of an object of whose generation nothing is known yet."""
    conditions = _Three(new, stamp)
    conditions.put(reason, ("Unknown", "True", "False"), (message, message))
    return conditions.status


def without_ours(status: Status) -> Status:
    """Return a status without those of the three conditions that the operator has written."""
    found = status.get("conditions")
    if not isinstance(found, list):
        return status
    return {**status, "conditions": [item for item in found if not _is_ours(item)]}


def _is_ours(condition: object) -> bool:
    """Return whether this is one of the three conditions, and written by the operator."""
    if not isinstance(condition, dict) or condition.get("type") not in _TYPES:
        return False
    reason = condition.get("reason")
    return isinstance(reason, str) and reason in _REASONS


def _is_roles(condition: dict[str, Any] | None) -> bool:
    """Return whether the role has written one of the three conditions itself."""
    return condition is not None and not _is_ours(condition)


def _is_role_stalled(old: Status) -> bool:
    return _is_roles(condition_of(old, STALLED)) and _is_true(old, STALLED)


def _is_true(status: Status, kind: str) -> bool:
    return (condition_of(status, kind) or {}).get("status") == "True"


def _is_judged(old: Status, stamp: Stamp) -> bool:
    """Return whether the conditions are about this generation already."""
    ready = condition_of(old, READY)
    if ready is not None and ready.get("reason") == RUNS_PAUSED:
        return False
    observed = (ready or {}).get("observedGeneration", old.get("observedGeneration"))
    # The schema of a CRD may drop the generation; then a result is all that is known.
    return ready is not None if observed is None else bool(observed == stamp.generation)


def _has_failed_before(old: Status, stamp: Stamp) -> bool:
    """Return whether the run before this one failed too, for the same generation."""
    return _is_true(old, FAILURE) and bool(old.get("observedGeneration", stamp.generation) == stamp.generation)


def _not_ready_since(old: Status) -> datetime | None:
    """Return since when runs of this generation have failed: Ready may be False for longer, and Failure True."""
    ready, failure = condition_of(old, READY) or {}, condition_of(old, FAILURE) or {}
    if ready.get("status") != "False":
        return None
    since, failed_since = (parse_time(each.get("lastTransitionTime")) for each in (ready, failure))
    return max(since, failed_since) if since and failed_since else None
