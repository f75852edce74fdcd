"""A cluster in memory, as much of it as a reconcile meets, with every kind of trouble on demand.

It keeps the rules that matter: resourceVersion guards replacements, a change of the spec raises the generation, the
status is a subresource, a deletion waits for finalizers, a write that changes nothing makes no new version. The cases
of ``reconciler_contract`` run against it and against a real API server, so the two cannot drift apart unnoticed.
"""

import copy
import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

from rolecall.kube.client import Client
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import ApiError, ConflictError, InvalidError, KubeError, NotFoundError, NotServedError
from rolecall.kube.metadata import is_being_deleted, resource_version_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from tests.simulation.patches import merge_patch

VERBS = frozenset({"get", "list", "watch", "create", "update", "patch", "delete"})
DELETED_AT = "2026-01-01T12:00:00Z"


class FakeCluster(Client):
    """Implements what ``Client`` does to objects; ``subresources`` are those of every kind.

    ``troubles`` are errors to raise for the next calls, each with what it applies to: ``get``, ``replace`` or
    ``replace status``. ``before`` is called before every call with its name, and may change the cluster. ``writes``
    holds each replacement that changed something: its name, then the object.
    """

    def __init__(self) -> None:
        self.subresources = frozenset({"status"})
        self.token = ""
        self.troubles: list[tuple[str, KubeError]] = []
        self.before: Callable[[str], None] = lambda _call: None
        self.calls: list[str] = []
        self.writes: list[tuple[str, RawObject]] = []
        self._objects: dict[tuple[GVK, ObjectKey], RawObject] = {}
        self._numbers = itertools.count(1)

    def objects(self) -> dict[tuple[GVK, ObjectKey], RawObject]:
        """Return the objects themselves, to be changed without any rule."""
        return self._objects

    async def close(self) -> None:
        """Close nothing."""

    async def auth_headers(self) -> dict[str, str]:
        """Return the headers for the token, if there is one."""
        return {"authorization": f"Bearer {self.token}"} if self.token else {}

    async def resource(self, gvk: GVK) -> ApiResource:
        """Return how a kind is served."""
        self._enter("resource")
        return ApiResource(gvk, f"{gvk.kind.lower()}s", True, VERBS, self.subresources)  # noqa: FBT003 - namespaced

    async def resource_for_path(self, group: str, version: str, plural: str) -> ApiResource | None:
        """Serve no URL of a kind but that of ConfigMaps."""
        self._enter("resource")
        if (group, version, plural) != ("", "v1", "configmaps"):
            return None
        return ApiResource(GVK("", "v1", "ConfigMap"), plural, True, VERBS, self.subresources)  # noqa: FBT003

    async def get(self, gvk: GVK, key: ObjectKey) -> RawObject:
        """Return a copy of an object."""
        self._enter("get")
        return copy.deepcopy(self._known(gvk, key))

    async def create(self, obj: RawObject) -> RawObject:
        """Create an object; a status that is given is left out."""
        self._enter("create")
        gvk, key = GVK.of_object(obj), ObjectKey.of_object(obj)
        if (gvk, key) in self._objects:
            raise ConflictError(409, "AlreadyExists", f"{key} exists already")
        made = copy.deepcopy({name: value for name, value in obj.items() if name != "status"})
        made["metadata"] |= {"uid": f"uid-{next(self._numbers)}", "generation": 1}
        return self._store(gvk, key, made)

    async def replace(self, obj: RawObject, subresource: str = "") -> RawObject:
        """Replace an object without its status, or the status alone."""
        call = f"replace {subresource}".strip()
        self._enter(call)
        gvk, key = GVK.of_object(obj), ObjectKey.of_object(obj)
        known = self._known(gvk, key, subresource)
        if resource_version_of(obj) not in ("", resource_version_of(known)):
            raise ConflictError(409, "Conflict", f"{key} has been modified")
        if subresource == "status":
            _check_status(obj.get("status"))
            new = known | {"status": copy.deepcopy(obj.get("status") or {})}
        else:
            new = _replaced(known, obj)
        if new == known:
            return copy.deepcopy(known)
        written = self._store(gvk, key, new)
        self.writes.append((call, written))
        return written

    async def patch(self, gvk: GVK, key: ObjectKey, patch: object, subresource: str = "") -> RawObject:
        """Merge a patch into an object without its status, or into the status alone."""
        self._enter(f"patch {subresource}".strip())
        known = self._known(gvk, key, subresource)
        merged = merge_patch(known, patch)
        new = known | {"status": merged.get("status")} if subresource else _replaced(known, merged)
        return copy.deepcopy(known) if new == known else self._store(gvk, key, new)

    async def delete(self, gvk: GVK, key: ObjectKey, preconditions: Mapping[str, str] | None = None) -> None:
        """Delete an object, or mark it as long as finalizers hold it."""
        self._enter("delete")
        known = self._known(gvk, key)
        if preconditions and not preconditions.items() <= known["metadata"].items():
            raise ConflictError(409, "Conflict", f"{key} doesn't have {preconditions}")
        mark = {"deletionTimestamp": DELETED_AT, "generation": known["metadata"]["generation"] + 1}
        if not is_being_deleted(known):
            self._store(gvk, key, known | {"metadata": known["metadata"] | mark})

    def _enter(self, call: str) -> None:
        self.calls.append(call)
        self.before(call)
        for number, (name, error) in enumerate(self.troubles):
            if name == call:
                del self.troubles[number]
                raise error

    def _known(self, gvk: GVK, key: ObjectKey, subresource: str = "") -> RawObject:
        known = self._objects.get((gvk, key))
        if known is None:
            raise (NotServedError if subresource else NotFoundError)(404, "NotFound", f"{key} not found")
        return known

    def _store(self, gvk: GVK, key: ObjectKey, obj: RawObject) -> RawObject:
        obj = copy.deepcopy(obj)
        obj["metadata"]["resourceVersion"] = str(next(self._numbers))
        if is_being_deleted(obj) and not obj["metadata"].get("finalizers"):
            self._objects.pop((gvk, key), None)
        else:
            self._objects[gvk, key] = obj
        return copy.deepcopy(obj)


def _replaced(known: RawObject, wanted: RawObject) -> RawObject:
    """Return an object with the body of another, with what only the API server may change as it was."""
    new = copy.deepcopy(wanted)
    new.pop("status", None)
    if "status" in known:
        new["status"] = known["status"]
    generation = known["metadata"]["generation"] + (new.get("spec") != known.get("spec"))
    kept = {name: known["metadata"].get(name) for name in ("uid", "resourceVersion", "deletionTimestamp")}
    new["metadata"] |= {name: value for name, value in kept.items() if value} | {"generation": generation}
    if not new["metadata"].get("finalizers"):
        new["metadata"].pop("finalizers", None)
    return new


def _check_status(status: Any) -> None:
    """Refuse what is no JSON, and what the schema of the kind Thing refuses."""
    try:
        json.dumps(status, allow_nan=False)
    except ValueError as error:
        raise ApiError(400, "BadRequest", str(error)) from error
    small = status.get("small") if isinstance(status, dict) else None
    if small is not None and (not isinstance(small, int) or small > 10):
        raise InvalidError(422, "Invalid", f"status.small: Invalid value: {small}: should be less than or equal to 10")
