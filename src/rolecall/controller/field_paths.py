"""Paths to the fields of objects that somebody asked to be looked at: by a trigger, its ``on``, or a predicate.

A path is compiled once and is equal to every other one with the same text, so that an informer keeps a field once
however many consumers ask for it. Plain paths (names and dots), which nearly all are, take no more than a few
dictionary look-ups; everything else is left to ``kube.paths``, which knows JSONPath.
"""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Self

from jsonpath_ng import Child, Fields, JSONPath, Root

from rolecall.kube.jsonpath import parse_path, values_at
from rolecall.kube.references import RawObject

MISSING = ()
"""The fingerprint of a path that matches nothing."""


@dataclass(frozen=True, slots=True)
class FieldPath:
    """A compiled path into an object; make it with ``parse`` or ``of_names``."""

    text: str
    _names: tuple[str, ...] | None = field(compare=False, repr=False)
    _expression: JSONPath | None = field(compare=False, repr=False, default=None)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Compile a JSONPath. Raises ValueError that says what is wrong with the text."""
        expression = parse_path(text)
        names = _plain_names(expression)
        return cls(text, names, None if names is not None else expression)

    @classmethod
    def of_names(cls, *names: str) -> Self:
        """Make the path that goes through these names, which may contain dots and slashes."""
        return cls("$" + "".join(f"[{name!r}]" for name in names), names)

    def values(self, obj: RawObject) -> list[Any]:
        """Return every value that the path matches in the object, in order."""
        if self._names is None:
            return values_at(self._expression, obj)
        found: Any = obj
        for name in self._names:
            if not isinstance(found, dict) or name not in found:
                return []
            found = found[name]
        return [found]

    def fingerprint(self, obj: RawObject) -> Any:
        """Return something small that is equal for equal matches: a scalar itself, else a digest; MISSING for none."""
        values = self.values(obj)
        if not values:
            return MISSING
        if len(values) == 1 and not isinstance(values[0], dict | list):
            return values[0]
        return digest_of(values)


def digest_of(value: Any) -> bytes:
    """Return 16 bytes that are the same for equal JSON values; the order of keys does not matter."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _plain_names(expression: JSONPath) -> tuple[str, ...] | None:
    """Return the names that a path goes through, None when it is more than a sequence of names."""
    if isinstance(expression, Root):
        return ()
    if isinstance(expression, Fields):
        names = tuple(expression.fields)
        return names if len(names) == 1 and names != ("*",) else None
    if isinstance(expression, Child):
        left, right = _plain_names(expression.left), _plain_names(expression.right)
        return None if left is None or right is None else left + right
    return None
