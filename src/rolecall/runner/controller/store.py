"""The informer's store: an entry per object with its metadata, a digest, and fingerprints of the requested fields.

Predicates and triggers compare entries, not objects. Every object of a watched kind has an entry, so entries are small:
common strings are shared, empty mappings are shared, and the object itself is not kept. Only the informer writes to its
store.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from rolecall.kube.field_paths import FieldPath, digest_of
from rolecall.kube.metadata import generation_of, is_being_deleted, metadata_of, owner_references_of
from rolecall.kube.owner_annotations import PRIMARY_ANNOTATION, PRIMARY_TYPE_ANNOTATION
from rolecall.kube.references import GVK, ObjectKey, OwnerReference, RawObject
from rolecall.kube.shared_strings import shared, shared_labels
from rolecall.runner.controller.content_digests import content_digest
from rolecall.runner.controller.field_checksums import Outline

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
