# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Merges fields and conditions into a status.

Pure functions on the raw status of an object. Fields are applied as a JSON merge patch: mappings are merged, lists are
replaced, null removes a field. Conditions are merged by type. If the status already has all fields, the result equals
the old status, so that the caller knows whether to write it. The module ``k8s_status`` reads and writes the objects.
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
    """Return the new status for the old one and the module's parameters; ``now`` is a time in RFC 3339 format.

    Options of a condition that are None were omitted. Raise ValueError for conditions in both parameters.
    """
    fields = dict(parameters["status"] or {})
    given = parameters["conditions"] or ()
    if conditions := [{key: value for key, value in each.items() if value is not None} for each in given]:
        if fields.get("conditions"):
            raise ValueError("You cannot specify conditions in both the 'status' and 'conditions' parameters")
        fields["conditions"] = conditions
    before = old.get("conditions") or []
    if _are_conditions(before) and _are_conditions(fields.get("conditions")):
        types = {condition["type"] for condition in fields["conditions"]}
        kept = [each for each in before if each["type"] in types or not parameters["replace"]]
        fields["conditions"] = merge_conditions(kept, fields["conditions"], now)
    if parameters["replace"]:
        return fields
    if contains(old, fields, replace_lists=parameters["replace_lists"]):
        return old
    return merge_patch(old, fields)


def invalid_in(condition: Condition) -> str:
    """Return the error of a condition in the words of ``operator_sdk.util``, empty for a valid one."""
    if condition.get("reason") and not REASON.fullmatch(condition["reason"]):
        return "Condition 'reason' must be a single, CamelCase word"
    for key in TIMES:
        if condition.get(key) and not TIME.fullmatch(condition[key]):
            return f"'{key}' must be an RFC3339 compliant datetime string"
    return ""


def merge_conditions(old: Iterable[Condition], wanted: Iterable[Condition], now: str) -> list[Condition]:
    """Return the old conditions, with those of the same type replaced and new ones appended.

    An unchanged condition stays as it is. If the status of a condition changes, ``lastTransitionTime`` is set to
    ``now`` (RFC 3339), unless the new condition has its own.
    """
    merged = {condition["type"]: condition for condition in old}
    for condition in wanted:
        current = merged.get(condition["type"], {})
        if any(current.get(key) != value for key, value in condition.items() if key != "lastTransitionTime"):
            is_same = current.get("status") == condition.get("status")
            since = current.get("lastTransitionTime", now) if is_same else now
            merged[condition["type"]] = {"lastTransitionTime": since, **condition}
    return list(merged.values())


def contains(old: Any, wanted: Any, *, replace_lists: bool, name: str = "") -> bool:
    """Return whether the old value contains the wanted value.

    A list contains a list with some of its elements, unless ``replace_lists``; this always applies to conditions.
    """
    if isinstance(old, dict) and isinstance(wanted, dict):
        return all(
            contains(old.get(key), value, replace_lists=replace_lists, name=key) for key, value in wanted.items()
        )
    if isinstance(old, list) and isinstance(wanted, list) and (name == "conditions" or not replace_lists):
        return all(element in old for element in wanted)
    return bool(old == wanted)


def merge_patch(old: dict[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the old value with the JSON merge patch ``wanted`` applied (RFC 7386)."""
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
