"""What a plan changes, as it is shown: without what the API server sets, and without secrets.

An object that differs only in what the API server keeps for itself is not changed. Defaults of the server are shown. A
secret value that changes is shown as changed, not with its values.

How the texts of a plan look where they are shown: without secrets, and without what differs from plan to plan.

A secret value becomes ``(sensitive)`` wherever it occurs, as in records. A name that the API server has generated, the
uid of an object that is only planned and a time while the runs ran become words that are the same in every plan.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from rolecall.kube.metadata import is_being_deleted, metadata_of, uid_of
from rolecall.kube.references import GVK, SECRET, ObjectKey, RawObject
from rolecall.runner.proxy.bodies import decode
from rolecall.runner.proxy.request_info import RequestInfo, parse
from rolecall.runner.reconcile.status import says_the_same
from rolecall.runner.record.masking import Mask, decode_base64
from rolecall.runner.record.secret_values import IDENTIFYING, LAST_APPLIED, mask_body
from rolecall.runner.record.timeline import TIME, diff_lines, seconds_of, without_server_fields
from rolecall.workbench.plan.model import ExitCode, ObjectChange, ObjectPlan, Plan, PlannedWrite, TaskName

SENSITIVE: Final = "(sensitive)"
TIME_OF_RUN: Final = "(time of the run)"

_WORD: Final = re.compile(r"[a-z0-9][a-z0-9.-]*")
_LABEL: Final = re.compile(r"[a-z0-9-]+")
_NO_REQUEST: Final = RequestInfo("get")
_PRECISION_SECONDS: Final = 1.0
"""Times in objects mostly have no fractions."""


def generated_texts(plan: Plan) -> dict[str, str]:
    """Return the names and uids that the API server has made for the objects of a plan, with what is shown for each."""
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


class _OneWord(Mask):
    """Puts the same word in the place of every secret value, however short it is."""

    def add(self, value: str) -> str:  # noqa: ARG002
        return SENSITIVE

    def add_here(self, value: str) -> str:
        return self.add(value)

    def add_base64(self, text: str) -> str:
        return self.add(text)


class ShownTexts:
    """The texts of what one object's runs did. ``generated`` is what ``generated_texts`` found in the whole plan."""

    def __init__(self, plan: ObjectPlan, generated: Mapping[str, str]) -> None:
        self._generated = generated
        self._from, self._until = plan.started - _PRECISION_SECONDS, plan.ended + _PRECISION_SECONDS
        self._hide: Callable[[str], str] = _mask_of(plan).redactor(SENSITIVE)
        self._shown: dict[str, str] = {}  # most texts are keys and values that are there many times

    def shown(self, text: str) -> str:
        """Return a text as it is shown."""
        found = self._shown.get(text)
        if found is None:
            found = self.named(TIME.sub(lambda match: self._time(match[0]), self._hide(text)))
            self._shown[text] = found
        return found

    def named(self, text: str) -> str:
        """Return a text with generated names and uids replaced; for the names of objects, which no secret hides."""
        if not self._generated:
            return text
        return _WORD.sub(lambda found: self._generated.get(found[0]) or self._with_labels(found[0]), text)

    def body(self, write: PlannedWrite) -> Any:
        """Return the decoded body of a write as it is shown, None if it has none that can be decoded."""
        body = decode(write.body, write.content_type)
        info = parse(write.method, write.target)
        return self._all_shown(mask_body(_OneWord(), body, info, is_hidden=write.task.is_hidden))

    def _all_shown(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.shown(value)
        if isinstance(value, dict):
            return {self.shown(key): self._all_shown(inner) for key, inner in value.items()}
        return [self._all_shown(inner) for inner in value] if isinstance(value, list) else value

    def key(self, key: ObjectKey) -> ObjectKey:
        """Return the key of an object as it is shown."""
        return ObjectKey(self.named(key.namespace), self.named(key.name))

    def _with_labels(self, word: str) -> str:
        """Replace what stands between the dots of a word."""
        return _LABEL.sub(lambda found: self._generated.get(found[0], found[0]), word)

    def _time(self, text: str) -> str:
        seconds = seconds_of(text)
        is_of_run = seconds is not None and self._from <= seconds <= self._until
        return TIME_OF_RUN if is_of_run else text


def _mask_of(plan: ObjectPlan) -> Mask:
    """Return the secret values of an object's runs."""
    mask = Mask()
    for text in plan.secrets:
        mask.add(text)
    for obj in (each for change in plan.changes for each in (change.before, change.after) if each):
        mask_body(mask, obj, _NO_REQUEST, is_hidden=False)
    for write in plan.writes:
        body = decode(write.body, write.content_type)
        mask_body(mask, body, parse(write.method, write.target), is_hidden=write.task.is_hidden)
    return mask


_SET_BY_CONTROLLERS: Final = frozenset({LAST_APPLIED, "deployment.kubernetes.io/revision"})
_SET_AT_DELETION: Final = "deletionGracePeriodSeconds"
_Show = Callable[[str], str]


class Action(StrEnum):
    """What happens to an object."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Difference:
    """An object, or a status, before and after; both as they are shown, None where it does not exist."""

    before: RawObject | None
    after: RawObject | None

    def lines(self) -> list[str]:
        """Return the lines of a diff, see ``diff_lines``."""
        return diff_lines(self.before, self.after)


@dataclass(frozen=True, slots=True)
class ChangedObject:
    """An object that would be changed, and the tasks that would do it."""

    action: Action
    gvk: GVK
    key: ObjectKey
    difference: Difference
    tasks: tuple[TaskName, ...]


@dataclass(frozen=True, slots=True)
class Findings:
    """The plan of one object as it is shown; ``status`` is None if the status stays as it is, or is not known.

    What an incomplete plan says about the end of the runs is not shown: it is the end of the plan.
    """

    plan: ObjectPlan
    changes: tuple[ChangedObject, ...]
    status: Difference | None
    texts: ShownTexts

    @property
    def result(self) -> ExitCode:
        """What the exit code says about this object."""
        if self.plan.stopped_at:
            return ExitCode.INCOMPLETE
        if self.plan.failure:
            return ExitCode.FAILED
        return ExitCode.DIFFERENT if self.changes or self.status else ExitCode.SAME

    @property
    def failure(self) -> str:
        """Why the runs would fail, as it is shown; empty if they would not, or if that is not known."""
        return "" if self.plan.stopped_at else self.texts.shown(self.plan.failure)


def findings_of(plan: Plan) -> tuple[Findings, ...]:
    """Return what a plan has found out about each object, in the plan's order."""
    generated = generated_texts(plan)
    return tuple(_findings(each, ShownTexts(each, generated)) for each in plan.objects)


def _findings(plan: ObjectPlan, texts: ShownTexts) -> Findings:
    primary = (plan.gvk.group, plan.gvk.kind, plan.key)
    changed = []
    for change in plan.changes:
        is_primary = (change.gvk.group, change.gvk.kind, change.key) == primary  # its status is shown by itself
        changed.append(_changed(change, texts, with_status=change.writes_status and not is_primary))
    return Findings(plan, tuple(each for each in changed if each), _status(plan, texts), texts)


def _status(plan: ObjectPlan, texts: ShownTexts) -> Difference | None:
    before, after = dict(plan.status_before), dict(plan.status_after)
    if plan.stopped_at or before == after or (before and says_the_same(before, after)):
        return None
    return _difference(_without_times(before), _without_times(after), texts.shown)


def _without_times(status: dict[str, Any]) -> dict[str, Any]:
    """Return a status without the times at which the operator writes it: they change with every run."""
    conditions = status.get("conditions")
    if not isinstance(conditions, list):
        return status
    return {**status, "conditions": [_condition_without_times(each) for each in conditions]}


def _condition_without_times(condition: Any) -> Any:
    if not isinstance(condition, dict):
        return condition
    kept = {key: value for key, value in condition.items() if key != "lastTransitionTime"}
    result = kept.get("ansibleResult")
    if isinstance(result, dict):
        kept["ansibleResult"] = {key: value for key, value in result.items() if key != "completion"}
    return kept


def _changed(change: ObjectChange, texts: ShownTexts, *, with_status: bool) -> ChangedObject | None:
    before = change.before and _cleaned(change.before, with_status=with_status)
    after = change.after and _cleaned(change.after, with_status=with_status)
    if _owner_uids_agree(before or {}, after or {}):
        before, after = before and _without_owner_uids(before), after and _without_owner_uids(after)
    if before == after:
        return None
    if (change.gvk.group, change.gvk.kind) == (SECRET.group, SECRET.kind):
        difference = _difference_of_secrets(before, after, texts.shown)
    elif any(task.is_hidden for task in change.tasks):
        difference = _difference(before, after, lambda _: SENSITIVE, texts.shown)
    else:
        difference = _difference(before, after, texts.shown)
    return ChangedObject(_action(before, after), change.gvk, texts.key(change.key), difference, change.tasks)


def _action(before: RawObject | None, after: RawObject | None) -> Action:
    if before is None:
        return Action.CREATE
    if after is None or (is_being_deleted(after) and not is_being_deleted(before)):
        return Action.DELETE
    return Action.CHANGE


def _cleaned(obj: RawObject, *, with_status: bool) -> RawObject:
    """Return an object without what the API server and controllers keep in it."""
    cleaned = without_server_fields(obj)
    metadata = {key: value for key, value in metadata_of(cleaned).items() if key != _SET_AT_DELETION}
    if isinstance(annotations := metadata.pop("annotations", None), dict):
        kept = {name: value for name, value in annotations.items() if name not in _SET_BY_CONTROLLERS}
        metadata |= {"annotations": kept} if kept else {}
    kept = {key: value for key, value in cleaned.items() if key != "status" or with_status} | {"metadata": metadata}
    return {key: kept[key] for key in ("apiVersion", "kind", "metadata") if key in kept} | kept


def _owner_uids_agree(before: RawObject, after: RawObject) -> bool:
    """Return whether every owner that both name is the same object; its uid then tells nothing."""
    old, new = _owner_uids(before), _owner_uids(after)
    return all(uid == new[owner] for owner, uid in old.items() if owner in new)


def _owner_uids(obj: RawObject) -> dict[tuple[Any, Any], Any]:
    return {(each.get("kind"), each.get("name")): each.get("uid") for each in _owners(obj)}


def _owners(obj: RawObject) -> list[dict[str, Any]]:
    return [each for each in metadata_of(obj).get("ownerReferences") or () if isinstance(each, dict)]


def _without_owner_uids(obj: RawObject) -> RawObject:
    owners = [{key: value for key, value in each.items() if key != "uid"} for each in _owners(obj)]
    return obj | {"metadata": metadata_of(obj) | {"ownerReferences": owners}} if owners else obj


def _difference(
    before: RawObject | None, after: RawObject | None, show: _Show, show_names: _Show | None = None
) -> Difference:
    return Difference(
        None if before is None else _shown(before, before, show, show_names or show),
        None if after is None else _shown(after, before, show, show_names or show),
    )


def _difference_of_secrets(before: RawObject | None, after: RawObject | None, show: _Show) -> Difference:
    shown = _difference(before, after, show)
    for part, size in (("data", _encoded_size), ("stringData", _size)):
        values = _difference({part: (before or {}).get(part)}, {part: (after or {}).get(part)}, size, str)
        for secret, found in ((shown.before, values.before), (shown.after, values.after)):
            if secret is not None and part in secret:
                secret[part] = (found or {})[part]
    return shown


def _shown(value: Any, counterpart: Any, show: _Show, show_names: _Show) -> Any:
    """Return a value as it is shown; ``show_names`` is for keys, and for the texts that identify objects."""
    if isinstance(value, str):
        text = show(value)
        is_other = isinstance(counterpart, str) and counterpart != value and show(counterpart) == text
        return _marked_as_changed(text) if is_other else text
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


def _marked_as_changed(text: str) -> str:
    whole = text.startswith("(sensitive") and text.endswith(")")
    return f"{text[:-1]}, changed)" if whole else f"{text} (changed)"


def _encoded_size(text: str) -> str:
    content = decode_base64(text)
    return SENSITIVE if content is None else f"(sensitive, {len(content)} bytes)"


def _size(text: str) -> str:
    return f"(sensitive, {len(text.encode(errors='surrogatepass'))} bytes)"
