"""How an object that a run creates is tied to the primary that the run is for.

Garbage collection follows owner references, which may not cross namespaces nor lead from a cluster-scoped object to a
namespaced owner. Where they may not, two annotations say the same to the operator, though not to the garbage collector.
All functions are pure and leave their arguments as they are.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from rolecall.kube.metadata import annotation_of, metadata_of, owner_references_of
from rolecall.kube.owner_annotations import PRIMARY_ANNOTATION, PRIMARY_TYPE_ANNOTATION
from rolecall.kube.references import GVK, ObjectKey, RawObject

ADOPT_ANNOTATION: Final = "rolecall.dev/adopt"


class Ownership(Enum):
    """The way in which a dependent names its primary."""

    OWNER_REFERENCE = "owner reference"
    ANNOTATION = "annotation"


@dataclass(frozen=True, slots=True)
class Owner:
    """A primary, as far as its dependents name it."""

    gvk: GVK
    key: ObjectKey
    uid: str
    namespaced: bool

    @property
    def type_annotation(self) -> str:
        """The text that stands for the primary's kind in an annotation: ``Kind.group``, ``Kind`` for the core group."""
        return f"{self.gvk.kind}.{self.gvk.group}" if self.gvk.group else self.gvk.kind

    def is_object(self, gvk: GVK, key: ObjectKey) -> bool:
        """Tell whether a kind, in any version, and a key mean the primary itself."""
        return (gvk.group, gvk.kind, key) == (self.gvk.group, self.gvk.kind, self.key)


def ownership_between(owner: Owner, namespace: str) -> Ownership:
    """Return how a dependent in this namespace (empty for a cluster-scoped one) has to name its owner."""
    if not owner.namespaced or namespace == owner.key.namespace:
        return Ownership.OWNER_REFERENCE
    return Ownership.ANNOTATION


def ownership_of(obj: RawObject, owner: Owner) -> Ownership | None:
    """Return how the object names this very owner, None when it does not."""
    references = owner_references_of(obj) if isinstance(metadata_of(obj).get("ownerReferences"), list) else ()
    if any(reference.uid == owner.uid for reference in references):
        return Ownership.OWNER_REFERENCE
    named = (annotation_of(obj, PRIMARY_TYPE_ANNOTATION), annotation_of(obj, PRIMARY_ANNOTATION))
    return Ownership.ANNOTATION if named == (owner.type_annotation, str(owner.key)) else None


def is_report(gvk: GVK) -> bool:
    """Tell whether objects of this kind only report something: nobody owns them, and the API server forgets them."""
    return gvk.kind == "Event" and gvk.group in ("", "events.k8s.io")


def asks_for_adoption(obj: RawObject) -> bool:
    """Tell whether the object carries the annotation by which a role takes over an object that exists."""
    return annotation_of(obj, ADOPT_ANNOTATION) == "true"


def asks_for_no_owner(obj: RawObject) -> bool:
    """Tell whether the object carries the annotation by which a role keeps what it creates free of an owner."""
    return annotation_of(obj, ADOPT_ANNOTATION) == "false"


def with_owner(obj: RawObject, owner: Owner, ownership: Ownership) -> RawObject:
    """Return a copy that names the owner; one that names it already, in its own words, comes back as it is.

    Raises ValueError for metadata that is not of the form that Kubernetes knows.
    """
    if ownership is Ownership.ANNOTATION:
        annotations = {PRIMARY_ANNOTATION: str(owner.key), PRIMARY_TYPE_ANNOTATION: owner.type_annotation}
        metadata = _field(obj, "metadata", dict)
        return obj | {"metadata": metadata | {"annotations": _field(metadata, "annotations", dict) | annotations}}
    if ownership_of(obj, owner) is Ownership.OWNER_REFERENCE:
        return obj
    metadata = _field(obj, "metadata", dict)
    references = _field(metadata, "ownerReferences", list)
    return obj | {"metadata": metadata | {"ownerReferences": [*references, _owner_reference(owner)]}}


def _owner_reference(owner: Owner) -> dict[str, str]:
    return {
        "apiVersion": owner.gvk.api_version,
        "kind": owner.gvk.kind,
        "name": owner.key.name,
        "uid": owner.uid,
    }


def _field(mapping: dict[str, Any], name: str, expected: type) -> Any:
    """Return a field's value, an empty one for a field that is missing or null."""
    value = mapping.get(name)
    if value is None:
        return expected()
    if not isinstance(value, expected):
        raise ValueError(f"{name} is {value!r}, expected a {expected.__name__}")  # noqa: TRY004 - what was sent is wrong, not our call
    return value
