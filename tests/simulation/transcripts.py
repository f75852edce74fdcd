"""Transcripts of scripts: the responses of one server, comparable with those of another one.

uids, versions, times, and generated names differ between two servers. A transcript fills the placeholders of a request
with the values of its own server, and normalizes responses: uids and generated names are numbered in the order in which
they appear, versions in their own order.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from rolecall.kube.references import RawObject
from tests.simulation.scripts import GENERATED, UNKNOWN_UID, Step

_TIMES: Final = ("creationTimestamp", "deletionTimestamp")
_KINDS: Final = {
    "configmaps": "ConfigMap",
    "events": "Event",
    "gadgets": "Gadget",
    "leases": "Lease",
    "namespaces": "Namespace",
    "pods": "Pod",
    "secrets": "Secret",
    "things": "Thing",
}


@dataclass(slots=True)
class Transcript:
    """The responses of one server so far, and the versions and uids that later requests refer to.

    The body of a watch is the list of its events; None is a body that isn't JSON.
    """

    responses: list[tuple[int, Any]] = field(default_factory=list)
    _versions: dict[str, list[str]] = field(default_factory=dict)
    _uids: dict[str, list[str]] = field(default_factory=dict)
    _continue: str = ""
    _first_version: str = ""

    def filled(self, value: Any) -> Any:
        """Return a part of a request with its placeholders replaced."""
        if isinstance(value, dict):
            return {key: self.filled(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.filled(item) for item in value]
        words = value.split() if isinstance(value, str) else []
        match words:
            case ["$continue"]:
                value = self._continue
            case ["$version", kind, name, age]:
                value = _pick(self._versions.get(f"{kind} {name}", []), int(age), self._first_version)
            case ["$uid", kind, name, age]:
                value = _pick(self._uids.get(f"{kind} {name}", []), int(age), UNKNOWN_UID)
        return value

    def add(self, step: Step, status: int, body: Any) -> None:
        """Add a response."""
        self.responses.append((status, body))
        if not isinstance(body, dict) or not isinstance(metadata := body.get("metadata"), dict):
            return
        self._continue = metadata.get("continue") or self._continue
        if "uid" in metadata and "resourceVersion" in metadata:
            self._first_version = self._first_version or metadata["resourceVersion"]
            kind = _KINDS[resource_in(step.path)]
            for known, name in ((self._versions, "resourceVersion"), (self._uids, "uid")):
                values = known.setdefault(f"{kind} {metadata['name']}", [])
                if metadata[name] not in values:
                    values.append(metadata[name])

    def normalized(self) -> list[tuple[int, Any]]:
        """Return the responses without what legitimately differs between two servers."""
        versions = sorted({int(version) for _, body in self.responses for version in _versions_in(body)})
        normalizer = _Normalizer({str(version): number for number, version in enumerate(versions)}, {})
        return [(status, normalizer.value(body)) for status, body in self.responses]


def resource_in(path: str) -> str:
    """Return the plural of the kind in a path, empty if there is none."""
    return next((part for part in reversed(path.split("/")) if part in _KINDS), "")


def _pick(values: list[str], age: int, default: str) -> str:
    """Return the value at an index, or the nearest one."""
    return values[max(-len(values), min(age, len(values) - 1))] if values else default


def _versions_in(value: Any) -> Iterator[str]:
    """Yield the versions of all objects in a response; not that of a list, which other writers count up too."""
    if isinstance(value, list):
        for item in value:
            yield from _versions_in(item)
    elif isinstance(value, dict):
        metadata = value.get("metadata")
        if isinstance(metadata, dict) and "items" not in value and metadata.get("resourceVersion"):
            yield metadata["resourceVersion"]
        yield from _versions_in(list(value.values()))


@dataclass(slots=True)
class _Normalizer:
    """Replaces values: versions by their order, uids and generated names by numbers."""

    order: dict[str, int]
    aliases: dict[str, str]

    def value(self, value: Any) -> Any:
        """Return a normalized part of a response. Mappings are visited in the order of their keys."""
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if not isinstance(value, dict):
            return value
        if value.get("kind") == "Status":
            return self._status(value)
        fields = {key: self._field(key, item) for key, item in sorted(value.items()) if key != "managedFields"}
        if "items" in value:
            fields["metadata"]["resourceVersion"] = "<version of the list>"
        return {key: item for key, item in fields.items() if key != "creationTimestamp" or item is not None}

    def _status(self, status: RawObject) -> RawObject:
        """Return what programs evaluate of a Status."""
        details = {
            key: item for key, item in (status.get("details") or {}).items() if key in ("kind", "name", "group", "uid")
        }
        return {"details": self.value(details), **{key: status.get(key) for key in ("code", "reason", "status")}}

    def _field(self, key: str, item: Any) -> Any:
        if key in _TIMES and item is not None:
            return "<time>"
        if key == "uid" or (key == "name" and isinstance(item, str) and item.startswith(GENERATED)):
            return self.aliases.setdefault(item, f"<{key} {len(self.aliases)}>")
        if key == "continue":
            return item and "<token>"
        return self.order.get(item, item) if key == "resourceVersion" else self.value(item)
