"""The lines of a record as text: how they are encoded, their digest, and the words that masking must not touch."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import Any, Final

FORMAT: Final = 1
"""The version of the format. A reader refuses a newer one."""

_BODIES: Final = frozenset({"request", "sent", "answer"})
_STRUCTURE: Final = frozenset(
    {
        "type",
        "format",
        "started",
        "time",
        "task",
        "job",
        "verb",
        "method",
        "action",
        "result",
        "outcome",
        "resources",
    }
)
"""Fields whose values are words of the format, of Kubernetes or of Ansible."""

_RESOURCE: Final = frozenset({"group", "version", "resource", "subresource"})
"""Fields whose values come from a path: they are words of Kubernetes if the API server serves such a resource."""


def digest_of(lines: Iterable[str]) -> str:
    """Return the digest of the lines before the end."""
    found = hashlib.sha256()
    for line in lines:
        found.update(line.encode() + b"\n")
    return f"sha256:{found.hexdigest()}"


def to_line(value: Mapping[str, Any]) -> str:
    """Return one line of a record."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def time_text(seconds: float) -> str:
    """Return a POSIX time as it stands in a record."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def with_structure(line: Mapping[str, Any], masked: Mapping[str, Any], words: AbstractSet[str]) -> str:
    """Return a masked line with the format's own words, in case that a secret value is one of them.

    ``words`` are the names of resources and their groups that the API server serves. Masking changes texts and numbers,
    not how many there are and their order.
    """
    values = zip(line.items(), masked.values(), strict=True)
    return to_line({name: _restored(name, plain, value, words) for (name, plain), value in values})


def _restored(name: str, plain: Any, masked: Any, words: AbstractSet[str]) -> Any:
    if name in _STRUCTURE or isinstance(plain, int | float) or (name in _RESOURCE and plain in words):
        return plain
    if name in _BODIES:
        values = zip(plain.items(), masked.values(), strict=True)
        return {key: before if key == "contentType" else after for (key, before), after in values}
    if name == "items":
        return [_item(*pair) for pair in zip(plain, masked, strict=True)]
    return masked


def _item(plain: Mapping[str, str], masked: Mapping[str, str]) -> dict[str, str]:
    values = zip(plain.items(), masked.values(), strict=True)
    return {name: before if name == "result" else after for (name, before), after in values}
