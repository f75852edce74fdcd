"""How the texts of a plan look where they are shown: without secrets, and without what differs from plan to plan.

A secret value becomes ``(sensitive)`` wherever it occurs, as in records. A name that the API server has generated, the
uid of an object that is only planned and a time while the runs ran become words that are the same in every plan.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from rolecall.kube.metadata import metadata_of, uid_of
from rolecall.kube.references import ObjectKey
from rolecall.runner.proxy.bodies import decode
from rolecall.runner.proxy.request_info import RequestInfo, parse
from rolecall.runner.record.masking import Mask
from rolecall.runner.record.secret_values import mask_body
from rolecall.runner.record.times import TIME, seconds_of
from rolecall.workbench.plan.results import ObjectPlan, Plan, PlannedWrite

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
        self._hide: Callable[[str], str] = _mask_of(plan).hider(SENSITIVE)
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
