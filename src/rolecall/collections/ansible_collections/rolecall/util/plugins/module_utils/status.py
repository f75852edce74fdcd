# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a status becomes when fields and conditions are put into it.

Pure functions on the raw status of an object. Fields are put in as a JSON merge patch would do it: mappings are merged,
lists take the place of the old ones, null removes a field. Conditions are merged by their type instead. A status that
holds already what is wanted comes back equal, so that a caller can tell whether there is anything to write. The module
k8s_status reads and writes the objects.
"""

import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

REASON = re.compile(r"[A-Za-z](?:[A-Za-z0-9_,:]*[A-Za-z0-9_])?")
TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:[+-]\d\d:\d\d|Z)")
TIMES = ("lastHeartbeatTime", "lastTransitionTime")

Condition = dict[str, Any]


def merge_status(old: dict[str, Any], parameters: Mapping[str, Any], now: str) -> dict[str, Any]:
    """Say what the status is to be, given the old one and the module's parameters; `now` is a time as of RFC 3339.

    Raises ValueError for conditions that cannot be meant.
    """
    fields = dict(parameters["status"] or {})
    if conditions := checked_conditions(parameters["conditions"] or []):
        if fields.get("conditions"):
            raise ValueError("conditions: give them in `conditions` or within `status`, not in both")
        fields["conditions"] = conditions
    before = old.get("conditions") or []
    if _are_conditions(before) and _are_conditions(fields.get("conditions")):
        kept = _of_types(before, fields["conditions"]) if parameters["replace"] else before
        fields["conditions"] = merge_conditions(kept, fields["conditions"], now)
    if parameters["replace"]:
        return fields
    if holds(old, fields, replace_lists=parameters["replace_lists"]):
        return old
    return merge_patch(old, fields)


def checked_conditions(conditions: Iterable[Condition]) -> list[Condition]:
    """Give the conditions without the options that were left out. Raises ValueError for a wrong reason or time."""
    checked = [{key: value for key, value in each.items() if value is not None} for each in conditions]
    for condition in checked:
        where = f"condition {condition['type']!r}"
        if "reason" in condition and not REASON.fullmatch(condition["reason"]):
            raise ValueError(f"{where}: expected one word in CamelCase as reason, found {condition['reason']!r}")
        for key in TIMES:
            if key in condition and not TIME.fullmatch(condition[key]):
                raise ValueError(f"{where}: expected a time as of RFC 3339 as {key}, found {condition[key]!r}")
    return checked


def merge_conditions(old: Iterable[Condition], wanted: Iterable[Condition], now: str) -> list[Condition]:
    """Give the old conditions with the wanted ones in the place of those of the same type, new ones behind them.

    A condition that says what the old one said stays as it is. Another one whose status changes has
    `lastTransitionTime` set to `now` (RFC 3339), unless it brings its own.
    """
    merged = {condition["type"]: condition for condition in old}
    for condition in wanted:
        current = merged.get(condition["type"])
        if current is None or _says_more(condition, current):
            merged[condition["type"]] = {"lastTransitionTime": _since(current or {}, condition, now), **condition}
    return list(merged.values())


def holds(old: Any, wanted: Any, *, replace_lists: bool, name: str = "") -> bool:
    """Tell whether the old value has all that is wanted.

    A longer list holds a shorter one, unless `replace_lists`; conditions are looked for one by one in any case.
    """
    if isinstance(old, dict) and isinstance(wanted, dict):
        return all(holds(old.get(key), value, replace_lists=replace_lists, name=key) for key, value in wanted.items())
    if isinstance(old, list) and isinstance(wanted, list) and (name == "conditions" or not replace_lists):
        return all(element in old for element in wanted)
    return bool(old == wanted)


def merge_patch(old: dict[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Give the old value with the wanted fields in it, as RFC 7386 says."""
    merged = deepcopy(old)
    for key, value in wanted.items():
        current = merged.get(key)
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = merge_patch(current if isinstance(current, dict) else {}, value)
        else:
            merged[key] = deepcopy(value)
    return merged


def _are_conditions(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) and "type" in each for each in value)


def _of_types(old: Iterable[Condition], wanted: Iterable[Condition]) -> list[Condition]:
    types = {condition["type"] for condition in wanted}
    return [condition for condition in old if condition["type"] in types]


def _says_more(condition: Condition, current: Condition) -> bool:
    return any(current.get(key) != value for key, value in condition.items() if key != "lastTransitionTime")


def _since(current: Condition, condition: Condition, now: str) -> str:
    is_same = current.get("status") == condition.get("status")
    since: str = current.get("lastTransitionTime", now) if is_same else now
    return since
