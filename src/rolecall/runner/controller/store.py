"""The informer's store: an entry per object, and the change that an informer passes to its handlers.

Predicates and triggers compare entries, not objects. Every object of a watched kind has an entry, so entries are small:
common strings and empty mappings are shared, and the object itself isn't kept. Only the informer writes to its store.

Predicates filter changes, triggers map them to requests, and the work queue keeps the cause of each request. A change
from a watch is complete: the watch delivers every version of the object. A change from a list isn't: the informer may
have missed versions in between. So its cause has no uid and version, and it is never mistaken for an own write.
"""

import marshal
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
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
    is_later,
    metadata_of,
    owner_references_of,
    shared,
    shared_labels,
)
from rolecall.kube.references import GVK, ObjectKey, OwnerReference, RawObject
from rolecall.runner.controller.work_queue import Cause, Priority

# Metadata that every write changes, or that follows from other fields.
_VOLATILE_METADATA: Final = frozenset({"resourceVersion", "managedFields", "generation"})
# Annotations in which Kubernetes controllers keep their own state: roles neither read nor set them.
_CONTROLLER_ANNOTATIONS: Final = (
    "control-plane.alpha.kubernetes.io/leader",
    "deployment.kubernetes.io/",
    "deprecated.daemonset.template.generation",
    "endpoints.kubernetes.io/last-change-trigger-time",
    "pv.kubernetes.io/",
    "volume.kubernetes.io/",
)
_MARSHAL_FORMAT = 2  # the output of later formats depends on reference counts
_MAX_LISTED_FIELDS, _MAX_LISTED_LENGTH = 5, 200
_MAX_FIELDS = 256
_MAX_NAMES_BELOW = 100
_MAX_NAME_LENGTH = 128
EMPTY: Mapping[str, str] = MappingProxyType({})


def content_digest(obj: RawObject, *, with_status: bool) -> bytes:
    """Return a digest of an object without volatile metadata and the annotations of Kubernetes controllers."""
    stable: dict[str, Any] = {name: value for name, value in obj.items() if with_status or name != "status"}
    metadata = {name: value for name, value in metadata_of(obj).items() if name not in _VOLATILE_METADATA}
    annotations = metadata.get("annotations")
    if isinstance(annotations, dict):
        del metadata["annotations"]
        kept = {key: value for key, value in annotations.items() if not str(key).startswith(_CONTROLLER_ANNOTATIONS)}
        if kept:
            metadata["annotations"] = kept
    return digest_of(stable | {"metadata": metadata})


@dataclass(frozen=True, slots=True)
class FieldChecksums:
    """The sorted names of an object's fields, and a checksum of each, to report which fields changed.

    There are four bytes for each field down to the second level (``spec.replicas``, ``metadata.labels``), and objects
    with the same fields share the names. The names are limited, because an object may have any number of fields: below
    a field with many names there are none, and the last fields have none. They are used only in messages.
    """

    names: tuple[str, ...] = ()
    checksums: bytes = b""

    @classmethod
    def of(cls, obj: RawObject) -> "FieldChecksums":
        """Return the checksums of an object's fields."""
        fields = sorted(islice(_fields(obj), _MAX_FIELDS))
        checksums = array("I", (checksum for _, checksum in fields)).tobytes()
        return cls(_interned(tuple(name for name, _ in fields)), checksums)

    def changed_fields(self, other: "FieldChecksums") -> list[str]:
        """Return the sorted names of the fields that were added, removed or changed."""
        before, after = (dict(zip(each.names, array("I", each.checksums), strict=True)) for each in (self, other))
        return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _fields(obj: RawObject) -> Iterator[tuple[str, int]]:
    for top, value in obj.items():
        if top in ("apiVersion", "kind"):
            continue
        if not isinstance(value, dict) or len(value) > _MAX_NAMES_BELOW:
            yield top[:_MAX_NAME_LENGTH], _checksum(value)
            continue
        for name, item in value.items():
            if top != "metadata" or name not in _VOLATILE_METADATA:
                yield f"{top}.{name}"[:_MAX_NAME_LENGTH], _checksum(item)


def _checksum(value: Any) -> int:
    # The API server returns equal values in the same order, so sorting the keys, which is slow, isn't necessary.
    try:
        return zlib.crc32(marshal.dumps(value, _MARSHAL_FORMAT))
    except ValueError:  # too deeply nested for marshal: changes of this field are not reported
        return 0


@lru_cache(maxsize=1024)
def _interned(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the same tuple for equal ones, to save memory."""
    return names


@dataclass(slots=True)
class Entry:
    """The last known state of an object.

    ``digest`` covers the object without its status, volatile metadata and the annotations of Kubernetes controllers.
    ``values`` are the fingerprints of the fields that the handlers subscribed to, in the informer's order. The two
    ownership annotations are empty if the object doesn't have them.
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
    field_checksums: FieldChecksums

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
            field_checksums=FieldChecksums.of(obj),
        )

    def is_after(self, resource_version: str) -> bool:
        """Return whether this is a later version than another."""
        return is_later(self.resource_version, resource_version)

    def tombstone(self, gvk: GVK) -> RawObject:
        """Return the known parts of a deleted object: kind, names, version and labels."""
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


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one object.

    ``old`` is None if the object was unknown before, ``new`` is None if it was deleted. ``obj`` is the object itself;
    don't keep it. For a deletion found by a list it has only kind, names, version and labels. ``from_watch`` is False
    for a change found by a list, ``in_initial_list`` is True for one found by the informer's first list. ``fields``
    maps a field to the position of its fingerprint in ``Entry.values``.
    """

    gvk: GVK
    old: Entry | None
    new: Entry | None
    obj: RawObject
    from_watch: bool = True
    in_initial_list: bool = False
    fields: Mapping[FieldPath, int] = field(default_factory=dict)

    @property
    def entry(self) -> Entry:
        """The new entry, or the last known entry of a deleted object."""
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

        The first list contains existing objects, not changes, so its causes have the lowest priority.
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
        if self.new is None:
            return f"{subject} deleted"
        if self.old is None:
            return f"{subject} {'found at startup' if self.in_initial_list else 'created'}"
        fields = self.old.field_checksums.changed_fields(self.new.field_checksums)
        if not fields:
            return f"{subject}: updated without a visible change"
        shown = _MAX_LISTED_FIELDS
        while shown > 1 and sum(map(len, fields[:shown])) > _MAX_LISTED_LENGTH:
            shown -= 1
        hidden = len(fields) - shown
        return f"{subject}: {', '.join(fields[:shown])}" + (f" and {hidden} more" if hidden > 0 else "")
