"""The garbage collector and the namespace controller of the simulated API server, one step at a time.

A step changes at most one object, or deletes the content of one namespace. Objects are visited in the order of their
kinds and keys, so that steps are the same in every process.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rolecall.kube.references import GVK, RawObject
from tests.simulation.kinds import NAMESPACE, ServedKind
from tests.simulation.objects import FOREGROUND, ORPHAN
from tests.simulation.requests import DeleteOptions

if TYPE_CHECKING:
    from tests.simulation.cluster import SimulatedApiServer

Located = tuple[ServedKind, str, RawObject]
"""A stored object with its kind and key."""


def collect_garbage(server: "SimulatedApiServer") -> bool:
    """Delete or release one object whose owners are gone, or finish one deletion; return whether there was one."""
    objects = list(_objects(server))
    owned = [located for located in objects if located[2]["metadata"].get("ownerReferences")]
    ending = [located for located in objects if "deletionTimestamp" in located[2]["metadata"]]
    if not owned and not ending:
        return False
    by_uid = {obj["metadata"]["uid"]: obj for _, _, obj in objects}
    # Dependents first: those that don't block the deletion of their owner are deleted with it, too.
    return any(_collect(server, located, by_uid) for located in owned) or any(
        _finish(server, located, owned) for located in ending
    )


def _objects(server: "SimulatedApiServer") -> Iterator[Located]:
    """Yield each object once, also those that are served in several versions."""
    for kind in server.kinds:
        if kind.stored_as is None:
            yield from ((kind, key, obj) for key, obj in server.stored(kind))


def _finish(server: "SimulatedApiServer", owner: Located, owned: list[Located]) -> bool:
    """Do the next step of a deletion that orphans its dependents, or waits for them."""
    kind, key, obj = owner
    finalizers = obj["metadata"].get("finalizers") or []
    uid = obj["metadata"]["uid"]
    if ORPHAN in finalizers:
        for dependent_kind, dependent_key, dependent in owned:
            if any(reference["uid"] == uid for reference in dependent["metadata"]["ownerReferences"]):
                server.release(dependent_kind, dependent_key, _without_owners(dependent, {uid}))
                return True
        server.release(kind, key, _without_finalizer(obj, ORPHAN))
        return True
    blocks = any(
        reference["uid"] == uid and reference.get("blockOwnerDeletion")
        for _, _, dependent in owned
        for reference in dependent["metadata"]["ownerReferences"]
    )
    if FOREGROUND in finalizers and not blocks:
        server.release(kind, key, _without_finalizer(obj, FOREGROUND))
        return True
    return False


def _collect(server: "SimulatedApiServer", dependent: Located, by_uid: dict[str, RawObject]) -> bool:
    """Delete an object without a living owner; of one with other owners, remove the references to the dead ones."""
    kind, key, obj = dependent
    metadata = obj["metadata"]
    if "deletionTimestamp" in metadata:
        return False
    references = metadata["ownerReferences"]
    if any(not _is_resolvable(server, kind, reference) for reference in references):
        return False
    owners = {each["uid"]: _owner(each, metadata.get("namespace", ""), by_uid) for each in references}
    dead = {uid for uid, owner in owners.items() if owner is None}
    waiting = {uid for uid, owner in owners.items() if owner is not None and _waits(owner)}
    if not dead and not waiting:
        return False
    if len(owners) > len(dead) + len(waiting):
        server.release(kind, key, _without_owners(obj, dead | waiting))
        return True
    finalizers = metadata.get("finalizers") or []
    policy = "Background"
    if waiting and any(
        reference["uid"] == metadata["uid"]
        for _, _, each in _objects(server)
        for reference in each["metadata"].get("ownerReferences", ())
    ):
        policy = "Foreground"
    elif ORPHAN in finalizers:
        policy = "Orphan"
    elif FOREGROUND in finalizers:
        policy = "Foreground"
    server.delete_object(kind, key, DeleteOptions(policy, uid=metadata["uid"]))
    return True


def _is_resolvable(server: "SimulatedApiServer", kind: ServedKind, reference: RawObject) -> bool:
    """Return whether the kind of an owner is served, and its scope fits; otherwise its dependents are kept."""
    owner = {each.gvk: each for each in server.kinds}.get(GVK.of_object(reference))
    return owner is not None and (kind.is_namespaced or not owner.is_namespaced)


def _owner(reference: RawObject, namespace: str, by_uid: dict[str, RawObject]) -> RawObject | None:
    """Return the object that a reference means, None if it doesn't exist: it has the uid, kind, name, and namespace."""
    owner = by_uid.get(reference["uid"])
    if owner is None or owner["kind"] != reference["kind"] or owner["metadata"]["name"] != reference["name"]:
        return None
    return owner if owner["metadata"].get("namespace", namespace) == namespace else None


def _waits(owner: RawObject) -> bool:
    """Return whether an owner is being deleted after its dependents."""
    metadata = owner["metadata"]
    return "deletionTimestamp" in metadata and FOREGROUND in (metadata.get("finalizers") or ())


def _without_owners(obj: RawObject, uids: set[str]) -> RawObject:
    kept = [each for each in obj["metadata"]["ownerReferences"] if each["uid"] not in uids]
    return _with_list(obj, "ownerReferences", kept)


def _without_finalizer(obj: RawObject, finalizer: str) -> RawObject:
    return _with_list(obj, "finalizers", [each for each in obj["metadata"]["finalizers"] if each != finalizer])


def _with_list(obj: RawObject, name: str, items: list[object]) -> RawObject:
    """Return an object with a list in its metadata, which an empty list removes."""
    metadata = {key: value for key, value in obj["metadata"].items() if key != name}
    return {**obj, "metadata": {**metadata, name: items} if items else metadata}


def finish_namespaces(server: "SimulatedApiServer") -> bool:
    """Delete the content of one terminating namespace, or the empty namespace; return whether something changed."""
    namespaces = next((kind for kind in server.kinds if kind.gvk == NAMESPACE), None)
    if namespaces is None:
        return False
    return any(
        _finish_namespace(server, namespaces, key, obj)
        for key, obj in server.stored(namespaces)
        if "deletionTimestamp" in obj["metadata"]
    )


def _finish_namespace(server: "SimulatedApiServer", kind: ServedKind, name: str, obj: RawObject) -> bool:
    if not obj["spec"].get("finalizers"):
        return False
    content = [located for located in _objects(server) if located[1].startswith(f"{name}/")]
    before = server.version
    for content_kind, key, _ in content:
        server.delete_object(content_kind, key, DeleteOptions("Background"))
    if not content:
        server.release(
            kind, name, {**obj, "spec": {name: value for name, value in obj["spec"].items() if name != "finalizers"}}
        )
    return server.version > before
