"""The kinds of the histories about prune: primaries, what roles make, and what they wait for."""

from typing import Any, Final

from rolecall.kube.references import GVK, RawObject
from tests.simulation.kinds import BUILT_IN, CONFIG_MAP, NAMESPACE, SECRET, THING, ServedKind

ELSEWHERE: Final = "elsewhere"
"""A namespace that roles also write to."""

CLUSTER: Final = ServedKind(GVK("example.com", "v1", "Fleet"), is_namespaced=False)
"""A cluster-scoped primary."""

USER: Final = ServedKind(GVK("example.com", "v1", "Visitor"))
"""A primary whose role doesn't prune, and uses objects of others by their names."""

PRIMARIES: Final = (THING, CLUSTER, USER)


def _built_in(group: str, version: str, kind: str, *fields: str, plural: str = "") -> ServedKind:
    gvk = GVK(group, version, kind)
    return ServedKind(gvk, plural, has_status="status" in fields, fields=fields, is_custom=False)


_RBAC: Final = "rbac.authorization.k8s.io"
_DEFAULT: Final = (
    _built_in("apps", "v1", "DaemonSet", "spec", "status"),
    _built_in("", "v1", "Service", "spec", "status"),
    _built_in("networking.k8s.io", "v1", "Ingress", "spec", "status", plural="ingresses"),
    _built_in("route.openshift.io", "v1", "Route", "spec", "status"),
    _built_in("", "v1", "ServiceAccount", "secrets", "imagePullSecrets"),
    _built_in(_RBAC, "v1", "Role", "rules"),
    _built_in(_RBAC, "v1", "RoleBinding", "subjects", "roleRef"),
    _built_in("autoscaling", "v2", "HorizontalPodAutoscaler", "spec", "status"),
    _built_in("policy", "v1", "PodDisruptionBudget", "spec", "status"),
    _built_in("networking.k8s.io", "v1", "NetworkPolicy", "spec", plural="networkpolicies"),
    _built_in("batch", "v1", "CronJob", "spec", "status"),
)
DEPLOYMENT: Final = _built_in("apps", "v1", "Deployment", "spec", "status")
STATEFUL_SET: Final = _built_in("apps", "v1", "StatefulSet", "spec", "status")
JOB: Final = _built_in("batch", "v1", "Job", "spec", "status")
CLAIM: Final = _built_in("", "v1", "PersistentVolumeClaim", "spec", "status")
ENDPOINTS: Final = ServedKind(
    GVK("", "v1", "Endpoints"), "endpoints", has_status=False, fields=("subsets",), is_custom=False
)
WIDGET: Final = ServedKind(GVK("example.com", "v1", "Widget"))
CLUSTER_WIDGET: Final = ServedKind(GVK("example.com", "v1", "ClusterWidget"), is_namespaced=False)
_CONFIG_MAP, _SECRET, _NAMESPACE = (
    next(kind for kind in BUILT_IN if kind.gvk == gvk) for gvk in (CONFIG_MAP, SECRET, NAMESPACE)
)

PRUNED: Final = (_CONFIG_MAP, DEPLOYMENT, *_DEFAULT)
"""The kinds that are pruned without a mark of the role."""

MARKED: Final = (_SECRET, STATEFUL_SET, JOB, WIDGET, CLUSTER_WIDGET)
"""Kinds that are pruned if the role puts ``rolecall.dev/prune: "true"`` into their definition."""

NEVER: Final = (CLAIM, _NAMESPACE)
"""Kinds that are never pruned."""

MADE: Final = (*PRUNED, *MARKED, *NEVER)
_OTHERS: Final = (DEPLOYMENT, STATEFUL_SET, JOB, CLAIM, ENDPOINTS, WIDGET, CLUSTER_WIDGET)
KINDS: Final = (*BUILT_IN, *PRIMARIES, *_DEFAULT, *_OTHERS)

_SPECS: Final[dict[str, RawObject]] = {
    "Role": {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
    "RoleBinding": {"roleRef": {"kind": "Role", "name": "reader"}},
    "ServiceAccount": {"imagePullSecrets": [{"name": "pull"}]},
    "Secret": {"data": {"size": "MQ=="}},
    "Namespace": {},
}


def content(kind: ServedKind, size: Any) -> RawObject:
    """Return the fields of an object besides its metadata; those of some kinds don't depend on the size."""
    name = kind.gvk.kind
    if name == "ConfigMap":
        return {"data": {"size": str(size)}}
    if name in _SPECS:
        return _SPECS[name]
    return {"spec": {"size": size} | ({"replicas": 1} if kind.gvk.group == "apps" else {})}


def collection(kind: ServedKind, namespace: str) -> str:
    """Return the path of a kind's objects."""
    root = f"/apis/{kind.gvk.group}" if kind.gvk.group else "/api"
    inner = f"/namespaces/{namespace}" if kind.is_namespaced else ""
    return f"{root}/{kind.gvk.version}{inner}/{kind.name}"


def path_of(kind: ServedKind, namespace: str, name: str) -> str:
    """Return the path of an object."""
    return f"{collection(kind, namespace)}/{name}"


def ready_status(kind: ServedKind, generation: int | None, *, is_ready: bool) -> RawObject:
    """Return the status that a controller gives to an object whose spec has one replica."""
    observed = {} if generation is None else {"observedGeneration": generation}
    return observed | _status(kind, is_ready=is_ready)


def _status(kind: ServedKind, *, is_ready: bool) -> RawObject:
    count, truth = int(is_ready), "True" if is_ready else "False"
    match kind.gvk.kind:
        case "Deployment":
            reason = "NewReplicaSetAvailable" if is_ready else "ReplicaSetUpdated"
            conditions = [
                {"type": "Available", "status": truth, "reason": "Minimum"},
                {"type": "Progressing", "status": "True", "reason": reason},
            ]
            counts = dict.fromkeys(("updatedReplicas", "availableReplicas", "readyReplicas"), count)
            return {"replicas": 1, **counts, "conditions": conditions}
        case "StatefulSet":
            return {"replicas": 1, "readyReplicas": count, "currentReplicas": count}
        case "DaemonSet":
            names = ("currentNumberScheduled", "updatedNumberScheduled", "numberAvailable", "numberReady")
            return {"desiredNumberScheduled": 1, **dict[str, Any].fromkeys(names, count)}
        case "Job":
            ended = [{"type": "Complete", "status": "True"}] if is_ready else []
            return {"startTime": "2026-01-01T00:00:00Z", "conditions": ended}
        case "PersistentVolumeClaim":
            return {"phase": "Bound" if is_ready else "Pending"}
    return {"conditions": [{"type": "Ready", "status": truth, "reason": "Simulated"}]}
