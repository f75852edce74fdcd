# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a status becomes when fields and conditions are put into it.

Pure functions on the raw status of an object. Conditions are merged by their type, other lists by their elements,
and everything that is not mentioned stays. The same input gives an equal status back, so that a caller can tell
whether there is anything to write. The module k8s_status reads and writes the objects.
"""

from collections.abc import Iterable
from copy import deepcopy
from typing import Any


def merge_status(old: dict[str, Any], wanted: dict[str, Any], *, replace_lists: bool) -> dict[str, Any]:
    """Give the old status with the wanted fields in it; lists are joined unless `replace_lists`."""
    merged = deepcopy(old)
    for key, value in wanted.items():
        current = merged.get(key)
        if isinstance(current, dict) and isinstance(value, dict):
            merged[key] = merge_status(current, value, replace_lists=replace_lists)
        elif isinstance(current, list) and isinstance(value, list) and not replace_lists:
            merged[key] = current + [element for element in value if element not in current]
        else:
            merged[key] = deepcopy(value)
    return merged


def merge_conditions(old: Iterable[dict[str, Any]], wanted: Iterable[dict[str, Any]], now: str) -> list[dict[str, Any]]:
    """Give the old conditions with the wanted ones in the place of those of the same type, new ones behind them.

    A condition whose status changes has `lastTransitionTime` set to `now` (RFC 3339) unless it brings its own.
    """
    merged = {condition["type"]: condition for condition in old}
    for condition in wanted:
        current = merged.get(condition["type"], {})
        is_same = current.get("status") == condition["status"]
        since = current.get("lastTransitionTime", now) if is_same else now
        merged[condition["type"]] = {**current, "lastTransitionTime": since, **condition}
    return list(merged.values())
