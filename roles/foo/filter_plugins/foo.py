"""Whether the Deployment of a Foo is there, is the Foo's own, and is as it should be.

Pure functions on raw objects. Only what the role asks for is compared: fields that the API server fills in, or that
somebody added, are no difference, so an unchanged Foo leads to no write. The tasks of the role create, repair or
refuse accordingly.
"""

from collections.abc import Callable
from typing import Any

Object = dict[str, Any]


class FilterModule:
    """What Ansible asks for the filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Give the filters by the names that the tasks use."""
        return {"foo_plan": plan}


def plan(deployments: list[Object], foo: Object, wanted: Object) -> Object:
    """Compare the Deployment of that name, if there is one, with the wanted one.

    The result has `is_foreign`, `definition` (what to create or to patch, or none), `is_news` (whether this sync is
    worth an event) and `available_replicas`.
    """
    found = deployments[0] if deployments else None
    is_foreign = found is not None and not _is_controlled(found, foo)
    definition = None if is_foreign else _definition(found, wanted)
    is_new = foo.get("status", {}).get("observedGeneration") != foo["metadata"].get("generation")
    return {
        "is_foreign": is_foreign,
        "definition": definition,
        "is_news": definition is not None or is_new,
        "available_replicas": ((found or {}).get("status") or {}).get("availableReplicas", 0),
    }


def _is_controlled(found: Object, foo: Object) -> bool:
    references = found["metadata"].get("ownerReferences") or []
    return any(each.get("controller") and each["uid"] == foo["metadata"]["uid"] for each in references)


def _definition(found: Object | None, wanted: Object) -> Object | None:
    """Give what is to be sent; with the uid of what was found, so that only that one can be changed.

    The API server gives a created object a uid of its own and refuses to change the uid of an existing one: a uid of
    nobody therefore creates, but touches no Deployment that came in between.
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
