"""What a response shows of an object that matters after its run: whether it is the primary's own, and whether it waits.

An object is the primary's *own* if it names the primary as its only owner, exists because of the role alone, and
nobody has opted it out. Adopted objects aren't, nor those of a Helm release, whose unchanged parts no run requests.

An object that *waits* isn't in the state that its spec describes, by the conventions of kstatus: a role that reads it
may do less than it will do later. A kind without conventions never waits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from rolecall.kube.metadata import (
    annotation_of,
    generation_of,
    is_being_deleted,
    labels_of,
    owner_references_of,
    status_of,
    uid_of,
)
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.proxy.ownership import ADOPT_ANNOTATION, Owner, Ownership, ownership_of
from rolecall.runner.proxy.request_info import RequestInfo

PRUNE_ANNOTATION: Final = "rolecall.dev/prune"
"""On an object, ``"false"`` keeps it; on a primary, ``confirm`` permits deletions that look like a mistake."""

_HELM_LABEL, _HELM = "app.kubernetes.io/managed-by", "Helm"
_HELM_ANNOTATION: Final = "meta.helm.sh/release-name"
_READY_CONDITIONS: Final = ("Ready", "Available")
_WAITING_PHASES: Final = {("", "pods"): ("Pending",), ("", "persistentvolumeclaims"): ("Pending", "Lost")}
_FINISHED_PODS: Final = (("", "pods", "Succeeded"), ("", "pods", "Failed"))
_COUNTS: Final = {
    "deployments": ("spec.replicas", ("updatedReplicas", "availableReplicas")),
    "statefulsets": ("spec.replicas", ("updatedReplicas", "readyReplicas")),
    "replicasets": ("spec.replicas", ("readyReplicas",)),
    "daemonsets": ("status.desiredNumberScheduled", ("updatedNumberScheduled", "numberReady")),
}


@dataclass(frozen=True, slots=True)
class SeenObject:
    """An object in a response; ``owner_uid`` is that of its only owner if this is another object than the primary."""

    key: ObjectKey
    uid: str
    is_own: bool
    waits_for: str = ""
    """Why the object waits, empty if it doesn't."""

    owner_uid: str = ""
    is_kept: bool = False
    """Whether the object is opted out."""


def is_own(obj: RawObject, owner: Owner) -> bool:
    """Return whether an object belongs to this owner alone; see the module."""
    ownership, references = ownership_of(obj, owner), owner_references_of(obj)
    has_other_owner = len(references) > (1 if ownership is Ownership.OWNER_REFERENCE else 0)
    is_helms = labels_of(obj).get(_HELM_LABEL) == _HELM or annotation_of(obj, _HELM_ANNOTATION) is not None
    is_taken = annotation_of(obj, ADOPT_ANNOTATION) == "true" or annotation_of(obj, PRUNE_ANNOTATION) == "false"
    return ownership is not None and not (has_other_owner or is_helms or is_taken or is_being_deleted(obj))


def seen_object(info: RequestInfo, obj: RawObject, owner: Owner) -> SeenObject:
    """Return what matters of an object in the response to a request."""
    references = owner_references_of(obj)
    owner_uid = references[0].uid if len(references) == 1 and references[0].uid != owner.uid else ""
    is_kept = annotation_of(obj, PRUNE_ANNOTATION) == "false"
    waits = next(waiting_for(info.group, info.resource, obj), "")
    return SeenObject(ObjectKey.of_object(obj), uid_of(obj), is_own(obj, owner), waits, owner_uid, is_kept)


def waiting_for(group: str, resource: str, obj: RawObject) -> Iterator[str]:
    """Yield the reasons why an object isn't in the state of its spec."""
    status = status_of(obj)
    observed, phase = status.get("observedGeneration"), status.get("phase")
    if isinstance(observed, int) and observed < generation_of(obj):
        yield "its controller hasn't observed its spec"
    if group == "apps" and resource in _COUNTS:
        wanted_field, counts = _COUNTS[resource]
        wanted = _count(obj, wanted_field, 1)
        yield from (f"{name} is below {wanted}" for name in counts if _count(status, name, 0) < wanted)
    if phase in _WAITING_PHASES.get((group, resource), ()):
        yield f"it is {phase}"
    found = status.get("conditions")
    states = {each.get("type"): each.get("status") for each in found or () if isinstance(each, dict)}
    if (group, resource) == ("batch", "jobs") and "True" not in (states.get("Complete"), states.get("Failed")):
        yield "it hasn't finished"
    if (group, resource, phase) not in _FINISHED_PODS:
        yield from (f"it isn't {name}" for name in _READY_CONDITIONS if states.get(name, "True") != "True")


def _count(value: Any, path: str, default: int) -> int:
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, int) else default
