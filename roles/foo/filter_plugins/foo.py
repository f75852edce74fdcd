"""Compares the Deployment of a Foo with the desired one.

Pure functions on raw objects. Only the fields that the role sets are compared: fields that the API server or another
client adds are ignored, so an unchanged Foo causes no write. The tasks of the role create or repair the Deployment, or
fail if it is not the Foo's.
"""

from collections.abc import Callable
from typing import Any

Object = dict[str, Any]


class FilterModule:
    """The filters of this file, for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"foo_plan": plan, "foo_report": report}


def plan(deployments: list[Object], foo: Object, wanted: Object) -> Object:
    """Compare the Deployment with this name, if it exists, with the desired one.

    The result has ``is_foreign``, ``definition`` (to create or to patch, or None) and ``is_event_due`` (whether to post
    an event).
    """
    found = deployments[0] if deployments else None
    is_foreign = found is not None and not _is_controlled(found, foo)
    definition = None if is_foreign else _definition(found, wanted)
    is_new = foo.get("status", {}).get("observedGeneration") != foo["metadata"].get("generation")
    return {
        "is_foreign": is_foreign,
        "definition": definition,
        "is_event_due": definition is not None or is_new,
    }


def report(deployments: list[Object], written: Object) -> Object:
    """Return the state of the Deployment after the run, given the one found and the result of the task that writes it.

    The result has ``available_replicas`` and ``is_ready``: whether the Deployment stays, and its controller has seen
    its spec and has all replicas.
    """
    deployment = written.get("result") or deployments[0]
    metadata, status = deployment["metadata"], deployment.get("status") or {}
    available = status.get("availableReplicas", 0)
    is_observed = status.get("observedGeneration") == metadata.get("generation")
    has_all = available >= deployment["spec"].get("replicas", 1)
    return {
        "available_replicas": available,
        "is_ready": is_observed and has_all and "deletionTimestamp" not in metadata,
    }


def _is_controlled(found: Object, foo: Object) -> bool:
    references = found["metadata"].get("ownerReferences") or []
    return any(each.get("controller") and each["uid"] == foo["metadata"]["uid"] for each in references)


def _definition(found: Object | None, wanted: Object) -> Object | None:
    """Return the definition to send, with the uid of the existing Deployment, to change no other Deployment.

    The API server sets the uid of a created object and rejects a change of the uid. The zero uid therefore creates a
    Deployment, but cannot change one that was created in the meantime.
    """
    if found is None:
        return _with_uid(wanted, "00000000-0000-0000-0000-000000000000")
    is_leaving = "deletionTimestamp" in found["metadata"]
    return None if is_leaving or _contains(found, wanted) else _with_uid(wanted, found["metadata"]["uid"])


def _with_uid(wanted: Object, uid: str) -> Object:
    return {**wanted, "metadata": {**wanted["metadata"], "uid": uid}}


def _contains(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(_contains(found.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        is_comparable = isinstance(found, list) and len(found) == len(wanted)
        return is_comparable and all(_contains(*pair) for pair in zip(found, wanted, strict=True))
    return bool(found == wanted)
