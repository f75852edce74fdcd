"""The informer's store: an entry per object with its metadata, a digest, and fingerprints of the requested fields.

Predicates and triggers compare entries, not objects. Every object of a watched kind has an entry, so entries are small:
common strings are shared, empty mappings are shared, and the object itself is not kept. Only the informer writes to its
store.

The outline of an object: a checksum per field, to report later which fields changed.

Users want to know why a reconcile started; "the object was modified" is not enough. So the outline keeps a checksum of
four bytes for each field down to the second level (``spec.replicas``, ``status.phase``, ``metadata.labels``). Objects
with the same fields share one tuple of names. An object may have any number of fields, and a ConfigMap any number of
keys, so the names are limited: below a field with many names there are none, and the last fields have none. Outlines
are only used in messages. Predicates compare the digests and fingerprints of ``store`` and ``field_paths``.

Digests of the content of objects, without what changes by itself and means nothing to a role.

The change of an object, with its old and new state, as informers pass it to their handlers.

Predicates filter changes, triggers map them to requests, and the work queue keeps the cause of each request. A change
from a watch is complete: the watch delivers every version of the object. A change from a list is not: the informer may
have missed versions in between. So the cause of such a change has no uid and version, and it is never taken for an
own write.
"""

import marshal
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

from rolecall.kube.jsonpath import FieldPath, digest_of
from rolecall.kube.metadata import (
    PRIMARY_ANNOTATION,
    PRIMARY_TYPE_ANNOTATION,
    generation_of,
    is_being_deleted,
    metadata_of,
    owner_references_of,
    shared,
    shared_labels,
)
from rolecall.kube.references import GVK, ObjectKey, OwnerReference, RawObject
from rolecall.runner.controller.priorities import Priority
from rolecall.runner.controller.work_queue import Cause

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


# Fields that every write changes, or that follow from other fields.
_VOLATILE_METADATA: Final = ("resourceVersion", "managedFields", "generation")
# Annotations in which Kubernetes controllers keep their own state: roles neither read nor set them.
_CONTROLLER_ANNOTATIONS: Final = (
    "control-plane.alpha.kubernetes.io/leader",
    "deployment.kubernetes.io/",
    "deprecated.daemonset.template.generation",
    "endpoints.kubernetes.io/last-change-trigger-time",
    "pv.kubernetes.io/",
    "volume.kubernetes.io/",
)


def content_digest(obj: RawObject, *, with_status: bool) -> bytes:
    """Return a digest of an object without volatile metadata and the annotations of Kubernetes controllers."""
    metadata = metadata_of(obj)
    stable: dict[str, Any] = {name: value for name, value in obj.items() if with_status or name != "status"}
    stable["metadata"] = {name: value for name, value in metadata.items() if name not in _VOLATILE_METADATA}
    annotations = metadata.get("annotations")
    if isinstance(annotations, dict):
        del stable["metadata"]["annotations"]
        kept = {key: value for key, value in annotations.items() if not str(key).startswith(_CONTROLLER_ANNOTATIONS)}
        if kept:
            stable["metadata"]["annotations"] = kept
    return digest_of(stable)


EMPTY: Mapping[str, str] = MappingProxyType({})


@dataclass(slots=True)
class Entry:
    """The last known state of an object.

    ``digest`` covers the object without its status, volatile metadata and the annotations of Kubernetes controllers.
    ``values`` are the fingerprints of the fields that the handlers subscribed to, in the informer's order. ``outline``
    is used to report which fields changed. The two ownership annotations are empty if the object does not have them.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    labels: Mapping[str, str]
    annotations_digest: bytes
    owners: tuple[OwnerReference, ...]
    primary_resource: str
    primary_resource_type: str
    is_deleting: bool
    digest: bytes
    values: tuple[Any, ...]
    outline: Outline

    @property
    def key(self) -> ObjectKey:
        """The object's key."""
        return ObjectKey(self.namespace, self.name)

    @classmethod
    def of(cls, obj: RawObject, fields: Iterable[FieldPath] = ()) -> "Entry":
        """Return the entry for an object."""
        metadata = metadata_of(obj)
        annotations = metadata.get("annotations")
        if not isinstance(annotations, dict):
            annotations = {}
        return cls(
            namespace=shared(str(metadata.get("namespace") or "")),
            name=str(metadata.get("name") or ""),
            uid=str(metadata.get("uid") or ""),
            resource_version=str(metadata.get("resourceVersion") or ""),
            generation=generation_of(obj),
            labels=shared_labels(obj) or EMPTY,
            annotations_digest=digest_of(annotations) if annotations else b"",
            owners=owner_references_of(obj),
            primary_resource=shared(str(annotations.get(PRIMARY_ANNOTATION, ""))),
            primary_resource_type=shared(str(annotations.get(PRIMARY_TYPE_ANNOTATION, ""))),
            is_deleting=is_being_deleted(obj),
            digest=content_digest(obj, with_status=False),
            values=tuple(path.fingerprint(obj) for path in fields),
            outline=Outline.of(obj),
        )

    def tombstone(self, gvk: GVK) -> RawObject:
        """Return what is known of a deleted object: kind, names, version and labels."""
        metadata: dict[str, Any] = {"name": self.name, "uid": self.uid, "resourceVersion": self.resource_version}
        if self.namespace:
            metadata["namespace"] = self.namespace
        if self.labels:
            metadata["labels"] = dict(self.labels)
        return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata}


class Store:
    """The entries of one kind, by namespace and name."""

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[str, Entry]] = {}

    def __len__(self) -> int:
        """Return the number of objects."""
        return sum(len(entries) for entries in self._namespaces.values())

    def __iter__(self) -> Iterator[Entry]:
        """Iterate over all objects."""
        for entries in self._namespaces.values():
            yield from entries.values()

    def get(self, key: ObjectKey) -> Entry | None:
        """Return the entry of an object, None if there is none."""
        return self._namespaces.get(key.namespace, {}).get(key.name)

    def in_namespace(self, namespace: str) -> Iterator[Entry]:
        """Iterate over the objects of one namespace (empty: the cluster-scoped objects)."""
        return iter(self._namespaces.get(namespace, {}).values())

    def put(self, entry: Entry) -> Entry | None:
        """Store an entry and return the previous one."""
        entries = self._namespaces.setdefault(entry.namespace, {})
        before = entries.get(entry.name)
        entries[entry.name] = entry
        return before

    def remove(self, key: ObjectKey) -> Entry | None:
        """Remove an object and return its entry."""
        entries = self._namespaces.get(key.namespace, {})
        before = entries.pop(key.name, None)
        if before is not None and not entries:
            del self._namespaces[key.namespace]
        return before


_NO_FIELDS: Mapping[FieldPath, int] = MappingProxyType({})


class ChangeType(StrEnum):
    """The type of a change."""

    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one object.

    ``old`` is None if the object was not known before, ``new`` is None if it is gone. ``obj`` is the object itself; do
    not keep it. For a deletion found by a list it has only kind, names, version and labels. ``from_watch`` is False for
    a change found by a list, ``in_initial_list`` is True for one found by the informer's first list. ``fields`` maps a
    field to the position of its fingerprint in ``Entry.values``.
    """

    type: ChangeType
    gvk: GVK
    old: Entry | None
    new: Entry | None
    obj: RawObject
    from_watch: bool = True
    in_initial_list: bool = False
    fields: Mapping[FieldPath, int] = field(default_factory=lambda: _NO_FIELDS)

    @property
    def entry(self) -> Entry:
        """The new entry, or the last known entry of an object that is gone."""
        entry = self.new or self.old
        if entry is None:
            raise ValueError(f"found a change of {self.gvk} without entries, expected an old or a new one")
        return entry

    @property
    def key(self) -> ObjectKey:
        """The object's key."""
        return self.entry.key

    def has_changed(self, paths: tuple[FieldPath, ...]) -> bool:
        """Return whether one of these fields was added, removed or changed, or has no fingerprint yet."""
        if self.old is None or self.new is None:
            return True
        before, after = self.old.values, self.new.values
        for path in paths:
            position = self.fields.get(path, -1)
            if not 0 <= position < min(len(before), len(after)) or before[position] != after[position]:
                return True
        return False

    def cause(self, text: str) -> Cause:
        """Return the cause of a request for this change; only one from a watch has the object's uid and version.

        The first list tells what is there and not that it has changed, so its causes have the lowest priority.
        """
        entry = self.entry
        if not self.from_watch:
            return Cause(text, priority=Priority.LOW if self.in_initial_list else Priority.MEDIUM)
        version = self.obj.get("metadata", {}).get("resourceVersion") or entry.resource_version
        return Cause(text, entry.uid, str(version), is_removal=self.new is None)

    @property
    def reason(self) -> str:
        """A description for users, for example ``Pod default/web: status.phase`` or ``Pod default/web deleted``."""
        subject = f"{self.gvk.kind} {self.key}"
        if self.old is None or self.new is None:
            verb = "found at startup" if self.in_initial_list else "created"
            return f"{subject} {'deleted' if self.new is None else verb}"
        fields = self.old.outline.changed_fields(self.new.outline)
        return f"{subject}: {summarize_fields(fields) if fields else 'updated without a visible change'}"

    def __str__(self) -> str:
        """Return a short form, for example ``Pod default/web modified``."""
        return f"{self.gvk.kind} {self.key} {self.type}"
