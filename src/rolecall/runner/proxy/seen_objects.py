"""What a response shows of an object that matters after its run: whether it is the primary's own, and whether it waits.

An object is the primary's *own* if its mark says that a run has created it for this primary, if it names the primary as
its only owner, exists because of the role alone, and no user has opted it out. Adopted objects aren't, nor those of a
Helm release, whose unchanged parts no run requests.

An object that *waits* isn't in a final state: a role that reads it may do less than it will do later. Whether an object
has an address doesn't count, nor do kinds without any state.
"""

from dataclasses import dataclass
from typing import Any, Final

from rolecall.kube.metadata import annotation_of, is_being_deleted, owner_references_of, status_of, uid_of
from rolecall.kube.readiness import Readiness, verdict_on
from rolecall.kube.references import GVK, ObjectKey, RawObject, plural_of
from rolecall.runner.proxy.made_for import has_uid_in_mark, is_helms, is_prunable, kind_of, marked_primary
from rolecall.runner.proxy.ownership import ADOPT_ANNOTATION, Owner, Ownership, ownership_of
from rolecall.runner.proxy.request_info import RequestInfo

_WORKLOADS: Final = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")
_KINDS: Final = {plural_of(kind): kind for kind in (*_WORKLOADS, "Pod", "Job", "PersistentVolumeClaim")}
_KINDS_WITH_CHECKS: Final = frozenset(("apps", kind) for kind in _WORKLOADS) | {("", "Pod"), ("batch", "Job")}
_PROGRESS: Final = ("Progressing", "Reconciling", "Updating")
FINAL_PHASES: Final = frozenset(
    {"active", "available", "bound", "complete", "completed", "deployed", "done", "finished", "healthy", "installed"}
    | {"ok", "online", "provisioned", "ready", "running", "succeeded", "success", "synced", "up"}
)
"""The phases of a status, in lower case, in which an object stays as it is; in any other it may change soon."""


@dataclass(frozen=True, slots=True)
class SeenObject:
    """An object in a response."""

    key: ObjectKey
    uid: str
    is_own: bool
    waits_for: str = ""
    """Why the object waits, empty if it doesn't."""

    made_for: str = ""
    """The uid of the primary in its mark if that is another one, else empty."""

    has_uid_in_mark: bool = False

    is_dependent: bool = False
    """Whether it names the primary of the run, with or without a mark."""


def is_own(obj: RawObject, owner: Owner, group: str, kind: str) -> bool:
    """Return whether an object of a kind was made for this owner, and belongs to it alone; see the module."""
    if marked_primary({**obj, "kind": kind}, group) != owner.uid:
        return False
    ownership, references = ownership_of(obj, owner), owner_references_of(obj)
    has_other_owner = len(references) > (1 if ownership is Ownership.OWNER_REFERENCE else 0)
    is_taken = annotation_of(obj, ADOPT_ANNOTATION) == "true" or is_helms(obj) or not is_prunable(group, kind, obj)
    return ownership is not None and not (has_other_owner or is_taken or is_being_deleted(obj))


def seen_object(info: RequestInfo, obj: RawObject, owner: Owner, now: float) -> SeenObject:
    """Return an object in the response to a request as a SeenObject; ``now`` is the wall clock time in seconds."""
    primary = marked_primary(obj, info.group)
    made_for = primary if primary not in (owner.uid, "") and uid_of(obj) != owner.uid else ""
    waits_for = "" if uid_of(obj) == owner.uid else why_waiting(info, obj, now)  # the run is what the primary waits for
    own, dependent = is_own(obj, owner, info.group, kind_of(obj)), ownership_of(obj, owner) is not None
    return SeenObject(ObjectKey.of_object(obj), uid_of(obj), own, waits_for, made_for, has_uid_in_mark(obj), dependent)


def why_waiting(info: RequestInfo, obj: RawObject, now: float) -> str:
    """Return why an object isn't in a final state, empty if it is. A Job waits until it has finished."""
    kind, status = str(obj.get("kind") or _KINDS.get(info.resource, "")), status_of(obj)  # items of lists have none
    if (info.group, kind) == ("batch", "Job"):
        ended = {each["type"] for each in status.get("conditions") or () if each["status"] == "True"}
        if not ended & {"Complete", "Failed"}:
            return "not finished"
    verdict = verdict_on(GVK(info.group, info.version, kind), obj, now)
    if verdict.readiness is not Readiness.READY:
        return verdict.reason or verdict.readiness.value
    if info.resource in ("endpoints", "endpointslices"):
        return "" if _has_ready_endpoint(obj) else "no ready address"
    return "" if (info.group, kind) in _KINDS_WITH_CHECKS else _why_unfinished(status)


def _why_unfinished(status: RawObject) -> str:
    """Return which condition or phase of a kind without separate checks shows that it may change soon."""
    conditions = status.get("conditions")
    known = {
        each.get("type"): each.get("status")
        for each in (conditions if isinstance(conditions, list) else ())
        if isinstance(each, dict)
    }
    if known.get("Available") == "False":
        return "not Available"
    for name in _PROGRESS:
        if known.get(name) == "True":
            return name
    phase = status.get("phase")
    return str(phase) if isinstance(phase, str) and phase and phase.lower() not in FINAL_PHASES else ""


def _has_ready_endpoint(obj: RawObject) -> bool:
    """Return whether Endpoints, or an EndpointSlice, have an address that takes requests."""
    subsets: Any = obj.get("subsets") or ()
    endpoints: Any = obj.get("endpoints") or ()
    is_ready = any((each.get("conditions") or {}).get("ready") is not False for each in endpoints)
    return is_ready or any(each.get("addresses") for each in subsets)
