"""The garbage collector and the namespace controller of the simulated API server, one step at a time.

A step changes one object, or deletes the content of one namespace. Objects are visited in the order of their kinds and
keys, so that steps are the same in every process.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rolecall.kube.references import GVK, RawObject
from tests.simulation.deletions import Deletions
from tests.simulation.kinds import NAMESPACE, ServedKind
from tests.simulation.objects import FOREGROUND, ORPHAN
from tests.simulation.requests import DeleteOptions
from tests.simulation.storage import Store

Located = tuple[ServedKind, str, RawObject]
"""A stored object with its kind and key."""


@dataclass(frozen=True, slots=True)
class Controllers:
    """Both controllers, for the objects of a storage and the kinds that are served now."""

    kinds: Mapping[GVK, ServedKind]
    store: Store
    deletions: Deletions

    def collect_garbage(self) -> bool:
        """Delete or release one object whose owners were deleted, or continue one deletion; return whether one was."""
        objects = list(self._objects())
        owned = [located for located in objects if located[2]["metadata"].get("ownerReferences")]
        ending = [located for located in objects if "deletionTimestamp" in located[2]["metadata"]]
        if not owned and not ending:
            return False
        by_uid = {obj["metadata"]["uid"]: obj for _, _, obj in objects}
        owners = {each["uid"] for _, _, obj in owned for each in obj["metadata"]["ownerReferences"]}
        # Dependents first: those that don't block the deletion of their owner are deleted with it, too.
        return any(self._collect(located, by_uid, owners) for located in owned) or any(
            self._continue(located, owned) for located in ending
        )

    def finish_namespaces(self) -> bool:
        """Delete the content of one terminating namespace, or the empty one; return whether something changed."""
        kind = self.kinds.get(NAMESPACE)
        found = [] if kind is None else [obj for each, _, obj in self._objects() if each == kind]
        return any(self._finish(obj) for obj in found if "deletionTimestamp" in obj["metadata"])

    def _objects(self) -> Iterator[Located]:
        """Yield each object once, also those that are served in several versions."""
        for kind in self.kinds.values():
            if kind.stored_as is None:
                found = self.store.objects.get(kind.resource, {})
                yield from ((kind, key, found[key]) for key in sorted(found))

    def _collect(self, dependent: Located, by_uid: Mapping[str, RawObject], owners: set[str]) -> bool:
        """Delete an object without a living owner; from one with other owners, remove the references to dead ones."""
        kind, key, obj = dependent
        metadata = obj["metadata"]
        references = metadata["ownerReferences"]
        if "deletionTimestamp" in metadata or not all(self._is_resolvable(kind, each) for each in references):
            return False
        found = {each["uid"]: _owner(each, metadata.get("namespace", ""), by_uid) for each in references}
        dead = {uid for uid, owner in found.items() if owner is None}
        waiting = {uid for uid, owner in found.items() if owner is not None and _waits(owner)}
        if not dead and not waiting:
            return False
        if len(found) > len(dead) + len(waiting):
            self.deletions.release(kind, key, _without_owners(obj, dead | waiting))
            return True
        finalizers = metadata.get("finalizers") or []
        policy = "Orphan" if ORPHAN in finalizers else "Foreground" if FOREGROUND in finalizers else "Background"
        if waiting and metadata["uid"] in owners:
            policy = "Foreground"
        self.deletions.delete(kind, key, DeleteOptions(policy, uid=metadata["uid"]))
        return True

    def _is_resolvable(self, kind: ServedKind, reference: RawObject) -> bool:
        """Return whether the kind of an owner is served, and its scope fits; otherwise its dependents are kept."""
        owner = self.kinds.get(GVK.of_object(reference))
        return owner is not None and (kind.is_namespaced or not owner.is_namespaced)

    def _continue(self, owner: Located, owned: list[Located]) -> bool:
        """Do the next step of a deletion that orphans its dependents, or waits for them."""
        kind, key, obj = owner
        finalizers = obj["metadata"].get("finalizers") or []
        uid = obj["metadata"]["uid"]
        dependents = [(each, reference) for each in owned for reference in _references(each) if reference["uid"] == uid]
        if ORPHAN in finalizers and dependents:
            dependent_kind, dependent_key, dependent = dependents[0][0]
            self.deletions.release(dependent_kind, dependent_key, _without_owners(dependent, {uid}))
            return True
        if ORPHAN in finalizers:
            self.deletions.release(kind, key, _without_finalizer(obj, ORPHAN))
            return True
        if FOREGROUND in finalizers and not any(reference.get("blockOwnerDeletion") for _, reference in dependents):
            self.deletions.release(kind, key, _without_finalizer(obj, FOREGROUND))
            return True
        return False

    def _finish(self, namespace: RawObject) -> bool:
        """Delete what a terminating namespace contains, or the namespace if it is empty."""
        name = namespace["metadata"]["name"]
        if not namespace["spec"].get("finalizers"):
            return False
        before = self.store.version
        content = [located for located in self._objects() if located[1].startswith(f"{name}/")]
        for kind, key, _ in content:
            self.deletions.delete(kind, key, DeleteOptions("Background"))
        if not content:
            spec = {field: value for field, value in namespace["spec"].items() if field != "finalizers"}
            self.deletions.release(self.kinds[NAMESPACE], name, {**namespace, "spec": spec})
        return self.store.version > before


def _references(located: Located) -> list[RawObject]:
    references: list[RawObject] = located[2]["metadata"]["ownerReferences"]
    return references


def _owner(reference: RawObject, namespace: str, by_uid: Mapping[str, RawObject]) -> RawObject | None:
    """Return the object that a reference means, None if it doesn't exist: it has the uid, kind, name, and namespace."""
    owner = by_uid.get(reference["uid"])
    if owner is None or owner["kind"] != reference["kind"] or owner["metadata"]["name"] != reference["name"]:
        return None
    return owner if owner["metadata"].get("namespace", namespace) == namespace else None


def _waits(owner: RawObject) -> bool:
    """Return whether an owner is deleted after its dependents."""
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
