"""The outline of an object: a checksum per field, to report later which fields changed.

Users want to know why a reconcile started; "the object was modified" is not enough. So the outline keeps a checksum of
four bytes for each field down to the second level (``spec.replicas``, ``status.phase``, ``metadata.labels``). Objects
with the same fields share one tuple of names. An object may have any number of fields, and a ConfigMap any number of
keys, so the names are limited: below a field with many names there are none, and the last fields have none. Outlines
are only used in messages. Predicates compare the digests and fingerprints of ``store`` and ``field_paths``.
"""

import marshal
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from rolecall.kube.references import RawObject

_CONSTANT_FIELDS = ("apiVersion", "kind")
# Fields that every write changes, or that follow from other fields.
_VOLATILE_FIELDS = frozenset({"metadata.resourceVersion", "metadata.managedFields", "metadata.generation"})
_MARSHAL_FORMAT = 2  # the output of later formats depends on reference counts
_MAX_LISTED = 5
_MAX_FIELDS = 256
_MAX_NAMES_BELOW = 100
_MAX_NAME_LENGTH = 128


@dataclass(frozen=True, slots=True)
class Outline:
    """The sorted names of an object's fields, and a checksum of each."""

    names: tuple[str, ...] = ()
    checksums: bytes = b""

    @classmethod
    def of(cls, obj: RawObject) -> "Outline":
        """Return the outline of an object."""
        fields = sorted(islice(_fields(obj), _MAX_FIELDS))
        return cls(
            _interned(tuple(name for name, _ in fields)), array("I", (checksum for _, checksum in fields)).tobytes()
        )

    def by_name(self) -> dict[str, int]:
        """Return the checksum of each field."""
        return dict(zip(self.names, array("I", self.checksums), strict=True))

    def changed_fields(self, other: "Outline") -> list[str]:
        """Return the sorted names of the fields that were added, removed or changed in another outline."""
        before, after = self.by_name(), other.by_name()
        return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def summarize_fields(fields: list[str]) -> str:
    """Return the first few names, and the number of the others, as text."""
    shown = fields[:_MAX_LISTED]
    rest = len(fields) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def _fields(obj: RawObject) -> Iterator[tuple[str, int]]:
    for top, value in obj.items():
        if top in _CONSTANT_FIELDS:
            continue
        if not isinstance(value, dict) or len(value) > _MAX_NAMES_BELOW:
            yield top[:_MAX_NAME_LENGTH], _checksum(value)
            continue
        for name, item in value.items():
            path = f"{top}.{name}"[:_MAX_NAME_LENGTH]
            if path not in _VOLATILE_FIELDS:
                yield path, _checksum(item)


def _checksum(value: Any) -> int:
    # The API server returns equal values in the same order, so the keys need not be sorted, which would be slow.
    try:
        return zlib.crc32(marshal.dumps(value, _MARSHAL_FORMAT))
    except ValueError:  # too deeply nested for marshal: changes of this field are not reported
        return 0


@lru_cache(maxsize=1024)
def _interned(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the same tuple for equal ones, to save memory."""
    return names
