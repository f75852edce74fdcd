"""Pure functions on the metadata of objects: owners, finalizers, generation, deletion.

No function changes its argument; functions that edit return a copy. A field of an invalid type counts as missing,
because objects can come from any source.

Equal names, namespaces and labels of many objects are shared strings. They are not interned, because Python 3.12.0 and
3.12.1 never free an interned string, and users may write any number of them. Only the most recent short strings are
shared, and all others are freed with their objects.
"""

import copy
import json
from functools import lru_cache
from typing import Any, Final

from rolecall.kube.references import OwnerReference, RawObject

# Where an owner reference is not allowed, these annotations of the Operator SDK tie a dependent to its primary, so that
# the dependents of the Go runner are recognized. The proxy writes them, and informers read them.
PRIMARY_ANNOTATION: Final = "operator-sdk/primary-resource"
"""The primary: ``namespace/name``."""

PRIMARY_TYPE_ANNOTATION: Final = "operator-sdk/primary-resource-type"
"""The primary's kind: ``Kind.group``, ``Kind`` for the core group."""

FINALIZER_OF_ANNOTATION: Final = "rolecall.dev/finalizer-of"
"""The selector of the operator that has added the finalizer: several operators of a kind may have one finalizer."""

_MAX_SHARED_CHARACTERS: Final = 512
"""A namespace has at most 63 characters, the name of a label 317."""


def metadata_of(obj: RawObject) -> dict[str, Any]:
    """Return the object's metadata, or an empty mapping."""
    found = obj.get("metadata")
    return found if isinstance(found, dict) else {}


def spec_of(obj: RawObject) -> dict[str, Any]:
    """Return the spec of an object; empty if there is none, or if it isn't a mapping."""
    found = obj.get("spec")
    return found if isinstance(found, dict) else {}


def status_of(obj: RawObject) -> dict[str, Any]:
    """Return the status of an object; empty if there is none, or if it isn't a mapping."""
    found = obj.get("status")
    return found if isinstance(found, dict) else {}


def uid_of(obj: RawObject) -> str:
    """Return the object's uid, or an empty string."""
    return str(metadata_of(obj).get("uid") or "")


def resource_version_of(obj: RawObject) -> str:
    """Return the object's resourceVersion, or an empty string."""
    return str(metadata_of(obj).get("resourceVersion") or "")


def is_later(version: str, other: str) -> bool:
    """Return whether a resourceVersion is later than another of the same kind.

    They are ordered if they are numbers, since Kubernetes 1.35 by contract.
    """
    return version.isdecimal() and other.isdecimal() and int(version) > int(other)


def generation_of(obj: RawObject) -> int:
    """Return the object's generation, 0 for kinds without one."""
    found = metadata_of(obj).get("generation")
    return found if isinstance(found, int) else 0


def annotation_of(obj: RawObject, name: str) -> str | None:
    """Return the value of an annotation, or None."""
    annotations = metadata_of(obj).get("annotations")
    return annotations.get(name) if isinstance(annotations, dict) else None


def owner_references_of(obj: RawObject) -> tuple[OwnerReference, ...]:
    """Return the owner references in order."""
    found = metadata_of(obj).get("ownerReferences")
    return tuple(OwnerReference.from_raw(raw) for raw in _list(found) if isinstance(raw, dict))


def _list(found: object) -> list[Any]:
    return found if isinstance(found, list) else []


def applied_metadata(obj: RawObject, manager: str) -> tuple[set[str], set[str]]:
    """Return the uids of the owner references, and the names of the annotations, that a field manager has applied.

    See "Server-side apply" in the Kubernetes documentation for ``managedFields``.
    """
    uids, annotations = set(), set()
    for entry in _list(metadata_of(obj).get("managedFields")):
        if (entry.get("manager"), entry.get("operation"), entry.get("subresource", "")) == (manager, "Apply", ""):
            fields = (entry.get("fieldsV1") or {}).get("f:metadata") or {}
            annotations |= {name.removeprefix("f:") for name in fields.get("f:annotations") or ()}
            keys = (name.removeprefix("k:") for name in fields.get("f:ownerReferences") or () if name.startswith("k:"))
            uids |= {json.loads(key)["uid"] for key in keys}
    return uids, annotations


def labels_of(obj: RawObject) -> dict[str, str]:
    """Return the labels of an object."""
    found = metadata_of(obj).get("labels")
    return found if isinstance(found, dict) else {}


def is_being_deleted(obj: RawObject) -> bool:
    """Return whether the object has a deletion timestamp."""
    return bool(metadata_of(obj).get("deletionTimestamp"))


def has_finalizer(obj: RawObject, name: str) -> bool:
    """Return whether the object has this finalizer."""
    return name in _list(metadata_of(obj).get("finalizers"))


def with_finalizer(obj: RawObject, name: str, selector: str) -> RawObject:
    """Return a copy with the finalizer, and the note of whose it is; see ``FINALIZER_OF_ANNOTATION``.

    ``selector`` is empty if the operator has none.
    """
    changed = copy.deepcopy(obj)
    metadata = changed.setdefault("metadata", {})
    finalizers = metadata.setdefault("finalizers", [])
    if name not in finalizers:
        finalizers.append(name)
    if selector:
        metadata["annotations"] = (metadata.get("annotations") or {}) | {FINALIZER_OF_ANNOTATION: selector}
    return changed


def without_finalizer(obj: RawObject, name: str) -> RawObject:
    """Return a copy without the finalizer and the note of whose it is."""
    changed = copy.deepcopy(obj)
    metadata = changed.setdefault("metadata", {})
    (metadata.get("annotations") or {}).pop(FINALIZER_OF_ANNOTATION, None)
    metadata["finalizers"] = [item for item in _list(metadata.get("finalizers")) if item != name]
    return changed


def shared(text: str) -> str:
    """Intern short strings, so that equal ones share memory."""
    return _recent(text) if len(text) <= _MAX_SHARED_CHARACTERS else text


def shared_labels(obj: RawObject) -> dict[str, str]:
    """Return the labels of an object as shared strings; a field of another type counts as missing."""
    return {shared(str(name)): shared(str(value)) for name, value in labels_of(obj).items()}


@lru_cache(maxsize=8192)
def _recent(text: str) -> str:
    return text
