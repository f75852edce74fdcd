"""The outline of an object: enough to say later which of its fields changed, in a few bytes.

People want to know why a reconcile started; that an object "was modified" does not tell them. So each of its fields,
down to the second level (``spec.replicas``, ``status.phase``, ``metadata.labels``), is kept as a sum of four bytes,
beside one tuple of names that all objects of the same shape share. An outline is for people only: whether a change
counts is decided by digests and values, in ``store`` and ``fields``.
"""

import marshal
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rolecall.kube.references import RawObject

_SAME_FOR_EVER = ("apiVersion", "kind")
# What every write changes, or what only follows from another field.
_RESTLESS = frozenset({"metadata.resourceVersion", "metadata.managedFields", "metadata.generation"})
_MARSHAL_FORMAT = 2  # later ones depend on how often a value is referred to
_MOST_TOLD = 5


@dataclass(frozen=True, slots=True)
class Outline:
    """The names of an object's fields, sorted, and a sum of each."""

    names: tuple[str, ...] = ()
    sums: bytes = b""

    @classmethod
    def of(cls, obj: RawObject) -> "Outline":
        """Read the outline of an object."""
        fields = sorted(_fields(obj))
        return cls(_shared(tuple(name for name, _ in fields)), array("I", (sum_ for _, sum_ in fields)).tobytes())

    def by_name(self) -> dict[str, int]:
        """Return the sum of each field."""
        return dict(zip(self.names, array("I", self.sums), strict=True))

    def changed(self, other: "Outline") -> list[str]:
        """Return the names of the fields that are new, gone or different in another outline, sorted."""
        before, after = self.by_name(), other.by_name()
        return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def told(fields: list[str]) -> str:
    """Return some names as people read them: a few, and how many more there are."""
    shown = fields[:_MOST_TOLD]
    rest = len(fields) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def _fields(obj: RawObject) -> Iterator[tuple[str, int]]:
    for top, value in obj.items():
        if top in _SAME_FOR_EVER:
            continue
        if not isinstance(value, dict):
            yield top, _sum(value)
            continue
        for name, item in value.items():
            path = f"{top}.{name}"
            if path not in _RESTLESS:
                yield path, _sum(item)


def _sum(value: Any) -> int:
    # The API server sends equal values in an equal order, so that no slow, order-free form is needed here.
    try:
        return zlib.crc32(marshal.dumps(value, _MARSHAL_FORMAT))
    except ValueError:  # nested more deeply than marshal goes: a change of it is not told
        return 0


@lru_cache(maxsize=4096)
def _shared(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return one and the same tuple for equal ones."""
    return names
