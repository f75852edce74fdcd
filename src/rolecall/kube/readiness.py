"""The readiness of objects in the sense of kstatus, which Helm and Flux use, with the reason why one isn't ready.

There is one exception: for kstatus, a failed Pod is current, because it has ended.

The reason is a word of Kubernetes or a count. The message is text of another program, which may contain a secret. The
API server validates built-in kinds, so the types of their fields are known; those of other kinds aren't.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from rolecall.kube.metadata import generation_of, is_being_deleted, metadata_of, status_of
from rolecall.kube.references import GVK, RawObject

UNSCHEDULABLE_SECONDS: Final = 15
"""A Pod that can't be scheduled for longer has failed."""

_COUNTS: Final = {
    "Deployment": ("replicas", "updatedReplicas", "availableReplicas", "readyReplicas"),
    "ReplicaSet": ("fullyLabeledReplicas", "availableReplicas", "readyReplicas"),
    "StatefulSet": ("replicas", "readyReplicas", "currentReplicas"),
    "DaemonSet": ("currentNumberScheduled", "updatedNumberScheduled", "numberAvailable", "numberReady"),
}
"""The numbers in a status that must reach the wanted one."""

Conditions = Mapping[str, Mapping[str, Any]]
"""Conditions by their types."""


class Readiness(StrEnum):
    """Whether an object is what its spec requests."""

    READY = "ready"
    NOT_READY = "not ready"
    FAILED = "failed"
    DELETING = "deleting"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The readiness of an object, and why it isn't ready."""

    readiness: Readiness
    reason: str = ""
    message: str = ""


Check = tuple[bool, Readiness, Mapping[str, Any]]
"""Whether an object has a problem, its readiness then, and the condition, or the like, with the reason."""


def verdict_on(gvk: GVK, obj: RawObject, now: float) -> Verdict:
    """Return the readiness of an object; ``now`` is the wall clock."""
    for has_problem, readiness, why in _checks(gvk, obj, now):
        if has_problem:
            return Verdict(readiness, *(str(why.get(name) or "") for name in ("reason", "message")))
    return Verdict(Readiness.READY)


def _checks(gvk: GVK, obj: RawObject, now: float) -> Iterator[Check]:
    """Yield the checks for all kinds, and those for the kind of the object."""
    status, generation = status_of(obj), generation_of(obj)
    found = status.get("conditions")
    known = {str(each.get("type")): each for each in found if isinstance(each, dict)} if isinstance(found, list) else {}
    observed = status.get("observedGeneration", generation)
    yield is_being_deleted(obj), Readiness.DELETING, {}
    yield observed != generation, Readiness.NOT_READY, {"reason": f"generation {generation} not observed yet"}
    yield _is(known, "Reconciling"), Readiness.NOT_READY, known.get("Reconciling", {})
    yield _is(known, "Stalled"), Readiness.FAILED, known.get("Stalled", {})
    if gvk.group == "apps" and gvk.kind in _COUNTS:
        yield from _checks_of_workload(gvk.kind, obj, known)
    elif (gvk.group, gvk.kind) == ("", "Pod"):
        yield from _checks_of_pod(obj, known, now)
    elif (gvk.group, gvk.kind) == ("batch", "Job"):
        has_started = "startTime" in status or bool({"Complete", "Suspended"} & known.keys())
        yield _is(known, "Failed"), Readiness.FAILED, known.get("Failed", {})
        yield not has_started, Readiness.NOT_READY, {"reason": "not started"}
    elif (gvk.group, gvk.kind) == ("", "PersistentVolumeClaim"):
        yield status.get("phase") != "Bound", Readiness.NOT_READY, {"reason": status.get("phase") or "Pending"}
    else:
        yield "Ready" in known and not _is(known, "Ready"), Readiness.NOT_READY, known.get("Ready", {})


def _checks_of_workload(kind: str, obj: RawObject, known: Conditions) -> Iterator[Check]:
    status, progress, is_daemon_set = status_of(obj), known.get("Progressing", {}), kind == "DaemonSet"
    wanted = status.get("desiredNumberScheduled", 0) if is_daemon_set else (obj.get("spec") or {}).get("replicas", 1)
    replicas = 0 if is_daemon_set else status.get("replicas", 0)
    yield progress.get("reason") == "ProgressDeadlineExceeded", Readiness.FAILED, progress
    yield _is(known, "ReplicaFailure"), Readiness.NOT_READY, known.get("ReplicaFailure", {})
    yield is_daemon_set and "observedGeneration" not in status, Readiness.NOT_READY, {"reason": "not observed yet"}
    for name in _COUNTS[kind]:
        count = status.get(name, 0)
        yield count < wanted, Readiness.NOT_READY, {"reason": f"{name}: {count} of {wanted}"}
    yield replicas > wanted, Readiness.NOT_READY, {"reason": f"replicas: {replicas} instead of {wanted}"}
    is_updating = status.get("currentRevision") != status.get("updateRevision")  # of a StatefulSet
    yield is_updating, Readiness.NOT_READY, {"reason": "update in progress"}
    if kind == "Deployment":
        yield not _is(known, "Available"), Readiness.NOT_READY, known.get("Available", {})
        yield progress.get("reason", "") != "NewReplicaSetAvailable", Readiness.NOT_READY, progress


def _checks_of_pod(obj: RawObject, known: Conditions, now: float) -> Iterator[Check]:
    status, scheduled, ready = status_of(obj), known.get("PodScheduled", {}), known.get("Ready", {})
    phase = status.get("phase") or "Pending"
    yield phase == "Failed", Readiness.FAILED, {"reason": phase, **status}
    if phase == "Succeeded":
        return
    for each in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        waiting = each.get("state", {}).get("waiting") or {}
        is_crashing = phase == "Running" and waiting.get("reason") == "CrashLoopBackOff"
        yield bool(waiting), Readiness.FAILED if is_crashing else Readiness.NOT_READY, waiting
    created = datetime.fromisoformat(metadata_of(obj).get("creationTimestamp") or "9999-01-01T00:00:00Z")
    is_late = now - created.timestamp() > UNSCHEDULABLE_SECONDS
    is_unschedulable = scheduled.get("reason") == "Unschedulable"
    yield is_unschedulable, Readiness.FAILED if is_late else Readiness.NOT_READY, scheduled
    yield phase != "Running" or not _is(known, "Ready"), Readiness.NOT_READY, {"reason": phase, **ready}


def _is(known: Conditions, name: str) -> bool:
    return bool(known.get(name, {}).get("status") == "True")
