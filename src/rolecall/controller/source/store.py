"""What an informer remembers of the objects of one kind: metadata, a digest, and the fields that somebody asked for.

The API server is the cache for whole objects; an entry is what predicates and triggers compare a change with, and
must stay small because every object of a watched kind has one: names are interned, empty mappings shared, and nothing
of the raw object is kept. The informer of the kind is the only writer.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from rolecall.controller.field_paths import FieldPath, digest_of
from rolecall.controller.source.outline import Outline
from rolecall.kube.metadata import generation_of, is_being_deleted, metadata_of, owner_references_of
from rolecall.kube.owner_annotations import PRIMARY_ANNOTATION, PRIMARY_TYPE_ANNOTATION
from rolecall.kube.references import GVK, ObjectKey, OwnerReference, RawObject

NOTHING: Mapping[str, str] = MappingProxyType({})
# What the API server changes with every write, or derives from another field.
_RESTLESS = ("resourceVersion", "managedFields", "generation")
# What controllers of Kubernetes keep for themselves in annotations: a role neither asks for it nor can keep it.
_BOOKKEEPING = (
    "control-plane.alpha.kubernetes.io/leader",
    "deployment.kubernetes.io/",
    "deprecated.daemonset.template.generation",
    "endpoints.kubernetes.io/last-change-trigger-time",
    "pv.kubernetes.io/",
    "volume.kubernetes.io/",
)


@dataclass(slots=True)
class Entry:
    """One object as the informer last saw it.

    ``digest`` covers everything but the status and what changes with every write or is kept by controllers for
    themselves; ``values`` are the fingerprints of the fields that the informer's consumers asked for, in the
    informer's order; ``outline`` tells people what changed. The two annotations of ownership are empty when absent.
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
    deleting: bool
    digest: bytes
    values: tuple[Any, ...]
    outline: Outline

    @property
    def key(self) -> ObjectKey:
        """Where the object lies."""
        return ObjectKey(self.namespace, self.name)

    @classmethod
    def of(cls, obj: RawObject, fields: Iterable[FieldPath] = ()) -> "Entry":
        """Read an entry out of an object."""
        metadata = metadata_of(obj)
        annotations = _text_mapping(metadata.get("annotations"))
        return cls(
            namespace=sys.intern(str(metadata.get("namespace") or "")),
            name=str(metadata.get("name") or ""),
            uid=str(metadata.get("uid") or ""),
            resource_version=str(metadata.get("resourceVersion") or ""),
            generation=generation_of(obj),
            labels=_text_mapping(metadata.get("labels")),
            annotations_digest=digest_of(dict(annotations)) if annotations else b"",
            owners=owner_references_of(obj),
            primary_resource=annotations.get(PRIMARY_ANNOTATION, ""),
            primary_resource_type=annotations.get(PRIMARY_TYPE_ANNOTATION, ""),
            deleting=is_being_deleted(obj),
            digest=_digest(obj, metadata),
            values=tuple(path.fingerprint(obj) for path in fields),
            outline=Outline.of(obj),
        )

    def as_object(self, gvk: GVK) -> RawObject:
        """Make the object that is left of it when it is gone: kind, names, version and labels."""
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
        """Count the objects."""
        return sum(len(entries) for entries in self._namespaces.values())

    def __iter__(self) -> Iterator[Entry]:
        """Iterate over all objects."""
        for entries in self._namespaces.values():
            yield from entries.values()

    def get(self, key: ObjectKey) -> Entry | None:
        """Return what is known of an object, None when there is none."""
        return self._namespaces.get(key.namespace, {}).get(key.name)

    def in_namespace(self, namespace: str) -> Iterator[Entry]:
        """Iterate over the objects of one namespace; the empty one holds the cluster-scoped."""
        return iter(self._namespaces.get(namespace, {}).values())

    def put(self, entry: Entry) -> Entry | None:
        """Remember an object and return what was known of it before."""
        entries = self._namespaces.setdefault(entry.namespace, {})
        before = entries.get(entry.name)
        entries[entry.name] = entry
        return before

    def remove(self, key: ObjectKey) -> Entry | None:
        """Forget an object and return what was known of it."""
        entries = self._namespaces.get(key.namespace, {})
        before = entries.pop(key.name, None)
        if before is not None and not entries:
            del self._namespaces[key.namespace]
        return before


def _text_mapping(raw: object) -> Mapping[str, str]:
    """Return labels or annotations; every object of a kind shares the texts that repeat."""
    if not isinstance(raw, dict) or not raw:
        return NOTHING
    return {sys.intern(str(name)): sys.intern(str(value)) for name, value in raw.items()}


def _digest(obj: RawObject, metadata: Mapping[str, Any]) -> bytes:
    lasting = {name: value for name, value in obj.items() if name != "status"}
    lasting["metadata"] = {name: value for name, value in metadata.items() if name not in _RESTLESS}
    annotations = metadata.get("annotations")
    if isinstance(annotations, dict):
        del lasting["metadata"]["annotations"]
        if kept := {name: value for name, value in annotations.items() if not str(name).startswith(_BOOKKEEPING)}:
            lasting["metadata"]["annotations"] = kept
    return digest_of(lasting)
