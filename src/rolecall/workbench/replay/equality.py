"""Compares the values that two runs have written, regardless of differences that every run has.

These are uids and generated names, which are replaced by the objects they belong to, in the order in which they appear;
resource versions; times; the order of managed fields; and secret values for which a record has placeholders.

A repeated run is later than the first one. So times are the same if their distances from the starts of their runs are
equal, within a tolerance, or, for a run whose clock was set back, if the times themselves are.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rolecall.runner.secrets.values import IDENTIFYING, LAST_APPLIED
from rolecall.workbench.comparison.clocks import LEAST_TOLERANCE_SECONDS, Clocks, is_number
from rolecall.workbench.comparison.objects import text_in_base64
from rolecall.workbench.replay.writes import RunWrites

_DURATION: Final = re.compile(r"(?P<unit>Seconds|Millis|Milliseconds)$")
"""The suffixes of the names of fields with durations."""

_VALUES: Final = ("data", "stringData")
_VALUE_PATHS: Final = tuple(f"/{name}" for name in _VALUES)


@dataclass(slots=True)
class _Names:
    """Replaces the uids and generated names of one run in texts."""

    uids: Mapping[str, str]
    generated: Mapping[str, str]
    _tokens: dict[str, str] = field(default_factory=dict)
    _counts: Counter[str] = field(default_factory=Counter)
    _pattern: re.Pattern[str] | None = None

    def __post_init__(self) -> None:
        found = sorted((*self.uids, *self.generated), key=len, reverse=True)
        if found:
            self._pattern = re.compile("|".join(map(re.escape, found)))

    def replaced_in(self, text: str) -> str:
        """Return a text with the values replaced by the objects they stand for."""
        return self._pattern.sub(lambda match: self._token(match[0]), text) if self._pattern else text

    def _token(self, value: str) -> str:
        if value in self.uids:
            owner = self.uids[value]
            namespace, _, name = owner.rpartition("/")
            return f"<uid of {namespace}/{self._token(name) if name in self.generated else name}>"
        if value not in self._tokens:
            prefix = self.generated[value]
            self._counts[prefix] += 1
            self._tokens[value] = f"{prefix}<{self._counts[prefix]}>"
        return self._tokens[value]


class Equality:
    """Compares the values that a recorded run has written with those of another run."""

    def __init__(self, record: RunWrites, run: RunWrites) -> None:
        self._record, self._run = record, run
        shared = record.names.keys() & run.names.keys()
        self._names = tuple(
            _Names(each.uids, {name: prefix for name, prefix in each.names.items() if name not in shared})
            for each in (record, run)
        )
        tolerance = LEAST_TOLERANCE_SECONDS + max(record.seconds, run.seconds)
        self._clocks = Clocks(record.started, run.started, tolerance)
        self._secrets: dict[str, str] = {}
        placeholders = sorted(record.placeholders, key=len, reverse=True)
        self._placeholder = re.compile("|".join(map(re.escape, placeholders))) if placeholders else None

    def normal(self, text: str, *, is_recorded: bool) -> str:
        """Return a text of one of the runs with uids and generated names replaced."""
        return self._names[0 if is_recorded else 1].replaced_in(text)

    def unified(self, before: Any, after: Any, *, is_hidden: bool = False) -> Any:
        """Return ``after`` with the values of ``before`` where they are the same: equal if nothing else differs."""
        if isinstance(before, dict) and isinstance(after, dict):
            return self._unified_mapping(before, after, is_hidden=is_hidden)
        if isinstance(before, list) and isinstance(after, list):
            pairs = zip(before, after, strict=False)
            return [*(self.unified(*pair, is_hidden=is_hidden) for pair in pairs), *after[len(before) :]]
        if isinstance(before, str) and isinstance(after, str):
            return before if self.are_same_texts(before, after, is_hidden=is_hidden) else after
        if is_number(before) and is_number(after) and self._clocks.are_same_numbers(before, after):
            return before
        return after

    def unified_status(self, before: Any, after: Any) -> Any:
        """Do the same for a status, which may also contain durations."""
        return self.unified(before, self._with_durations(before, after))

    def with_hidden_values(self, before: Any, after: Any) -> Any:
        """Return a write to a Secret with the values of the record that were masked only in place.

        They are too short, or too common, to be searched in a whole record: only their length is known.
        """
        if isinstance(before, list) and isinstance(after, list):
            pairs = zip(before, after, strict=False)
            return [*(self.with_hidden_values(*pair) for pair in pairs), *after[len(before) :]]
        if not (isinstance(before, dict) and isinstance(after, dict)):
            return after
        is_value = str(before.get("path", "")).startswith(_VALUE_PATHS)
        found = {}
        for key, value in after.items():
            known = before.get(key)
            if key == LAST_APPLIED:
                found[key] = self._with_hidden_applied(known, value)
            elif key in _VALUES or (key == "value" and is_value):
                found[key] = self._with_forms(known, value)
            else:
                found[key] = self.with_hidden_values(known, value)
        return found

    def are_same_texts(self, before: str, after: str, *, is_hidden: bool = False) -> bool:
        """Return whether a text of the record and one of the run are the same."""
        if before == after or (before in self._record.versions and after in self._run.versions):
            return True
        if is_hidden and len(before) == len(after):
            return True
        one, two = self._names[0].replaced_in(before), self._names[1].replaced_in(after)
        return one == two or self._clocks.are_same_texts(one, two) or self._are_same_secrets(one, two)

    def _unified_mapping(self, before: dict[str, Any], after: dict[str, Any], *, is_hidden: bool) -> dict[str, Any]:
        known = {self._names[0].replaced_in(key): key for key in before}
        found = {}
        for key, value in after.items():
            own = known.get(self._names[1].replaced_in(key))
            if own is None:
                found[key] = value
            else:
                sorted_value = _in_order_of(before[own], value) if own == "managedFields" else value
                found[own] = self.unified(before[own], sorted_value, is_hidden=is_hidden and own not in IDENTIFYING)
        return found

    def _with_hidden_applied(self, before: Any, after: Any) -> Any:
        try:
            one, two = json.loads(before), json.loads(after)
        except (TypeError, ValueError):
            return after
        return before if self.with_hidden_values(one, self.unified(one, two)) == one else after

    def _with_forms(self, before: Any, after: Any) -> Any:
        """Return a Secret's values with those of the record that have the same length and no placeholder."""
        if isinstance(before, dict) and isinstance(after, dict):
            return {key: self._with_forms(before.get(key), value) for key, value in after.items()}
        if not (isinstance(before, str) and isinstance(after, str)):
            return after
        if len(before) != len(after) or before.count("=") != after.count("="):  # the padding of base64 shows a length
            return after
        has_placeholder = self._placeholder and self._placeholder.search(f"{before}\n{text_in_base64(before)}")
        return after if has_placeholder else before

    def _with_durations(self, before: Any, after: Any) -> Any:
        """Return a status with the durations of another one, unless they differ by more than the tolerance."""
        if not (isinstance(before, dict) and isinstance(after, dict)):
            return after
        found = {}
        for key, value in after.items():
            known = before.get(key)
            found[key] = self._with_durations(known, value)
            if (match := _DURATION.search(key)) and is_number(known) and is_number(value):
                scale = 1.0 if match["unit"] == "Seconds" else 1000.0
                is_near = abs(known - value) / scale <= self._clocks.tolerance_seconds
                found[key] = known if is_near else value
        return found

    def _are_same_secrets(self, before: str, after: str) -> bool:
        """Return whether two texts are equal except for secret values that the run did not read from the cluster.

        A value that was read is the same placeholder in both runs. A value from elsewhere, or one that the role
        generated, is a placeholder only in the record: it has the same length, and is equal in every place.
        """
        if self._placeholder is None:
            return False
        if not self._placeholder.search(before):
            before, after = text_in_base64(before), text_in_base64(after)
            if not before or not after or not self._placeholder.search(before):
                return False
        values = _values_at(self._placeholder, before, after)
        return values is not None and all(self._may_be(*each) for each in values)

    def _may_be(self, placeholder: str, value: str) -> bool:
        if placeholder == value:
            return True
        if placeholder in self._record.read_text or value in self._record.placeholders:
            return False
        return self._secrets.setdefault(placeholder, value) == value


def _in_order_of(before: Any, after: Any) -> Any:
    """Return managed fields in the order of others; the API server sorts them by their times, in whole seconds."""
    if not all(isinstance(each, list) and all(isinstance(item, dict) for item in each) for each in (before, after)):
        return after
    order = [_manager_of(each) for each in before]
    return sorted(after, key=lambda each: order.index(found) if (found := _manager_of(each)) in order else len(order))


def _manager_of(fields: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(fields.get(key) for key in ("manager", "operation", "apiVersion", "subresource"))


def _values_at(placeholder: re.Pattern[str], before: str, after: str) -> list[tuple[str, str]] | None:
    """Return the placeholders in a text with their counterparts in another, None if the texts differ elsewhere."""
    found, end = [], 0
    if len(before) != len(after):
        return None
    for match in placeholder.finditer(before):
        if before[end : match.start()] != after[end : match.start()]:
            return None
        end = match.end()
        found.append((match[0], after[match.start() : end]))
    return found if before[end:] == after[end:] else None
