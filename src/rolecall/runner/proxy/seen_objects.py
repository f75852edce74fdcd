"""What a response shows of an object that matters after its run: whether it is the primary's own, and whether it waits.

An object is the primary's *own* if it names the primary as its only owner, exists because of the role alone, and
nobody has opted it out. Adopted objects aren't, nor those of a Helm release, whose unchanged parts no run requests.

An object that *waits* isn't in the state that its spec describes, in the sense of kstatus: a role that reads it may do
less than it will do later.
"""

from dataclasses import dataclass
from typing import Final

from rolecall.kube.metadata import (
    annotation_of,
    is_being_deleted,
    labels_of,
    owner_references_of,
    status_of,
    uid_of,
)
from rolecall.kube.readiness import Readiness, verdict_on
from rolecall.kube.references import GVK, ObjectKey, RawObject, plural_of
from rolecall.runner.proxy.ownership import ADOPT_ANNOTATION, Owner, Ownership, ownership_of
from rolecall.runner.proxy.request_info import RequestInfo

PRUNE_ANNOTATION: Final = "rolecall.dev/prune"
"""On an object, ``"false"`` keeps it; on a primary, ``confirm`` permits deletions that look like a mistake."""

_HELM_LABEL, _HELM = "app.kubernetes.io/managed-by", "Helm"
_HELM_ANNOTATION: Final = "meta.helm.sh/release-name"
_OBSERVED: Final = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Pod", "Job", "PersistentVolumeClaim")
_KINDS: Final = {plural_of(kind): kind for kind in _OBSERVED}


@dataclass(frozen=True, slots=True)
class SeenObject:
    """An object in a response."""

    key: ObjectKey
    uid: str
    is_own: bool
    waits_for: str = ""
    """Why the object waits, empty if it doesn't."""

    other_owner_uid: str = ""
    """The uid of its only owner if that isn't the primary; empty if the object is opted out."""


def is_own(obj: RawObject, owner: Owner) -> bool:
    """Return whether an object belongs to this owner alone; see the module."""
    ownership, references = ownership_of(obj, owner), owner_references_of(obj)
    has_other_owner = len(references) > (1 if ownership is Ownership.OWNER_REFERENCE else 0)
    is_helms = labels_of(obj).get(_HELM_LABEL) == _HELM or annotation_of(obj, _HELM_ANNOTATION) is not None
    is_taken = annotation_of(obj, ADOPT_ANNOTATION) == "true" or annotation_of(obj, PRUNE_ANNOTATION) == "false"
    return ownership is not None and not (has_other_owner or is_helms or is_taken or is_being_deleted(obj))


def seen_object(info: RequestInfo, obj: RawObject, owner: Owner, now: float) -> SeenObject:
    """Return an object in the response to a request as a SeenObject; ``now`` is the wall clock time in seconds."""
    references = owner_references_of(obj)
    is_of_other = len(references) == 1 and references[0].uid != owner.uid
    is_kept = annotation_of(obj, PRUNE_ANNOTATION) == "false"
    other_owner_uid = references[0].uid if is_of_other and not is_kept else ""
    waits_for = "" if uid_of(obj) == owner.uid else why_waiting(info, obj, now)  # the run is what the primary waits for
    return SeenObject(ObjectKey.of_object(obj), uid_of(obj), is_own(obj, owner), waits_for, other_owner_uid)


def why_waiting(info: RequestInfo, obj: RawObject, now: float) -> str:
    """Return why an object isn't in the state of its spec, empty if it is. A Job waits until it has finished."""
    kind = str(obj.get("kind") or _KINDS.get(info.resource, ""))  # items of lists have none
    if (info.group, kind) == ("batch", "Job"):
        ended = {each["type"] for each in status_of(obj).get("conditions") or () if each["status"] == "True"}
        if not ended & {"Complete", "Failed"}:
            return "not finished"
    verdict = verdict_on(GVK(info.group, info.version, kind), obj, now)
    return "" if verdict.readiness is Readiness.READY else verdict.reason or verdict.readiness.value
