"""Objects of which only the metadata can be read.

An object may be nested more deeply than Python's JSON parser can go, or be longer than we want to hold. The API server
then sends its metadata alone, as PartialObjectMetadata. So the object can be named and skipped, and everything after it
is read.
"""

from typing import Final

from rolecall.kube.metadata import resource_version_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.system.logs import get_logger

logger = get_logger("client")

ACCEPT_PARTIAL_OBJECT: Final = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
ACCEPT_PARTIAL_LIST: Final = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
_KIND: Final = "PartialObjectMetadata"
# The last field of the metadata. In a JSON string the quotes would be escaped, and an annotation is no list.
_MANAGED_FIELDS: Final = b',"managedFields":['


def is_partial(obj: RawObject) -> bool:
    """Return whether an object has only its metadata, because the rest cannot be read."""
    return obj.get("kind") == _KIND


def partial_object(obj: RawObject) -> RawObject:
    """Return the metadata of an object, in a form that ``is_partial`` recognizes."""
    return {"apiVersion": "meta.k8s.io/v1", "kind": _KIND, "metadata": obj.get("metadata") or {}}


def without_managed_fields(text: bytes, closing: bytes) -> bytes:
    """Return the JSON of one object's metadata without its managed fields, which are nested like the object itself.

    ``closing`` are the brackets that follow the metadata's fields. The text of several objects is returned unchanged.
    """
    if text.count(_MANAGED_FIELDS) != 1:
        return text
    return text.partition(_MANAGED_FIELDS)[0] + closing


def log_unreadable(gvk: GVK, obj: RawObject, reason: str) -> None:
    """Log that an object is skipped, with its name and version."""
    logger.error(
        "Skipping an object that cannot be read; make it smaller or less deeply nested, or delete it",
        gvk=str(gvk),
        object=str(ObjectKey.of_object(obj)),
        resource_version=resource_version_of(obj),
        reason=reason,
    )
