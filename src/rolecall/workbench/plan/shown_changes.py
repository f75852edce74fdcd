"""The changes of a plan as they are displayed: without noise of the API server, without secrets, equal in every plan.

An object isn't changed if it differs only in fields that the API server maintains; defaults of the server are shown. A
secret value becomes ``(sensitive)`` wherever it occurs, as in records, and is marked if it changes. A generated name,
the uid of an object that is only planned, and a time during the runs become texts that are the same in every plan.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from rolecall.kube.bodies import decode
from rolecall.kube.json_values import with_texts
from rolecall.kube.metadata import is_being_deleted, metadata_of, owner_references_of, uid_of
from rolecall.kube.references import GVK, SECRET, ObjectKey, RawObject
from rolecall.runner.proxy.request_info import RequestInfo, parse
from rolecall.runner.reconcile.status import conditions_of, is_equivalent, is_ours, is_running, with_own_reason
from rolecall.runner.secrets.mask import Mask, decode_base64
from rolecall.runner.secrets.values import IDENTIFYING, mask_body
from rolecall.workbench.comparison.clocks import TIME, seconds_of
from rolecall.workbench.comparison.masks import SENSITIVE, redactor
from rolecall.workbench.comparison.objects import cleaned
from rolecall.workbench.comparison.reports import ExitCode, TaskName
from rolecall.workbench.plan.model import ObjectChange, ObjectPlan, Plan, PlannedWrite

TIME_OF_RUN: Final = "(time of the run)"

_WORD: Final = re.compile(r"[a-z0-9][a-z0-9.-]*")
_LABEL: Final = re.compile(r"[a-z0-9-]+")
_NO_REQUEST: Final = RequestInfo("get")
_PRECISION_SECONDS: Final = 1.0
"""Times in objects mostly have no fractions."""
_Show = Callable[[str], str]


class _SensitiveMask(Mask):
    """Replaces every secret value by the same text, however short it is."""

    def placeholder(self, value: str, source: bytes | None = None) -> str:  # noqa: ARG002
        return SENSITIVE

    def add_base64(self, text: str) -> str:  # noqa: ARG002
        return SENSITIVE


class ShownTexts:
    """The texts of one object's plan as they are displayed; ``generated`` has the replacements of the whole plan."""

    def __init__(self, plan: ObjectPlan, generated: Mapping[str, str]) -> None:
        self._generated = generated
        self._from, self._until = plan.started - _PRECISION_SECONDS, plan.ended + _PRECISION_SECONDS
        mask = Mask()
        for obj in (each for change in plan.changes for each in (change.before, change.after) if each):
            mask_body(mask, obj, _NO_REQUEST, is_hidden=False)
        for write in plan.writes:
            body = decode(write.body, write.content_type)
            mask_body(mask, body, parse(write.method, write.target), is_hidden=write.task.is_hidden)
        self._redact = redactor(plan.secrets, mask)
        self._shown: dict[str, str] = {}  # most texts are keys and values that occur many times

    def shown(self, text: str) -> str:
        """Return a text as it is displayed."""
        found = self._shown.get(text)
        if found is None:
            found = self.named(TIME.sub(lambda match: self._time(match[0]), self._redact(text)))
            self._shown[text] = found
        return found

    def named(self, text: str) -> str:
        """Return a text with generated names and uids replaced; for the names of objects, which are never secret."""
        if not self._generated:
            return text

        def replace(match: re.Match[str]) -> str:
            """Replace a whole word, or else the labels between its dots."""
            labels = _LABEL.sub(lambda label: self._generated.get(label[0], label[0]), match[0])
            return self._generated.get(match[0]) or labels

        return _WORD.sub(replace, text)

    def key(self, key: ObjectKey) -> ObjectKey:
        """Return the key of an object as it is displayed."""
        return ObjectKey(self.named(key.namespace), self.named(key.name))

    def body(self, write: PlannedWrite) -> Any:
        """Return the decoded body of a write as it is displayed, None if it has none that can be decoded."""
        body = decode(write.body, write.content_type)
        info = parse(write.method, write.target)
        return with_texts(
            mask_body(_SensitiveMask(), body, info, is_hidden=write.task.is_hidden), self.shown, with_keys=True
        )

    def _time(self, text: str) -> str:
        seconds = seconds_of(text)
        is_of_run = seconds is not None and self._from <= seconds <= self._until
        return TIME_OF_RUN if is_of_run else text


def _generated_texts(plan: Plan) -> dict[str, str]:
    """Return the names and uids that the API server generated for the objects of a plan, with their replacements."""
    shown: dict[str, str] = {}
    numbers: dict[str, int] = {}
    for change in (each for one in plan.objects for each in one.changes if each.before is None and each.after):
        key, prefix = change.key, metadata_of(change.after or {}).get("generateName")
        if prefix and key.name.startswith(prefix) and key.name not in shown:
            numbers[prefix] = numbers.get(prefix, 0) + 1
            shown[key.name] = f"{prefix}<generated {numbers[prefix]}>"
        if uid := uid_of(change.after or {}):
            named = ObjectKey(key.namespace, shown.get(key.name, key.name))
            shown[uid] = f"<uid of {change.gvk.kind} {named}>"
    return shown


class Action(StrEnum):
    """A change of an object as a whole."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class ChangedObject:
    """An object that would be changed, before and after as they are displayed, and the tasks that would do it."""

    action: Action
    gvk: GVK
    key: ObjectKey
    before: RawObject | None
    after: RawObject | None
    tasks: tuple[TaskName, ...]


@dataclass(frozen=True, slots=True)
class Findings:
    """The plan of one object as it is displayed; ``status`` is None if it doesn't change, or isn't known.

    An incomplete plan has no failure and no status: they describe the end of the plan, not of the runs.
    """

    plan: ObjectPlan
    changes: tuple[ChangedObject, ...]
    status: tuple[RawObject | None, RawObject | None] | None
    texts: ShownTexts

    @property
    def exit_code(self) -> ExitCode:
        """The exit code for this object."""
        if self.plan.stopped_at:
            return ExitCode.INCOMPLETE
        if self.plan.failure:
            return ExitCode.FAILED
        plan = self.plan
        has_more = plan.obsolete or plan.proposed or plan.rejected
        return ExitCode.DIFFERENT if self.changes or self.status or has_more else ExitCode.SAME

    @property
    def failure(self) -> str:
        """Why the runs would fail, as it is displayed; empty if they would not, or if that is not known."""
        return "" if self.plan.stopped_at else self.texts.shown(self.plan.failure)


def findings_of(plan: Plan) -> tuple[Findings, ...]:
    """Return the findings about each object, in the plan's order."""
    generated = _generated_texts(plan)
    found = []
    for each in plan.objects:
        texts = ShownTexts(each, generated)
        primary = (each.gvk.group, each.gvk.kind, each.key)
        changes = []
        for change in each.changes:
            is_primary = (change.gvk.group, change.gvk.kind, change.key) == primary  # its status is shown separately
            changes.append(_changed_object(change, texts, with_status=change.writes_status and not is_primary))
        found.append(Findings(each, tuple(change for change in changes if change), _status(each, texts), texts))
    return tuple(found)


def _status(plan: ObjectPlan, texts: ShownTexts) -> tuple[RawObject | None, RawObject | None] | None:
    before, after = dict(plan.status_before), dict(plan.status_after)
    if is_running(before) and not plan.failure:  # the running operator writes the end of its run soon
        before, after = _without_results(before), _without_results(after)
    if plan.stopped_at or before == after or (before and is_equivalent(before, after)):
        return None
    return _pair(_without_times(before), _without_times(after), texts.shown)


def _without_results(status: RawObject) -> RawObject:
    """Return a status without the operator's conditions, and without the generation that they describe."""
    kept = [each for each in conditions_of(with_own_reason(status)) if not is_ours(each)]
    return {**{key: value for key, value in status.items() if key != "observedGeneration"}, "conditions": kept}


def _without_times(status: dict[str, Any]) -> dict[str, Any]:
    """Return a status without the times at which the operator writes it: they change with every run."""
    if not isinstance(status.get("conditions"), list):
        return status
    conditions = []
    for condition in status["conditions"]:
        kept = condition
        if isinstance(condition, dict):
            kept = {key: value for key, value in condition.items() if key != "lastTransitionTime"}
            if isinstance(result := kept.get("ansibleResult"), dict):
                kept["ansibleResult"] = {key: value for key, value in result.items() if key != "completion"}
        conditions.append(kept)
    return {**status, "conditions": conditions}


def _changed_object(change: ObjectChange, texts: ShownTexts, *, with_status: bool) -> ChangedObject | None:
    before = change.before and cleaned(change.before, with_status=with_status)
    after = change.after and cleaned(change.after, with_status=with_status)
    old, new = (
        {(each.kind, each.name): each.uid for each in owner_references_of(obj or {})} for obj in (before, after)
    )
    if all(uid == new[owner] for owner, uid in old.items() if owner in new):  # the uids add nothing to the names
        before, after = before and _without_owner_uids(before), after and _without_owner_uids(after)
    if before == after:
        return None
    if before is None:
        action = Action.CREATE
    elif after is None or (is_being_deleted(after) and not is_being_deleted(before)):
        action = Action.DELETE
    else:
        action = Action.CHANGE
    is_hidden = any(task.is_hidden for task in change.tasks)
    shown = _pair(before, after, (lambda _: SENSITIVE) if is_hidden else texts.shown, texts.shown)
    if (change.gvk.group, change.gvk.kind) == (SECRET.group, SECRET.kind):
        shown = _pair(before, after, texts.shown)
        for part, size in (("data", _encoded_size), ("stringData", _size)):
            values = _pair((before or {}).get(part), (after or {}).get(part), size, str)
            for secret, found in zip(shown, values, strict=True):
                if secret is not None and part in secret:
                    secret[part] = found
    return ChangedObject(action, change.gvk, texts.key(change.key), *shown, change.tasks)


def _without_owner_uids(obj: RawObject) -> RawObject:
    found = (each for each in metadata_of(obj).get("ownerReferences") or () if isinstance(each, dict))
    owners = [{key: value for key, value in each.items() if key != "uid"} for each in found]
    return obj | {"metadata": metadata_of(obj) | {"ownerReferences": owners}} if owners else obj


def _pair(before: Any, after: Any, show: _Show, show_names: _Show | None = None) -> tuple[Any, Any]:
    """Return two values as they are displayed, each with marks where the other one differs from it."""
    names = show_names or show
    return _shown(before, before, show, names), _shown(after, before, show, names)


def _shown(value: Any, counterpart: Any, show: _Show, show_names: _Show) -> Any:
    """Return a value as it is displayed; ``show_names`` is for keys, and for the texts that identify objects."""
    if isinstance(value, str):
        text = show(value)
        if not (isinstance(counterpart, str) and counterpart != value and show(counterpart) == text):
            return text
        return f"{text[:-1]}, changed)" if text.startswith("(sensitive") and text.endswith(")") else f"{text} (changed)"
    if isinstance(value, list):
        others = [*(counterpart if isinstance(counterpart, list) else ()), *([None] * len(value))]
        return [_shown(item, other, show, show_names) for item, other in zip(value, others, strict=False)]
    if not isinstance(value, dict):
        return value
    known = counterpart if isinstance(counterpart, dict) else {}
    return {
        show_names(str(key)): _shown(inner, known.get(key), show_names if key in IDENTIFYING else show, show_names)
        for key, inner in value.items()
    }


def _encoded_size(text: str) -> str:
    content = decode_base64(text)
    return SENSITIVE if content is None else f"(sensitive, {len(content)} bytes)"


def _size(text: str) -> str:
    return f"(sensitive, {len(text.encode(errors='surrogatepass'))} bytes)"
