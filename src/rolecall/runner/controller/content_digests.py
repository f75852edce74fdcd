"""Digests of the content of objects, without what changes by itself and means nothing to a role."""

from typing import Any, Final

from rolecall.kube.field_paths import digest_of
from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import RawObject

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
