"""JSONPaths into objects, with the extensions of ``jsonpath_ng`` (filters, arithmetic).

Parsing takes milliseconds, so parsed paths are cached until the process exits. A ``FieldPath`` is compiled once. Paths
with the same text are equal, so an informer keeps one fingerprint per field, regardless of the number of its consumers.
Most paths are plain (names and dots) and need only a few dictionary lookups.
"""

import hashlib
import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Self

from jsonpath_ng import Child, Fields, JSONPath, Root
from jsonpath_ng.exceptions import JSONPathError
from jsonpath_ng.ext import parse

from rolecall.kube.references import RawObject

NO_MATCH = ()
"""The fingerprint of a path that matches nothing."""

_SHORT = 64


@lru_cache(maxsize=1024)
def parse_path(text: str) -> JSONPath:
    """Return the parsed path. Raise ValueError if the text is not a JSONPath."""
    try:
        return parse(text)
    except JSONPathError as error:
        raise ValueError(f"not a JSONPath: {text!r} ({error})") from error


def values_at(path: JSONPath, document: object) -> list[Any]:
    """Return the values that the path matches, in order."""
    try:
        return [match.value for match in path.find(document)]
    except (AttributeError, KeyError, TypeError, ValueError):
        # jsonpath_ng raises these if an operator meets a value of an unexpected type.
        return []


@dataclass(frozen=True, slots=True)
class FieldPath:
    """A compiled path into an object; create it with ``parse`` or ``of_names``."""

    text: str
    _names: tuple[str, ...] | None = field(compare=False, repr=False)
    _expression: JSONPath | None = field(compare=False, repr=False, default=None)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Compile a JSONPath. Raises ValueError if it is invalid."""
        expression = parse_path(text)
        names = _plain_names(expression)
        return cls(text, names, None if names is not None else expression)

    @classmethod
    def of_names(cls, *names: str) -> Self:
        """Return the path through these names, which may contain dots and slashes."""
        return cls("$" + "".join(f"[{name!r}]" for name in names), names)

    def values(self, obj: RawObject) -> list[Any]:
        """Return all values that the path matches in the object, in order."""
        if self._names is None:
            return values_at(self._expression, obj)
        found: Any = obj
        for name in self._names:
            if not isinstance(found, dict) or name not in found:
                return []
            found = found[name]
        return [found]

    def fingerprint(self, obj: RawObject) -> Any:
        """Return a small value that is equal for equal matches: a short scalar, a digest, or ``NO_MATCH``."""
        values = self.values(obj)
        if not values:
            return NO_MATCH
        if len(values) == 1 and not isinstance(values[0], dict | list) and len(str(values[0])) <= _SHORT:
            return values[0]
        return digest_of(values)


def digest_of(value: Any) -> bytes:
    """Return a digest of 16 bytes that is the same for equal JSON values, regardless of the order of their keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).digest()[:16]


def _plain_names(expression: JSONPath) -> tuple[str, ...] | None:
    """Return the names in a plain path, None for any other path."""
    if isinstance(expression, Root):
        return ()
    if isinstance(expression, Fields):
        names = tuple(expression.fields)
        return names if len(names) == 1 and names != ("*",) else None
    if isinstance(expression, Child):
        left, right = _plain_names(expression.left), _plain_names(expression.right)
        return None if left is None or right is None else left + right
    return None
