"""The work of Kubernetes' controllers in the sandbox: waits for it, and reports what it created and deleted.

Their changes to objects that a run has written trigger another reconcile, as they do in a real operator. They also
create and delete objects such as ReplicaSets and pods. An object counts as deleted when the runs have deleted an object
that controls it, even if the sandbox's garbage collector hasn't processed it yet.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from rolecall.kube.client import Client
from rolecall.kube.errors import NotFoundError
from rolecall.kube.metadata import (
    generation_of,
    is_being_deleted,
    metadata_of,
    owner_references_of,
    resource_version_of,
    status_of,
    uid_of,
)
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.workbench.plan.model import ControllerChange, ObjectChange, ObjectPlan
from rolecall.workbench.plan.sandbox_import import MADE_BY_CONTROLLERS, Importer

CONVERGES_WITHIN_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.1


def _has_started(obj: RawObject) -> bool:
    return status_of(obj).get("phase") not in (None, "Pending")


def _has_replicas(ready: str) -> Callable[[RawObject], bool]:
    def is_done(obj: RawObject) -> bool:
        wanted = (obj.get("spec") or {}).get("replicas", 1)
        status = status_of(obj)
        return status.get("observedGeneration") == generation_of(obj) and status.get(ready, 0) == wanted

    return is_done


def _has_daemons(obj: RawObject) -> bool:
    status = status_of(obj)
    is_observed = status.get("observedGeneration") == generation_of(obj)
    return is_observed and status.get("numberReady") == status.get("desiredNumberScheduled")


def _has_finished(obj: RawObject) -> bool:
    conditions = status_of(obj).get("conditions") or ()
    return any(each.get("type") in ("Complete", "Failed") and each.get("status") == "True" for each in conditions)


_IS_DONE: Final[dict[tuple[str, str], Callable[[RawObject], bool]]] = {
    ("", "Pod"): _has_started,
    ("", "ReplicationController"): _has_replicas("readyReplicas"),
    ("apps", "Deployment"): _has_replicas("availableReplicas"),
    ("apps", "ReplicaSet"): _has_replicas("readyReplicas"),
    ("apps", "StatefulSet"): _has_replicas("readyReplicas"),
    ("apps", "DaemonSet"): _has_daemons,
    ("batch", "Job"): _has_finished,
}
"""Kinds that Kubernetes' controllers change, each with the check whether the controllers are done."""


def is_changed_by_controllers(gvk: GVK) -> bool:
    """Return whether Kubernetes' controllers change the objects of a kind until they are done."""
    return (gvk.group, gvk.kind) in _IS_DONE


def is_done(gvk: GVK, obj: RawObject) -> bool:
    """Return whether Kubernetes' controllers have nothing left to change in an object."""
    check = _IS_DONE.get((gvk.group, gvk.kind))
    return check is None or check(obj)


@dataclass(frozen=True, slots=True)
class WrittenVersion:
    """The version of an object that a run wrote last."""

    gvk: GVK
    key: ObjectKey
    resource_version: str


def written_versions(changes: Iterable[ObjectChange]) -> Iterator[WrittenVersion]:
    """Yield the versions of the objects that changes left."""
    for change in changes:
        if change.after is not None:
            yield WrittenVersion(change.gvk, change.key, resource_version_of(change.after))


def _is_deleted(change: ObjectChange) -> bool:
    return change.after is None or is_being_deleted(change.after)


async def wait_for_controllers(
    client: Client, written: Iterable[WrittenVersion]
) -> tuple[list[WrittenVersion], list[WrittenVersion]]:
    """Wait until the controllers are done with all objects; return those that they changed, and those not done in time.

    An object that is never done, such as a pod that fits on no node, takes the whole time.
    """
    deadline = asyncio.get_running_loop().time() + CONVERGES_WITHIN_SECONDS
    changed, unfinished = [], []
    for each in written:
        if not is_changed_by_controllers(each.gvk):
            continue
        try:
            while not is_done(each.gvk, found := await client.get(each.gvk, each.key)):
                if asyncio.get_running_loop().time() > deadline:
                    unfinished.append(each)
                    break
                await asyncio.sleep(POLL_SECONDS)
        except NotFoundError:
            changed.append(each)
        else:
            changed += [each] if resource_version_of(found) != each.resource_version else []
    return changed, unfinished


async def controller_changes(importer: Importer, plans: Iterable[ObjectPlan]) -> tuple[ControllerChange, ...]:
    """Return the changes that controllers made in the sandbox, without those of the runs. Raises KubeError."""
    changes = [change for plan in plans for change in plan.changes]
    remaining = (each for each in changes if not _is_deleted(each))
    await wait_for_controllers(importer.client, written_versions(remaining))

    own = {(change.gvk.group, change.gvk.kind, change.key) for change in changes}
    resources = [await importer.client.resource_for_path(*each) for each in MADE_BY_CONTROLLERS]
    present = {each: await _objects(importer.client, each.gvk) for each in resources if each}
    objects = [obj for found in present.values() for obj in found.values()]
    deleted = {uid_of(each.before) for each in changes if each.before and _is_deleted(each)}
    deleted |= {uid_of(obj) for obj in objects if is_being_deleted(obj)}
    deleted = _with_controlled_objects(deleted, objects)

    counts: Counter[tuple[GVK, ObjectKey, bool]] = Counter()
    for resource, found in present.items():
        gvk, imported = resource.gvk, importer.keys_of(resource)
        present_keys = {key for key, obj in found.items() if uid_of(obj) not in deleted}
        created = (key for key in present_keys - imported if (gvk.group, gvk.kind, key) not in own)
        gone = (key for key in imported - present_keys if (gvk.group, gvk.kind, key) not in own)
        for key in created:  # without the end of a generated name, which differs in every plan
            prefix = str(metadata_of(found[key]).get("generateName") or "")
            name = f"{prefix}*" if prefix and key.name.startswith(prefix) else key.name
            counts[gvk, ObjectKey(key.namespace, name), False] += 1
        counts.update((gvk, key, True) for key in gone)
    counted = (ControllerChange(*change, count) for change, count in counts.items())
    return tuple(sorted(counted, key=lambda each: (str(each.key), each.gvk.kind, each.is_deletion)))


async def _objects(client: Client, gvk: GVK) -> dict[ObjectKey, RawObject]:
    return {ObjectKey.of_object(each): each async for page, _ in client.list_pages(gvk) for each in page}


def _with_controlled_objects(uids: set[str], objects: Iterable[RawObject]) -> set[str]:
    """Return uids with those of all objects that they control, directly or not."""
    controllers = {uid_of(obj): {each.uid for each in owner_references_of(obj) if each.controller} for obj in objects}
    found = set(uids)
    while more := {uid for uid, controlled_by in controllers.items() if controlled_by & found} - found:
        found |= more
    return found
