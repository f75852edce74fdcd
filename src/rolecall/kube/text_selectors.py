"""Label and field selectors in the text form of a query, and the objects that they select."""

import re
from collections.abc import Iterator
from typing import Any, Final

from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import RawObject
from rolecall.kube.selectors import LabelSelector, Requirement

_IN: Final = re.compile(r"(?P<key>[^\s!=]+)\s+(?P<operator>in|notin)\s*\((?P<values>[^)]*)\)")
_EQUAL: Final = re.compile(r"(?P<key>[^\s!=]+)\s*(?P<operator>==?|!=)\s*(?P<value>\S*)")
_SEPARATOR: Final = re.compile(r",(?![^(]*\))")
"""A comma that is not in brackets."""


def selects(obj: RawObject, labels: str, fields: str) -> bool:
    """Return whether selectors match an object; an empty one matches everything. Raises ValueError for a bad one."""
    found = metadata_of(obj).get("labels") or {}
    return label_selector(labels).matches(found) and all(_has(obj, *each) for each in _field_requirements(fields))


def label_selector(text: str) -> LabelSelector:
    """Return a label selector, for example ``app=web,tier in (a, b),!old``. Raises ValueError."""
    return LabelSelector(tuple(map(_requirement, _parts(text))))


def _requirement(text: str) -> Requirement:
    if match := _IN.fullmatch(text):
        values = frozenset(value.strip() for value in match["values"].split(","))
        return Requirement(match["key"], "In" if match["operator"] == "in" else "NotIn", values)
    if match := _EQUAL.fullmatch(text):
        operator = "NotIn" if match["operator"] == "!=" else "In"
        return Requirement(match["key"], operator, frozenset((match["value"],)))
    key = text.removeprefix("!").strip()
    if not key or re.search(r"[\s!=()]", key):
        raise ValueError(f"{text!r} is no requirement of a label selector")
    return Requirement(key, "DoesNotExist" if text.startswith("!") else "Exists")


def _field_requirements(text: str) -> Iterator[tuple[str, bool, str]]:
    """Yield the path of each field, whether it has to be equal, and the value."""
    for part in _parts(text):
        match = _EQUAL.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is no requirement of a field selector")
        yield match["key"], match["operator"] != "!=", match["value"]


def _has(obj: RawObject, path: str, is_equal: bool, value: str) -> bool:  # noqa: FBT001 - it is a part of the requirement
    found: Any = obj
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    text = "" if found is None else str(found).lower() if isinstance(found, bool) else str(found)
    return (text == value) is is_equal


def _parts(text: str) -> list[str]:
    return [part.strip() for part in _SEPARATOR.split(text) if part.strip()]
