"""The status of a primary: pure functions from the old status and the outcome of a run to the new status.

Reasons and messages of ``Running``, ``Successful``, and ``Failure`` are the Go runner's, so that tools which wait for
them keep working. Three things differ: every exit has a true condition, no reason is empty, because most schemas reject
that, and nothing is written without need. Keys and conditions of other clients are kept as they are. A condition keeps
its position in the list, except under the name ``ansible-operator``, and its ``lastTransitionTime`` as long as its
status stays the same.

A condition that neither this operator nor a run of the object has written is never replaced or removed, whatever its
type: the kubelet's ``Ready`` takes a Pod out of service. Its reason identifies a condition of the operator. A run has
written a condition if its task ``k8s_status`` did, in this run, or in an earlier one that ``Successful`` mentions.

``Ready``, ``Reconciling``, and ``Stalled`` follow the rules of kstatus and the API conventions, in the same write. They
change only with the outcome of a run, and when a run starts for a generation that has no outcome yet: a run of an
unchanged generation leaves them as they are, and so does an interrupted run. All three share one reason, and name the
generation. A condition of these types with another reason belongs to the role or to another controller. The role's
stays, unless a run has failed and the condition contradicts this. A run can report the reason of ``Ready``: the message
of ``Stalled`` names it, so that this condition is still known to be the operator's. Everything is computed from the old
status, so an operator that restarts continues where it stopped.
"""

import copy
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from rolecall.kube.jsonpath import FieldPath
from rolecall.kube.quantities import parse_time, time_text
from rolecall.kube.references import RawObject
from rolecall.runner.config.watches import Watch
from rolecall.runner.reconcile.context import PAUSED_ANNOTATION
from rolecall.runner.runs.events import cut
from rolecall.runner.runs.outcome import Outcome, Reported

Status = dict[str, Any]
RUNNING, SUCCESSFUL, FAILURE, PAUSED = "Running", "Successful", "Failure", "Paused"
IN_PROGRESS, INTERRUPTED = "Running", "Interrupted"
"""The reasons of ``Running`` during a run, and after a run that the operator interrupted."""

READY, RECONCILING, STALLED = "Ready", "Reconciling", "Stalled"
RUN_IN_PROGRESS, RUN_SUCCEEDED, RUN_FAILED = "RunInProgress", "RunSucceeded", "RunFailed"
RUN_REQUEUED, RUNS_PAUSED, NOT_READY_YET = "RunRequeued", "RunsPaused", "NotReadyYet"

STALLED_AFTER = timedelta(seconds=30)
"""Five retries with the default backoff: by then, the things that a run waits for often exist."""

Texts = tuple[str, str, str]
"""One string each for ``Ready``, ``Reconciling``, and ``Stalled``."""

_TYPES = (READY, RECONCILING, STALLED)
_REASONS = frozenset({RUN_IN_PROGRESS, RUN_SUCCEEDED, RUN_FAILED, RUN_REQUEUED, RUNS_PAUSED, NOT_READY_YET})
_GO_REASONS = frozenset({IN_PROGRESS, INTERRUPTED, "Successful", "Failed", "Unknown", "", None})
"""The reasons of ``Running``, ``Successful``, and ``Failure``, including those of all releases of the Go runner."""

_REPORTED = "The run reported the reason of Ready: "
_VALID_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]{0,1022}[A-Za-z0-9_])?")
_SUCCESS = "The last run succeeded"
_REQUEUE = "The last run succeeded and requested another run"
_PAUSE = f'Nothing runs as long as the annotation {PAUSED_ANNOTATION} is "true"'
_RETRY = "The last run failed and will be retried: "

REFRESH_AFTER = timedelta(minutes=10)
_VOLATILE = ("ansibleResult", "lastTransitionTime")

_SHORT_BYTES = 256
_OPTIONAL = ("ansibleResult", "observedGeneration")
_TYPE_NAMES = {int: "number", float: "number", dict: "object", list: "array", type(None): "null"}


@dataclass(frozen=True, slots=True)
class ConditionContext:
    """The time of a new status, the generation that it describes, and the conditions that runs have written.

    ``ready_reason`` is the reason of ``Ready`` that the run has reported, empty for the operator's.
    """

    now: datetime
    generation: int
    written: Sequence[Mapping[str, Any]] = ()
    moves_changed: bool = False
    """Whether a changed condition moves to the end of the list, as in the Go runner."""

    ready_reason: str = ""

    @property
    def text(self) -> str:
        """The time in the format of Kubernetes, in seconds."""
        return time_text(self.now.timestamp())


def condition_of(status: Status, kind: str) -> dict[str, Any] | None:
    """Return the condition of a type, None when there is none."""
    return next((item for item in conditions_of(status) if item.get("type") == kind), None)


def conditions_of(status: Status) -> list[dict[str, Any]]:
    """Return the conditions of a status, without entries that are not mappings."""
    found = status.get("conditions")
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def is_ours(condition: object) -> bool:
    """Return whether the operator, or the Go runner before it, has written a condition."""
    if not isinstance(condition, dict):
        return False
    kind, reason = condition.get("type"), condition.get("reason")
    if kind == PAUSED:  # other projects use the same type and reason
        return bool(condition.get("message") == _PAUSE)
    reasons = _REASONS if kind in _TYPES else _GO_REASONS if kind in (RUNNING, SUCCESSFUL, FAILURE) else ()
    return (reason is None or isinstance(reason, str)) and reason in reasons


def own_condition(status: Status, kind: str) -> dict[str, Any] | None:
    """Return the operator's condition of a type, None if there is none or another client has written it."""
    found = condition_of(status, kind)
    return found if is_ours(found) else None


def roles_conditions(status: Status, written: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the conditions of a status that a run has written: this one, or an earlier one.

    ``written`` are those of this run. A success mentions the conditions that are known to be the role's, so that they
    are still known after a restart.
    """
    mentioned = str((own_condition(status, SUCCESSFUL) or {}).get("message"))
    known = [(each.get("type"), each.get("status"), each.get("reason")) for each in written]
    return [
        item
        for item in conditions_of(status)
        if not is_ours(item)
        and ((item.get("type"), item.get("status"), item.get("reason")) in known or _mention(item) in mentioned)
    ]


def _mention(condition: Mapping[str, Any]) -> str:
    return f"the role set {condition.get('type')}={condition.get('status')} ({condition.get('reason')})"


def with_own_reason(status: Status) -> Status:
    """Return a status whose ``Ready`` has a reason of the operator instead of the one that a run has reported.

    The message of ``Stalled`` contains the latter, so that it identifies a condition of the operator too.
    """
    ready, stalled = (condition_of(status, kind) or {} for kind in (READY, STALLED))
    if not ready or stalled.get("message") != f"{_REPORTED}{ready.get('reason')}":
        return status
    own = ready | {"reason": RUN_SUCCEEDED if ready.get("status") == "True" else NOT_READY_YET}
    return {**status, "conditions": [own if item is ready else item for item in status["conditions"]]}


class ConditionList:
    """The conditions of a status while they are changed; ``items`` is the new list.

    The conditions of other clients stay as they are, except those that a run has written.
    """

    def __init__(self, status: Status, context: ConditionContext) -> None:
        self.items = copy.deepcopy(conditions_of(status))
        self._context = context

    def _find(self, kind: str) -> dict[str, Any] | None:
        """Return the condition of a type if it may be changed."""
        found = next((item for item in self.items if item.get("type") == kind), None)
        return found if is_ours(found) or found in self._context.written else None

    def remove(self, kind: str) -> None:
        """Remove a condition, if there is one of that type."""
        if (found := self._find(kind)) is not None:
            self.items.remove(found)

    def change_status(self, kind: str, value: str) -> None:
        """Change the status of an existing condition; its reason, message and result stay."""
        if (found := self._find(kind)) is not None and found.get("status") != value:
            self._replace(found, found | {"status": value, "lastTransitionTime": self._context.text})

    def restore(self, condition: dict[str, Any]) -> None:
        """Replace the condition of the same type, if there is one, by an earlier version of it."""
        if (found := self._find(condition["type"])) is not None:
            self.items[self.items.index(found)] = copy.deepcopy(condition)

    def put(self, kind: str, value: str, reason: str, message: str, **further: Any) -> None:
        """Set a condition, or add it at the end; it has only those ``further`` fields that have a value."""
        old = self._find(kind)
        if old is None and any(item.get("type") == kind for item in self.items):
            return
        keeps_time = old is not None and old.get("status") == value and old.get("lastTransitionTime")
        new = {
            "type": kind,
            "status": value,
            "reason": reason,
            "message": message,
            "lastTransitionTime": old["lastTransitionTime"] if old and keeps_time else self._context.text,
            **{name: given for name, given in further.items() if given},
        }
        if old is None:
            self.items.append(new)
        else:
            self._replace(old, new)

    def _replace(self, old: dict[str, Any], new: dict[str, Any]) -> None:
        index = self.items.index(old)
        del self.items[index]
        # The Go runner replaces Failure always.
        is_changed = new["type"] == FAILURE or any(old.get(key) != new.get(key) for key in ("status", "reason"))
        self.items.insert(len(self.items) if self._context.moves_changed and is_changed else index, new)


def running(old: Status, context: ConditionContext) -> Status:
    """Return the status during a run; an earlier failure stays visible until the run has ended."""
    conditions = ConditionList(old, context)
    conditions.remove(PAUSED)
    conditions.change_status(SUCCESSFUL, "False")
    conditions.put(RUNNING, "True", IN_PROGRESS, "Running reconciliation")
    return {**old, "conditions": conditions.items}


def paused(old: Status, context: ConditionContext) -> Status:
    """Return the status of a paused object; the result of the last run stays."""
    conditions = ConditionList(old, context)
    conditions.change_status(RUNNING, "False")
    conditions.put(PAUSED, "True", "Paused", _PAUSE)
    return {**old, "conditions": conditions.items}


def interrupted(old: Status, before: Status, message: str, context: ConditionContext) -> Status:
    """Return the status after a run that the operator interrupted, which is neither a success nor a failure.

    ``before`` is the status from before the run. Its ``Successful`` is restored if it is about the generation of the
    run; a result of an older generation stays marked as outdated.
    """
    conditions = ConditionList(old, context)
    conditions.put(RUNNING, "False", INTERRUPTED, cut(message))
    successful = own_condition(before, SUCCESSFUL)
    if successful is not None and before.get("observedGeneration", context.generation) == context.generation:
        conditions.restore(successful)
    return {**old, "conditions": conditions.items}


def finished(old: Status, outcome: Outcome, context: ConditionContext) -> Status:
    """Return the status after a run."""
    conditions = ConditionList(old, context)
    conditions.remove(PAUSED)
    result = {**asdict(outcome.counts), "completion": outcome.completion} if outcome.completion else None
    if outcome.failure is None:
        message = "; ".join(("Last reconciliation succeeded", *outcome.reported.remarks))
        conditions.put(RUNNING, "True", "Successful", "Awaiting next reconciliation", ansibleResult=result)
        conditions.put(SUCCESSFUL, "True", "Successful", cut(message))
        conditions.put(FAILURE, "False", "Successful", "")
    else:
        conditions.change_status(RUNNING, "False")
        conditions.put(FAILURE, "True", "Failed", cut(outcome.failure), ansibleResult=result)
        conditions.put(SUCCESSFUL, "False", "Failed", "")
    return {
        **old,
        **outcome.reported.mapped,
        "conditions": conditions.items,
        **({"observedGeneration": context.generation} if context.generation else {}),
    }


def should_mark_running(old: Status, generation: int) -> bool:
    """Return whether a run should be visible: of a new or changed object, after a failure, pause, or interruption."""
    successful = own_condition(old, SUCCESSFUL)
    if (own_condition(old, RUNNING) or {}).get("reason") == INTERRUPTED:
        return True  # also because a failure keeps the reason
    if successful is None or successful.get("status") != "True" or own_condition(old, PAUSED):
        return True
    return bool(old.get("observedGeneration", generation) != generation)


def is_running(status: Status) -> bool:
    """Return whether a status reports a run in progress, and no failure of an earlier run."""
    running_condition, failure = own_condition(status, RUNNING) or {}, own_condition(status, FAILURE) or {}
    is_in_progress = (running_condition.get("status"), running_condition.get("reason")) == ("True", IN_PROGRESS)
    return is_in_progress and failure.get("status") != "True"


def should_write(old: Status, new: Status, now: datetime) -> bool:
    """Return whether a new status is worth a write.

    A status that differs only in times and counts is written at most every ten minutes, so an idle cluster sees no
    writes. A missing ``observedGeneration`` in the old status is no difference, because the schema of an existing CRD
    may drop that field. The same goes for its conditions.
    """
    if old == new:
        return False
    if not is_equivalent(old, new):
        return True
    completed = completion_of(old)
    return completed is None or now - completed >= REFRESH_AFTER


def is_equivalent(old: Status, new: Status) -> bool:
    """Return whether two statuses differ at most in times and counts."""
    return _essence(old, like=old) == _essence(new, like=old)


def map_result(mapping: Mapping[str, FieldPath], document: dict[str, Any]) -> dict[str, Any]:
    """Return the status fields that the mapping finds in the result of a run.

    A field whose path has no match is omitted, so its old value stays. Several matches become a list.
    """
    found = {name: path.values(document) for name, path in mapping.items()}
    return {name: values[0] if len(values) == 1 else values for name, values in found.items() if values}


def smaller(old: Status, new: Status, rejected: Collection[str]) -> Status:
    """Return the rest of a new status without its rejected parts, and without what most schemas don't require.

    ``rejected`` are fields as the API server names them, for example ``status.conditions[2].type``. Messages of the
    operator's conditions are short; if there are too many conditions, only one is added.
    """
    new, own = with_own_reason(new), []
    for index, item in enumerate(new["conditions"]):
        found = [path for path in rejected if path.startswith(f"status.conditions[{index}]")]
        if is_ours(item) and all(path.endswith(".message") for path in found):
            plain = {key: item[key] for key in item if key not in _OPTIONAL}
            own.append(plain | {"message": cut(str(item.get("message") or ""), _SHORT_BYTES)})
    if "status.conditions" in rejected:
        own = [item for item in own if item["type"] in (READY, FAILURE)][-1:]
    others = [item for item in conditions_of(new) if not is_ours(item)]
    kept = {key: new[key] for key in new if f"status.{key}" not in rejected}
    return {**old, **kept, "conditions": [*others, *own]}


def reported_by(outcome: Outcome, watch: Watch, obj: RawObject) -> Reported:
    """Return the values that a run has reported for the status of its object; ``obj`` is the object after the run."""
    document = {"stats": dict(outcome.stats), "resource": obj, "run": run_document(outcome)}
    path, found = watch.ready.get("value"), map_result(watch.ready, document)
    invalid = invalid_texts(found)
    reason, message = ("" if name in invalid else found.get(name, "") for name in ("reason", "message"))
    mapped = map_result(watch.status, document) if outcome.is_successful else {}
    unready = unready_reason(path, document, message) if path else None
    remarks = (left_out_remark(outcome.left_out),) if outcome.left_out else ()
    return Reported(mapped, unready, reason, message, invalid, remarks)


def left_out_remark(paths: Sequence[str]) -> str:
    """Return the message for users about the fields of a spec that a role didn't get."""
    names = ", ".join(f"spec.{path}" for path in paths)
    return f"the role doesn't declare {names}, so it didn't get {'it' if len(paths) == 1 else 'them'}"


def invalid_texts(reported: Mapping[str, Any]) -> list[str]:
    """Return which of the values that a run has reported for ``Ready`` can't be its ``reason`` or ``message``.

    A reason must be one that Kubernetes accepts, and none of the operator's.
    """
    reason, message = reported.get("reason", "Valid"), reported.get("message", "")
    is_valid = isinstance(reason, str) and _VALID_REASON.fullmatch(reason) and reason not in _REASONS
    return [name for name, valid in (("reason", is_valid), ("message", isinstance(message, str))) if not valid]


def unready_reason(path: FieldPath, document: dict[str, Any], message: str = "") -> str:
    """Return why an object isn't ready, empty if it is: each value at the path must be true.

    A template often turns a boolean into a string, so the strings "true" and "false" count, in any case. Any other
    value is a mistake: the object isn't ready. The reason names its type only, because the value may be a secret, or
    another one in each run. ``message`` is that of the run for the value false.
    """
    values = path.values(document)
    if not values:
        return f"The run succeeded, but reported no value at {path.text}"
    for value in values:
        found = str(value).lower() if isinstance(value, str | bool) else ""
        if found not in ("true", "false"):
            name = _TYPE_NAMES.get(type(value), "string")
            return f"The run succeeded, but the value at {path.text} is neither true nor false: its type is {name}"
        if found == "false":
            return message or f"The run succeeded, but {path.text} is false"
    return ""


def run_document(outcome: Outcome) -> dict[str, object]:
    """Return the value of ``$.run`` for the status mapping."""
    return {
        "status": outcome.status,
        "rc": outcome.rc,
        "durationSeconds": round(outcome.duration_seconds, 3),
        "completion": outcome.completion,
        **asdict(outcome.counts),
    }


def _essence(status: Status, *, like: Status) -> Status:
    """Return the part of a status whose changes are worth a write; ``like`` is the old status."""
    known = {str(item.get("type")) for item in conditions_of(like) if "observedGeneration" in item}
    conditions = sorted((_core(item, known) for item in conditions_of(status)), key=lambda item: str(item.get("type")))
    dropped = {"conditions"} if "observedGeneration" in like else {"conditions", "observedGeneration"}
    return {"conditions": conditions, **{key: value for key, value in status.items() if key not in dropped}}


def _core(condition: dict[str, Any], with_generation: set[str]) -> dict[str, Any]:
    """Return a condition without times and counts; with its generation only if it is of one of these types."""
    dropped = _VOLATILE if str(condition.get("type")) in with_generation else (*_VOLATILE, "observedGeneration")
    return {key: value for key, value in condition.items() if key not in dropped}


def completion_of(status: Status) -> datetime | None:
    """Return the completion time of the last run that the status reports."""
    results = ((own_condition(status, kind) or {}).get("ansibleResult") for kind in (RUNNING, FAILURE))
    times = (parse_time(result.get("completion")) for result in results if isinstance(result, dict))
    return max((time for time in times if time), default=None)


@dataclass(frozen=True, slots=True)
class Readiness:
    """Adds ``Ready`` and the others to each status of one kind; if they are off, removes those of an earlier operator.

    ``stalled_after`` is the time for which runs must have failed before an object is stalled.
    """

    is_on: bool
    stalled_after: timedelta = STALLED_AFTER

    @classmethod
    def of_watch(cls, watch: Watch, *, default: bool) -> "Readiness":
        """Return the settings of a watch; ``default`` is whether the conditions are on without its own settings.

        They are always off for built-in kinds, whose conditions other programs act on.
        """
        is_on = default or bool(watch.ready) if watch.ready_conditions is None else watch.ready_conditions
        seconds = watch.stalled_after_seconds
        is_on = is_on and not watch.gvk.is_built_in
        return cls(is_on, STALLED_AFTER if seconds is None else timedelta(seconds=seconds))

    def while_running(self, old: Status, context: ConditionContext) -> Status:
        """Return the status during a run; the conditions change if they describe another generation."""
        new = running(old, context)
        if not self.is_on:
            return without_ready_conditions(new)
        ready = condition_of(old, READY) or {}
        observed = ready.get("observedGeneration", old.get("observedGeneration"))
        # The schema of a CRD may drop the generation; then only a result is known.
        is_current = bool(ready) if observed is None else observed == context.generation
        if is_current and ready.get("reason") != RUNS_PAUSED:
            return new
        new, message = with_own_reason(new), "The run is in progress"
        return _with_ready(new, context, RUN_IN_PROGRESS, ("Unknown", "True", "False"), (message, message, ""))

    def while_paused(self, old: Status, context: ConditionContext) -> Status:
        """Return the status of a paused object; an edit in the meantime shows in its generation."""
        new = paused(old, context)
        if not self.is_on:
            return without_ready_conditions(new)
        if condition_of(old, READY) is not None or old.get("observedGeneration") == context.generation:
            return new
        return _with_ready(new, context, RUNS_PAUSED, ("Unknown", "True", "False"), (_PAUSE, _PAUSE, ""))

    def after_interruption(self, old: Status, before: Status, message: str, context: ConditionContext) -> Status:
        """Return the status after an interrupted run; ``before`` is the status from before the run."""
        new = interrupted(old, before, message, context)
        return new if self.is_on else without_ready_conditions(new)

    def after_run(self, old: Status, outcome: Outcome, context: ConditionContext) -> Status:
        """Return the status after a run, or after a reconcile that failed before it."""
        old = with_own_reason(old)
        written = roles_conditions(old, context.written)
        mentions = [_mention(item) for item in written if self.is_on and item.get("type") in _TYPES]
        reported = replace(outcome.reported, remarks=(*outcome.reported.remarks, *mentions))
        outcome, context = replace(outcome, reported=reported), replace(context, written=written)
        new, failure, unready = finished(old, outcome, context), outcome.failure, reported.unready
        if not self.is_on:
            return without_ready_conditions(new)
        if failure is not None and self._has_stalled(old, outcome, context):
            return _with_ready(new, context, RUN_FAILED, ("False", "False", "True"), (failure, "", failure))
        if failure is not None:
            return _with_ready(new, context, RUN_FAILED, ("False", "True", "False"), (failure, _RETRY + failure, ""))
        is_known = not any(_is_foreign(condition_of(old, kind)) for kind in (READY, STALLED))
        reason, message = reported.reason if is_known else "", reported.message or _SUCCESS
        context, mark = replace(context, ready_reason=reason), reason and _REPORTED + reason
        if unready:
            return _with_ready(new, context, NOT_READY_YET, ("False", "True", "False"), (unready, unready, mark))
        if unready is None and outcome.requests_requeue and not _is_foreign(condition_of(old, READY)):
            return _with_ready(new, context, RUN_REQUEUED, ("Unknown", "True", "False"), (_REQUEUE, _REQUEUE, ""))
        return _with_ready(new, context, RUN_SUCCEEDED, ("True", "False", "False"), (message, "", mark))

    def _has_stalled(self, old: Status, outcome: Outcome, context: ConditionContext) -> bool:
        """Return whether no further retry is expected to help a failed object; only this method decides it."""
        stalled = condition_of(old, STALLED) or {}
        was_stalled = stalled.get("status") == "True"
        if outcome.is_final or not self.stalled_after or (was_stalled and _is_foreign(stalled)):
            return True
        # Only failures of the same generation count.
        failure = own_condition(old, FAILURE) or {}
        if failure.get("status") != "True" or old.get("observedGeneration", context.generation) != context.generation:
            return False
        # Ready may have been False for longer than these runs have failed, and Failure may have been True for longer.
        ready = condition_of(old, READY) or {}
        if _is_foreign(ready) and ready.get("status") != "False":
            ready = failure | {"status": "False"}
        since, failed_since = (parse_time(each.get("lastTransitionTime")) for each in (ready, failure))
        if was_stalled or ready.get("status") != "False" or since is None or failed_since is None:
            return was_stalled
        return context.now - max(since, failed_since) >= self.stalled_after


def _with_ready(new: Status, context: ConditionContext, reason: str, values: Texts, messages: Texts) -> Status:
    """Return a status with Ready, Reconciling, and Stalled, except those that the operator hasn't written.

    After a failure, those that a run has written are replaced too if their status contradicts it.
    """
    conditions = ConditionList(new, context)
    for kind, value, message in zip(_TYPES, values, messages, strict=True):
        found = condition_of(new, kind)
        if not _is_foreign(found) or (reason == RUN_FAILED and found is not None and found.get("status") != value):
            conditions.put(kind, value, reason, cut(message), observedGeneration=context.generation)
    if context.ready_reason and (ready := condition_of({"conditions": conditions.items}, READY)):
        ready["reason"] = context.ready_reason
    return {**new, "conditions": conditions.items}


def without_ready_conditions(status: Status) -> Status:
    """Return a status without those of the three conditions that the operator has written."""
    found = with_own_reason(status).get("conditions")
    if not isinstance(found, list):
        return status
    kept = [item for item in found if not (is_ours(item) and item["type"] in _TYPES)]
    return {**status, "conditions": kept}


def _is_foreign(condition: dict[str, Any] | None) -> bool:
    """Return whether a role or another controller has written a condition."""
    return bool(condition) and not is_ours(condition)
