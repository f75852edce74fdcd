"""The limit for the size of an object whose role runs.

Ansible needs about 4.5 KiB of memory for each value of a spec, which a run gets three times, however small the value
is: an object of one megabyte may hold 250,000 of them. Long strings cost little, and the API server limits them.
"""

from typing import Any

from rolecall.kube.references import RawObject


def check_size(obj: RawObject, limit: int) -> None:
    """Raise ValueError if an object has more than ``limit`` values, 0 for no limit.

    Values are strings, numbers and so on, lists and mappings, at any depth. ``managedFields`` do not count, for they
    have as many as the rest and nobody writes them.
    """
    managed = obj.get("metadata", {}).get("managedFields")
    found = count_values(obj) - (0 if managed is None else count_values(managed))
    if found > limit > 0:
        raise ValueError(
            f"the object has {found:,} values, and a run takes at most {limit:,}: make the object smaller, for example "
            "by moving data into a ConfigMap, or raise --max-object-values"
        )


def count_values(value: Any) -> int:
    """Return the number of values in a JSON value, itself included, however deeply they are nested."""
    found, left = 0, [value]
    while left:
        each = left.pop()
        found += 1
        if isinstance(each, dict):
            left.extend(each.values())
        elif isinstance(each, list):
            left.extend(each)
    return found
