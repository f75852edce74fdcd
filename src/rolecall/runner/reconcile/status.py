"""The status of a primary: pure functions from the old status and the outcome of a run to the new status.

Reasons and messages are the Go runner's, so that tools which wait for them keep working. Two things differ: every exit
has a true condition, and nothing is written without need. Keys and conditions of others are kept as they are.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from jsonpath_ng import JSONPath

from rolecall.kube.jsonpath import values_at
from rolecall.runner.reconcile.conditions import (
    FAILURE,
    IN_PROGRESS,
    INTERRUPTED,
    PAUSED,
    RUNNING,
    SUCCESSFUL,
    ConditionList,
    Stamp,
    Status,
    condition_of,
    conditions_of,
    parse_time,
)
from rolecall.runner.reconcile.pause import PAUSED_ANNOTATION
from rolecall.runner.runs.events import Counts, RunSummary, cut

REFRESH_AFTER = timedelta(minutes=10)
_VOLATILE = ("ansibleResult", "lastTransitionTime")


@dataclass(frozen=True, slots=True)
class ReconcileOutcome:
    """The result of a reconcile.

    ``failure`` is None after a success. ``counts`` is None if no play started. ``completion`` is the time of the play
    recap. ``mapped`` has values for fields of the status. A ``remark`` is added to the message of a success. A failure
    ``is_final`` if no retry can help. ``unready`` is why an object is not ready after a success; None if the watch has
    no ``ready``, empty if the object is ready.
    """

    failure: str | None = None
    counts: Counts | None = None
    completion: str = ""
    mapped: Mapping[str, Any] = field(default_factory=dict)
    remark: str = ""
    requests_requeue: bool = False
    is_final: bool = False
    unready: str | None = None


def running(old: Status, stamp: Stamp) -> Status:
    """Return the status during a run; an earlier failure stays visible until the run has ended."""
    conditions = ConditionList(old, stamp)
    conditions.remove(PAUSED)
    conditions.change_status(SUCCESSFUL, "False")
    conditions.put(RUNNING, "True", IN_PROGRESS, "Running reconciliation")
    return {**old, "conditions": conditions.items}


def paused(old: Status, stamp: Stamp) -> Status:
    """Return the status of a paused object; the result of the last run stays."""
    conditions = ConditionList(old, stamp)
    conditions.change_status(RUNNING, "False")
    conditions.put(PAUSED, "True", "Paused", f'Nothing runs as long as the annotation {PAUSED_ANNOTATION} is "true"')
    return {**old, "conditions": conditions.items}


def interrupted(old: Status, before: Status, message: str, stamp: Stamp) -> Status:
    """Return the status after a run that the operator interrupted, which is neither a success nor a failure.

    ``before`` is the status from before the run. Its ``Successful`` is restored if it is about the generation of the
    run; a result of an older generation stays marked as outdated.
    """
    conditions = ConditionList(old, stamp)
    conditions.put(RUNNING, "False", INTERRUPTED, cut(message))
    successful = condition_of(before, SUCCESSFUL)
    if successful is not None and before.get("observedGeneration", stamp.generation) == stamp.generation:
        conditions.restore(successful)
    return {**old, "conditions": conditions.items}


def finished(old: Status, outcome: ReconcileOutcome, stamp: Stamp) -> Status:
    """Return the status after a run."""
    conditions = ConditionList(old, stamp)
    conditions.remove(PAUSED)
    result = _ansible_result(outcome)
    if outcome.failure is None:
        message = "Last reconciliation succeeded" + (f"; {outcome.remark}" if outcome.remark else "")
        conditions.put(RUNNING, "True", "Successful", "Awaiting next reconciliation", result)
        conditions.put(SUCCESSFUL, "True", "Successful", cut(message))
        conditions.put(FAILURE, "False", "", "")
    else:
        conditions.change_status(RUNNING, "False")
        conditions.put(FAILURE, "True", "Failed", cut(outcome.failure), result)
        conditions.put(SUCCESSFUL, "False", "", "")
    return {
        **old,
        **outcome.mapped,
        "conditions": conditions.items,
        **({"observedGeneration": stamp.generation} if stamp.generation else {}),
    }


def should_mark_running(old: Status, generation: int) -> bool:
    """Return whether a run should be visible: of a new or changed object, after a failure, pause, or interruption."""
    successful = condition_of(old, SUCCESSFUL)
    if (condition_of(old, RUNNING) or {}).get("reason") == INTERRUPTED:
        return True  # also because a failure keeps the reason
    if successful is None or successful.get("status") != "True" or condition_of(old, PAUSED):
        return True
    return bool(old.get("observedGeneration", generation) != generation)


def should_write(old: Status, new: Status, now: datetime) -> bool:
    """Return whether a new status is worth a write.

    A status that differs only in times and counts is written at most every ten minutes, so an idle cluster sees no
    writes. A missing ``observedGeneration`` in the old status is no difference, because the schema of an existing CRD
    may drop that field. The same goes for its conditions.
    """
    if old == new:
        return False
    if not says_the_same(old, new):
        return True
    completed = _completion(old)
    return completed is None or now - completed >= REFRESH_AFTER


def says_the_same(old: Status, new: Status) -> bool:
    """Return whether two statuses differ at most in times and counts."""
    return _essence(old, like=old) == _essence(new, like=old)


def map_result(mapping: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status fields that the mapping finds in the result of a run.

    A field whose path has no match is left out, so its old value stays. Several matches become a list.
    """
    found = {name: values_at(path, document) for name, path in mapping.items()}
    return {name: values[0] if len(values) == 1 else values for name, values in found.items() if values}


def unready_reason(path: JSONPath, document: Mapping[str, Any]) -> str:
    """Return why an object is not ready, empty if it is: everything that the path finds must be true.

    Ansible turns values into text in some places, so the text ``true`` counts as true, in any case.
    """
    values = values_at(path, document)
    if not values:
        return f"The run reported no value at {path}"
    is_ready = all(value.lower() == "true" if isinstance(value, str) else bool(value) for value in values)
    return "" if is_ready else f"The run succeeded; {path} is not true yet"


def run_document(summary: RunSummary) -> dict[str, object]:
    """Return what ``$.run`` shows to the status mapping."""
    return {
        "status": summary.status,
        "rc": summary.rc,
        "durationSeconds": round(summary.duration_seconds, 3),
        "completion": summary.completion,
        "ok": summary.counts.ok,
        "changed": summary.counts.changed,
        "skipped": summary.counts.skipped,
        "failures": summary.counts.failures,
    }


def _ansible_result(outcome: ReconcileOutcome) -> dict[str, Any] | None:
    if outcome.counts is None:
        return None
    return {**asdict(outcome.counts), "completion": outcome.completion}


def _essence(status: Status, *, like: Status) -> Status:
    """Return the part of a status that must differ to be worth a write; ``like`` is the old status."""
    known = {str(item.get("type")) for item in conditions_of(like) if "observedGeneration" in item}
    conditions = sorted((_core(item, known) for item in conditions_of(status)), key=lambda item: str(item.get("type")))
    dropped = {"conditions"} if "observedGeneration" in like else {"conditions", "observedGeneration"}
    return {"conditions": conditions, **{key: value for key, value in status.items() if key not in dropped}}


def _core(condition: dict[str, Any], with_generation: set[str]) -> dict[str, Any]:
    """Return a condition without times and counts; with its generation only if it is of one of these types."""
    dropped = _VOLATILE if str(condition.get("type")) in with_generation else (*_VOLATILE, "observedGeneration")
    return {key: value for key, value in condition.items() if key not in dropped}


def _completion(status: Status) -> datetime | None:
    """Return when the last run that the status reports was completed."""
    results = ((condition_of(status, kind) or {}).get("ansibleResult") for kind in (RUNNING, FAILURE))
    times = (parse_time(result.get("completion")) for result in results if isinstance(result, dict))
    return max((time for time in times if time), default=None)
