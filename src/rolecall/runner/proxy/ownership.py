"""References of a dependent to its primary: owner references and annotations.

Garbage collection follows owner references. These cannot cross namespaces, and a cluster-scoped object cannot have a
namespaced owner. In these cases two annotations name the primary for the operator; the garbage collector ignores them.
All functions are pure and do not change their arguments.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from rolecall.kube.metadata import (
    PRIMARY_ANNOTATION,
    PRIMARY_TYPE_ANNOTATION,
    annotation_of,
    metadata_of,
    owner_references_of,
)
from rolecall.kube.references import GVK, ObjectKey, RawObject

ADOPT_ANNOTATION: Final = "rolecall.dev/adopt"


class Ownership(Enum):
    """How a dependent names its primary."""

    OWNER_REFERENCE = "owner reference"
    ANNOTATION = "annotation"


@dataclass(frozen=True, slots=True)
class Owner:
    """The attributes of a primary that its dependents refer to."""

    gvk: GVK
    key: ObjectKey
    uid: str
    namespaced: bool

    @property
    def type_annotation(self) -> str:
        """The primary's kind in the format of the annotation: ``Kind.group``, or ``Kind`` for the core group."""
        return f"{self.gvk.kind}.{self.gvk.group}" if self.gvk.group else self.gvk.kind

    def refers_to(self, gvk: GVK, key: ObjectKey) -> bool:
        """Return whether a kind, in any version, and a key identify the primary itself."""
        return (gvk.group, gvk.kind, key) == (self.gvk.group, self.gvk.kind, self.key)


def ownership_of(obj: RawObject, owner: Owner) -> Ownership | None:
    """Return how the object names this owner, None if it does not."""
    references = owner_references_of(obj) if isinstance(metadata_of(obj).get("ownerReferences"), list) else ()
    if any(reference.uid == owner.uid for reference in references):
        return Ownership.OWNER_REFERENCE
    named = (annotation_of(obj, PRIMARY_TYPE_ANNOTATION), annotation_of(obj, PRIMARY_ANNOTATION))
    return Ownership.ANNOTATION if named == (owner.type_annotation, str(owner.key)) else None


def is_event(gvk: GVK) -> bool:
    """Return whether this is the Event kind; Events expire and need no owner."""
    return gvk.kind == "Event" and gvk.group in ("", "events.k8s.io")


def target_ownership(owner: Owner, namespace: str, obj: RawObject, existing: RawObject | None) -> Ownership | None:
    """Return how an object must name its owner after a write, None if the write doesn't set it.

    ``namespace`` is empty for a cluster-scoped object; ``existing`` is the object before the write, None if there is
    none. With its annotation, a role adopts an existing object, or creates an object without an owner.
    """
    adopts = annotation_of(obj, ADOPT_ANNOTATION)
    if existing is not None and adopts != "true":
        current = ownership_of(existing, owner)
        sets_references = "ownerReferences" in metadata_of(obj)
        return None if current is Ownership.OWNER_REFERENCE and sets_references else current
    requested = ownership_of(obj, owner)
    if requested is not None or adopts == "false":
        return requested
    is_in_reach = not owner.namespaced or namespace == owner.key.namespace
    return Ownership.OWNER_REFERENCE if is_in_reach else Ownership.ANNOTATION


def primary_named_by(obj: RawObject) -> tuple[str, str]:
    """Return the kind and the key in the two annotations of an object, empty if it has none."""
    return annotation_of(obj, PRIMARY_TYPE_ANNOTATION) or "", annotation_of(obj, PRIMARY_ANNOTATION) or ""


def with_kept(obj: RawObject, references: list[Any], annotations: Mapping[str, str | None], owner: Owner) -> RawObject:
    """Return a copy that repeats owner references and annotations, which the write would drop from the existing object.

    The body's own fields win: it may name its owners, and a primary in the annotations, itself. A body that names only
    this owner is meant for a new object, so it is joined with the others. The object itself is returned if it needs
    nothing. Raises ValueError for malformed metadata.
    """
    metadata = _field(obj, "metadata", dict)
    own = _field(metadata, "annotations", dict)
    has_primary = PRIMARY_ANNOTATION in own or PRIMARY_TYPE_ANNOTATION in own
    taken = {*own, PRIMARY_ANNOTATION, PRIMARY_TYPE_ANNOTATION} if has_primary else own
    repeated: dict[str, Any] = {}
    if missing := {name: value for name, value in annotations.items() if name not in taken}:
        repeated["annotations"] = {**missing, **own}
    given = _field(metadata, "ownerReferences", list)
    if given and all(isinstance(raw, dict) and raw.get("uid") == owner.uid for raw in given):
        references = [*(raw for raw in references if raw.get("uid") != owner.uid), *given]
    elif "ownerReferences" in metadata:
        references = given
    if references != given:
        repeated["ownerReferences"] = references
    return obj | {"metadata": metadata | repeated} if repeated else obj


def with_owner(obj: RawObject, owner: Owner, ownership: Ownership) -> RawObject:
    """Return a copy that names the owner; an object that already has the owner reference is returned unchanged.

    Raises ValueError for malformed metadata.
    """
    if ownership is Ownership.ANNOTATION:
        annotations = {PRIMARY_ANNOTATION: str(owner.key), PRIMARY_TYPE_ANNOTATION: owner.type_annotation}
        metadata = _field(obj, "metadata", dict)
        return obj | {"metadata": metadata | {"annotations": _field(metadata, "annotations", dict) | annotations}}
    if ownership_of(obj, owner) is Ownership.OWNER_REFERENCE:
        return obj
    metadata = _field(obj, "metadata", dict)
    gvk, key, uid = owner.gvk, owner.key, owner.uid
    reference = {"apiVersion": gvk.api_version, "kind": gvk.kind, "name": key.name, "uid": uid}
    references = [*_field(metadata, "ownerReferences", list), reference]
    return obj | {"metadata": metadata | {"ownerReferences": references}}


def _field(mapping: dict[str, Any], name: str, expected: type) -> Any:
    """Return the value of a field, an empty value if it is missing or null."""
    value = mapping.get(name)
    if value is None:
        return expected()
    if not isinstance(value, expected):
        raise ValueError(f"{name} is {value!r}, expected a {expected.__name__}")  # noqa: TRY004 - the input is invalid
    return value
