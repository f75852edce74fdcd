"""Waits until the controllers of the sandbox have done their work on what a run has written.

Whatever they change then wakes the primary in a real operator, too.

What Kubernetes' controllers make and delete because of a plan: the ReplicaSets, pods and the like of workloads.

They have done it in the sandbox when a plan is ready. Everything that belongs to what the runs have deleted counts as
deleted, whether the garbage collector of the sandbox has come to it or not.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from rolecall.kube.client import Client
from rolecall.kube.errors import NotFoundError
from rolecall.kube.metadata import (
    generation_of,
    is_being_deleted,
    metadata_of,
    owner_references_of,
    resource_version_of,
    uid_of,
)
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.workbench.plan.model import ControllerChange, ObjectChange, ObjectPlan
from rolecall.workbench.plan.sandbox_import import MADE_BY_CONTROLLERS, Importer

SETTLES_WITHIN_SECONDS: Final = 60.0
LOOK_EVERY_SECONDS: Final = 0.1


def _pod(obj: RawObject) -> bool:
    return (obj.get("status") or {}).get("phase") not in (None, "Pending")


def _replicas(ready: str) -> Callable[[RawObject], bool]:
    def is_done(obj: RawObject) -> bool:
        wanted = (obj.get("spec") or {}).get("replicas", 1)
        status: dict[str, Any] = obj.get("status") or {}
        return status.get("observedGeneration") == generation_of(obj) and status.get(ready, 0) == wanted

    return is_done


def _daemons(obj: RawObject) -> bool:
    status: dict[str, Any] = obj.get("status") or {}
    is_seen = status.get("observedGeneration") == generation_of(obj)
    return is_seen and status.get("numberReady") == status.get("desiredNumberScheduled")


def _job(obj: RawObject) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(each.get("type") in ("Complete", "Failed") and each.get("status") == "True" for each in conditions)


_IS_DONE: Final[dict[tuple[str, str], Callable[[RawObject], bool]]] = {
    ("", "Pod"): _pod,
    ("", "ReplicationController"): _replicas("readyReplicas"),
    ("apps", "Deployment"): _replicas("availableReplicas"),
    ("apps", "ReplicaSet"): _replicas("readyReplicas"),
    ("apps", "StatefulSet"): _replicas("readyReplicas"),
    ("apps", "DaemonSet"): _daemons,
    ("batch", "Job"): _job,
}
"""Kinds that controllers of Kubernetes change, and how to tell that they are done."""


@dataclass(frozen=True, slots=True)
class Written:
    """An object as a run has written it last."""

    gvk: GVK
    key: ObjectKey
    resource_version: str


@dataclass(frozen=True, slots=True)
class Settled:
    """Which objects the controllers have changed or removed, and with which they were not done in time."""

    changed: tuple[Written, ...] = ()
    unfinished: tuple[Written, ...] = ()


async def settled(client: Client, written: Iterable[Written]) -> Settled:
    """Return what the controllers have done, when they are done with all objects.

    An object that never gets done, such as a pod that fits on no node, is waited for in vain for a while.
    """
    looked_after = [each for each in written if (each.gvk.group, each.gvk.kind) in _IS_DONE]
    deadline = asyncio.get_running_loop().time() + SETTLES_WITHIN_SECONDS
    changed, unfinished = [], []
    for each in looked_after:
        found = await _when_done(client, each, deadline)
        if found is None or resource_version_of(found) != each.resource_version:
            changed.append(each)
        if found is not None and not _is_done(each, found):
            unfinished.append(each)
    return Settled(tuple(changed), tuple(unfinished))


async def _when_done(client: Client, written: Written, deadline: float) -> RawObject | None:
    """Return an object when it is done, as it is when the time is over, or None when it is gone."""
    while True:
        try:
            found = await client.get(written.gvk, written.key)
        except NotFoundError:
            return None
        if _is_done(written, found) or asyncio.get_running_loop().time() > deadline:
            return found
        await asyncio.sleep(LOOK_EVERY_SECONDS)


def _is_done(written: Written, found: RawObject) -> bool:
    return _IS_DONE[written.gvk.group, written.gvk.kind](found)


async def controller_changes(importer: Importer, plans: Iterable[ObjectPlan]) -> tuple[ControllerChange, ...]:
    """Return what controllers have made and deleted in the sandbox, apart from what runs have. Raises KubeError."""
    changes = [change for plan in plans for change in plan.changes]
    await settled(importer.client, _written(changes))
    own = {(change.gvk.group, change.gvk.kind, change.key) for change in changes}
    kinds = await _kinds(importer)
    objects = [obj for kind in kinds for obj in kind.present.values()]
    ending = [change.before for change in changes if change.before and _is_deleted(change)]
    ending += [obj for obj in objects if is_being_deleted(obj)]
    deleted = _with_what_belongs_to_them(set(map(uid_of, ending)), objects)
    found: Counter[tuple[GVK, ObjectKey, bool]] = Counter()
    for kind in kinds:
        staying = {key for key, obj in kind.present.items() if uid_of(obj) not in deleted}
        made = (key for key in staying - kind.imported if not _is_in(own, kind.gvk, key))
        gone = (key for key in kind.imported - staying if not _is_in(own, kind.gvk, key))
        found.update((kind.gvk, _shown(key, kind.present[key]), False) for key in made)
        found.update((kind.gvk, key, True) for key in gone)
    counted = (ControllerChange(*change, count) for change, count in found.items())
    return tuple(sorted(counted, key=lambda each: (str(each.key), each.gvk.kind, each.is_deletion)))


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind that controllers make: what was imported of it, and what there is now."""

    gvk: GVK
    imported: set[ObjectKey]
    present: dict[ObjectKey, RawObject]


async def _kinds(importer: Importer) -> list[_Kind]:
    resources = [await importer.client.resource_for_path(*each) for each in MADE_BY_CONTROLLERS]
    return [
        _Kind(each.gvk, importer.keys_of(each), await _present(importer.client, each.gvk)) for each in resources if each
    ]


def _with_what_belongs_to_them(uids: set[str], objects: Iterable[RawObject]) -> set[str]:
    """Return uids of controllers with those of everything that they control, directly or not."""
    owners = {uid_of(obj): _owner_uids(obj) for obj in objects}
    found = set(uids)
    while more := {uid for uid, controlled_by in owners.items() if controlled_by & found} - found:
        found |= more
    return found


def _written(changes: Iterable[ObjectChange]) -> Iterator[Written]:
    for change in changes:
        if change.after is not None and not _is_deleted(change):
            yield Written(change.gvk, change.key, resource_version_of(change.after))


def _is_deleted(change: ObjectChange) -> bool:
    return change.after is None or is_being_deleted(change.after)


def _is_in(own: set[tuple[str, str, ObjectKey]], gvk: GVK, key: ObjectKey) -> bool:
    return (gvk.group, gvk.kind, key) in own


def _owner_uids(obj: RawObject) -> set[str]:
    return {reference.uid for reference in owner_references_of(obj) if reference.controller}


async def _present(client: Client, gvk: GVK) -> dict[ObjectKey, RawObject]:
    objects = [each async for page, _ in client.list_pages(gvk) for each in page]
    return {ObjectKey.of_object(each): each for each in objects}


def _shown(key: ObjectKey, obj: RawObject) -> ObjectKey:
    """Return a key whose name is the same in every plan: without the end that the API server has made up."""
    prefix = str(metadata_of(obj).get("generateName") or "")
    return ObjectKey(key.namespace, f"{prefix}*") if prefix and key.name.startswith(prefix) else key
