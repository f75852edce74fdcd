"""The difference between the pods that exist and the pods that a PodScaler asks for.

The plan is a pure function of the listed pods and of the PodScaler, so it can be tested without a cluster and
gives the same answer to every PodScaler that looks at the same pods: two of them with one selector agree on the
pods that have to go. A pod that another controller would create again is never among them. The tasks of the role
carry the plan out.
"""

from collections.abc import Callable, Iterable
from typing import Any

API_GROUP = "scaling.example.com"
KIND = "PodScaler"
CONDITION_TYPE = "Surplus"

Object = dict[str, Any]


class FilterModule:
    """What Ansible asks for the filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Give the filters by the names that the tasks use."""
        return {"podscaler_plan": plan, "podscaler_deletion_errors": deletion_errors}


def plan(pods: Iterable[Object], podscaler: Object, limit: int) -> Object:
    """Say how many pods to create, which to delete, and what the status is once that is done.

    `pods` are the pods with the labels of the selector, `podscaler` is the whole object, `limit` the most pods that
    one run may create or delete. The result has `missing`, `delete` (definitions), `stats`, `condition` (or none, when
    the object already has it) and `is_complete` (false when the limit cut the plan short).
    """
    counted = [pod for pod in pods if _counts(pod)]
    excess = len(counted) - podscaler["spec"]["count"]
    missing = max(0, -excess)
    victims = _victims(counted, podscaler, max(0, excess))
    surplus = max(0, excess - len(victims))
    deleted = victims[:limit]
    created = min(missing, limit)
    return {
        "missing": created,
        "delete": [{"metadata": {"name": pod["metadata"]["name"]}} for pod in deleted],
        "is_complete": created == missing and len(deleted) == len(victims),
        "condition": _condition(podscaler, surplus),
        "stats": {
            "pods": len(counted) - len(deleted) + created,
            "ready": sum(map(_is_ready, counted)) - sum(map(_is_ready, deleted)),
            "surplus": surplus,
            "selector": _text(podscaler["spec"]["selector"]),
        },
    }


def deletion_errors(result: Object) -> list[str]:
    """Give the messages of the deletions that failed, those of pods that were gone already left out.

    `result` is what `kubernetes.core.k8s` gave with `continue_on_error`: one result, or a list of them.
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
    """Choose the pods that this PodScaler deletes for the excess, in the order of deletion.

    Where pods of a second PodScaler are among them, both must come to the same choice from lists that may differ in
    what is ready; so the order is by age alone then, and each deletes only its own part.
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
