"""Objects with their readiness, for unit tests and for the comparison with kstatus."""

from dataclasses import dataclass
from typing import Any

from rolecall.kube.references import RawObject

CREATED = 1_767_225_600.0
NOW = CREATED + 60


@dataclass(frozen=True, eq=False)
class Case:
    """An object, and its readiness with the reason."""

    api_version: str
    kind: str
    readiness: str
    reason: str
    status: Any
    spec: RawObject | None = None
    is_deleted: bool = False

    @property
    def obj(self) -> RawObject:
        """The object; it has existed for a minute."""
        metadata = {"name": "one", "namespace": "ns", "generation": 2, "creationTimestamp": "2026-01-01T00:00:00Z"}
        deleted = {"deletionTimestamp": "2026-01-01T00:00:30Z"} if self.is_deleted else {}
        body = {"metadata": metadata | deleted, "spec": self.spec or {}, "status": self.status}
        return {"apiVersion": self.api_version, "kind": self.kind} | body


def condition(kind: str, status: str, reason: str = "", message: str = "") -> RawObject:
    """Return a condition."""
    return {"type": kind, "status": status, "reason": reason, "message": message}


def replicas(**changes: int) -> RawObject:
    """Return a status with three replicas of each sort."""
    counts = (
        "replicas",
        "updatedReplicas",
        "availableReplicas",
        "readyReplicas",
        "currentReplicas",
        "fullyLabeledReplicas",
    )
    return dict.fromkeys(counts, 3) | {"observedGeneration": 2} | changes


AVAILABLE = condition("Available", "True", "MinimumReplicasAvailable")
PROGRESSED = condition("Progressing", "True", "NewReplicaSetAvailable")
TOO_LATE = condition("Progressing", "False", "ProgressDeadlineExceeded")
THREE = {"replicas": 3, "progressDeadlineSeconds": 600}
DONE = {"conditions": [AVAILABLE, PROGRESSED]}
DAEMONS = {
    **dict.fromkeys(("desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled"), 2),
    **dict.fromkeys(("numberAvailable", "numberReady"), 2),
    "observedGeneration": 2,
}
SCHEDULED = condition("PodScheduled", "True")
UNSCHEDULABLE = condition("PodScheduled", "False", "Unschedulable", "0/1 nodes are available")
UNREADY = condition("Ready", "False", "ContainersNotReady")


def waiting(phase: str, reason: str) -> RawObject:
    """Return the status of a Pod with a waiting container."""
    state = {"name": "web", "state": {"waiting": {"reason": reason, "message": "why"}}}
    return {"phase": phase, "conditions": [SCHEDULED, UNREADY], "containerStatuses": [state]}


CASES = [
    Case("v1", "ConfigMap", "ready", "", {}),
    Case("v1", "Secret", "deleting", "", {}, is_deleted=True),
    Case("example.com/v1", "Any", "ready", "", {}),
    Case("example.com/v1", "Any", "not ready", "generation 2 not observed yet", {"observedGeneration": 1}),
    Case("example.com/v1", "Any", "ready", "", {"conditions": [condition("Ready", "True")]}),
    Case("example.com/v1", "Any", "not ready", "Waiting", {"conditions": [condition("Ready", "False", "Waiting")]}),
    Case("example.com/v1", "Any", "not ready", "Soon", {"conditions": [condition("Ready", "Unknown", "Soon")]}),
    Case(
        "example.com/v1", "Any", "not ready", "Running", {"conditions": [condition("Reconciling", "True", "Running")]}
    ),
    Case("example.com/v1", "Any", "failed", "Failing", {"conditions": [condition("Stalled", "True", "Failing")]}),
    Case("apps/v1", "Deployment", "ready", "", replicas() | DONE, THREE),
    Case("apps/v1", "Deployment", "not ready", "replicas: 0 of 3", {"observedGeneration": 2}, THREE),
    Case("apps/v1", "Deployment", "not ready", "readyReplicas: 1 of 3", replicas(readyReplicas=1) | DONE, THREE),
    Case("apps/v1", "Deployment", "not ready", "updatedReplicas: 1 of 3", replicas(updatedReplicas=1) | DONE, THREE),
    Case("apps/v1", "Deployment", "not ready", "replicas: 4 instead of 3", replicas(replicas=4) | DONE, THREE),
    Case("apps/v1", "Deployment", "not ready", "", replicas() | {"conditions": [PROGRESSED]}, THREE),
    Case("apps/v1", "Deployment", "failed", "ProgressDeadlineExceeded", replicas() | {"conditions": [TOO_LATE]}, THREE),
    Case("apps/v1", "ReplicaSet", "ready", "", replicas(), THREE),
    Case("apps/v1", "ReplicaSet", "not ready", "availableReplicas: 2 of 3", replicas(availableReplicas=2), THREE),
    Case(
        "apps/v1",
        "ReplicaSet",
        "not ready",
        "FailedCreate",
        replicas(replicas=0) | {"conditions": [condition("ReplicaFailure", "True", "FailedCreate")]},
        THREE,
    ),
    Case("apps/v1", "StatefulSet", "ready", "", replicas() | {"currentRevision": "a", "updateRevision": "a"}, THREE),
    Case("apps/v1", "StatefulSet", "not ready", "readyReplicas: 1 of 3", replicas(readyReplicas=1), THREE),
    Case("apps/v1", "DaemonSet", "ready", "", DAEMONS),
    Case("apps/v1", "DaemonSet", "not ready", "numberReady: 1 of 2", DAEMONS | {"numberReady": 1}),
    Case("batch/v1", "Job", "not ready", "not started", {}),
    Case("batch/v1", "Job", "ready", "", {"startTime": "2026-01-01T00:00:00Z", "active": 1}),
    Case("batch/v1", "Job", "failed", "Backoff", {"conditions": [condition("Failed", "True", "Backoff")]}),
    Case("v1", "PersistentVolumeClaim", "ready", "", {"phase": "Bound"}),
    Case("v1", "PersistentVolumeClaim", "not ready", "Pending", {"phase": "Pending"}),
    Case("v1", "Pod", "not ready", "Pending", {}),
    Case("v1", "Pod", "not ready", "Pending", {"phase": "Pending", "conditions": [SCHEDULED]}),
    Case("v1", "Pod", "failed", "Unschedulable", {"phase": "Pending", "conditions": [UNSCHEDULABLE]}),
    Case("v1", "Pod", "not ready", "ImagePullBackOff", waiting("Pending", "ImagePullBackOff")),
    Case("v1", "Pod", "failed", "CrashLoopBackOff", waiting("Running", "CrashLoopBackOff")),
    Case("v1", "Pod", "not ready", "ContainersNotReady", {"phase": "Running", "conditions": [UNREADY]}),
    Case("v1", "Pod", "ready", "", {"phase": "Running", "conditions": [condition("Ready", "True")]}),
    Case("v1", "Pod", "ready", "", {"phase": "Succeeded", "conditions": [UNREADY]}),
    Case("v1", "Pod", "failed", "Evicted", {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}),
]
