"""Plans which pods a PodScaler creates and deletes.

The plan is a pure function of the listed pods and the PodScaler, so you can test it without a cluster. It is the same
for every PodScaler with the same pods: two PodScalers with the same selector agree on the pods to delete. Pods that
another controller would create again are never deleted. The tasks of the role carry out the plan.
"""

from collections.abc import Callable, Iterable
from typing import Any

API_GROUP = "scaling.example.com"
KIND = "PodScaler"
CONDITION_TYPE = "Surplus"

Object = dict[str, Any]


class FilterModule:
    """The filters of this file, for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"podscaler_plan": plan, "podscaler_deletion_errors": deletion_errors}


def plan(pods: Iterable[Object], podscaler: Object, limit: int) -> Object:
    """Return how many pods to create, which pods to delete, and the status after that.

    ``pods`` are the pods with the labels of the selector, ``podscaler`` is the whole object, ``limit`` is the maximum
    number of pods that one run may create or delete. The result has ``missing``, ``delete`` (definitions), ``stats``,
    ``condition`` (None if the object already has it) and ``is_complete`` (False if the limit truncated the plan).
    """
    counted = [pod for pod in pods if _counts(pod)]
    excess = len(counted) - podscaler["spec"]["count"]
    missing = max(0, -excess)
    victims = _victims(counted, podscaler, max(0, excess))
    surplus = max(0, excess - len(victims))
    deleted = victims[:limit]
    created = min(missing, limit)
    ready = sum(map(_is_ready, counted)) - sum(map(_is_ready, deleted))
    return {
        "missing": created,
        "delete": [{"metadata": {"name": pod["metadata"]["name"]}} for pod in deleted],
        "is_complete": created == missing and len(deleted) == len(victims),
        "condition": _condition(podscaler, surplus),
        "stats": {
            "pods": len(counted) - len(deleted) + created,
            "ready": ready,
            "is_ready": ready >= podscaler["spec"]["count"] and len(deleted) == len(victims),
            "surplus": surplus,
            "selector": _text(podscaler["spec"]["selector"]),
        },
    }


def deletion_errors(result: Object) -> list[str]:
    """Return the messages of the failed deletions, except for pods that were already gone.

    ``result`` is the result of ``kubernetes.core.k8s`` with ``continue_on_error``: one result, or a list of results.
    """
    outcomes = (result.get("result") or {}).get("results", [result])
    messages = [outcome["error"].get("msg", "") for outcome in outcomes if "error" in outcome]
    if result.get("failed") and not messages:
        messages = [result.get("msg", "")]
    return [message for message in messages if '"code":404' not in message]


def _counts(pod: Object) -> bool:
    finished = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return not finished and "deletionTimestamp" not in pod["metadata"]


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or []
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _controller(pod: Object) -> Object | None:
    references: list[Object] = pod["metadata"].get("ownerReferences") or []
    return next((reference for reference in references if reference.get("controller")), None)


def _is_podscaler(reference: Object | None) -> bool:
    return reference is not None and (reference["apiVersion"].split("/")[0], reference["kind"]) == (API_GROUP, KIND)


def _victims(counted: list[Object], podscaler: Object, excess: int) -> list[Object]:
    """Return the pods that this PodScaler deletes, in the order of deletion.

    If there are pods of a second PodScaler, both must choose the same pods, although their lists may differ in which
    pods are ready. In this case the order is by age only, and each PodScaler deletes only its own pods.
    """
    uid = podscaler["metadata"]["uid"]
    scaled = _youngest_first(pod for pod in counted if _is_podscaler(_controller(pod)))
    free = _youngest_first(pod for pod in counted if _controller(pod) is None)
    if all(_owner_uid(pod) == uid for pod in scaled):
        scaled.sort(key=_is_ready)
    return [pod for pod in (scaled + free)[:excess] if _owner_uid(pod) in (uid, None)]


def _owner_uid(pod: Object) -> str | None:
    controller = _controller(pod)
    return None if controller is None else controller["uid"]


def _youngest_first(pods: Iterable[Object]) -> list[Object]:
    def age(pod: Object) -> tuple[str, str]:
        return pod["metadata"].get("creationTimestamp", ""), pod["metadata"]["name"]

    return sorted(pods, key=age, reverse=True)


def _text(selector: dict[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))


def _condition(podscaler: Object, surplus: int) -> Object | None:
    conditions = podscaler.get("status", {}).get("conditions") or []
    current = next((condition for condition in conditions if condition["type"] == CONDITION_TYPE), None)
    if surplus == 0 and current is None:
        return None
    wanted = {"type": CONDITION_TYPE, **_state(surplus, podscaler["spec"]["count"])}
    is_current = current is not None and all(current.get(key) == value for key, value in wanted.items())
    return None if is_current else wanted


def _state(surplus: int, count: int) -> dict[str, str]:
    if surplus == 0:
        return {"status": "False", "reason": "WithinCount", "message": "No pods above the count belong to others"}
    verb = "pod belongs" if surplus == 1 else "pods belong"
    message = f"{surplus} {verb} to other controllers and cannot be deleted for the count of {count}"
    return {"status": "True", "reason": "OtherControllers", "message": message}
