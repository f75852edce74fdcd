"""What Kubernetes' controllers make and delete because of a plan: the ReplicaSets, pods and the like of workloads.

They have done it in the shadow when a plan is ready. Everything that belongs to what the runs have deleted counts as
deleted, whether the garbage collector of the shadow has come to it or not.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from rolecall.kube.client import Client
from rolecall.kube.metadata import is_being_deleted, metadata_of, owner_references_of, resource_version_of, uid_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.plan.results import ControllerChange, ObjectChange, ObjectPlan
from rolecall.plan.settling import Written, settled
from rolecall.shadow.importer import Importer

_MADE: Final = (
    GVK("apps", "v1", "ReplicaSet"),
    GVK("apps", "v1", "ControllerRevision"),
    GVK("batch", "v1", "Job"),
    GVK("", "v1", "Pod"),
)
"""What controllers make; each kind stands before what is made for it."""


async def controller_changes(importer: Importer, plans: Iterable[ObjectPlan]) -> tuple[ControllerChange, ...]:
    """Return what controllers have made and deleted in the shadow, apart from what runs have. Raises KubeError."""
    changes = [change for plan in plans for change in plan.changes]
    await settled(importer.client, _written(changes))
    own = {(change.gvk.group, change.gvk.kind, change.key) for change in changes}
    deleted = {uid_of(change.before) for change in changes if change.before and _is_deleted(change)}
    found: Counter[tuple[GVK, ObjectKey, bool]] = Counter()
    for gvk in _MADE:
        known = importer.keys_of(await importer.client.resource(gvk))
        present = await _present(importer.client, gvk)
        going = {key for key, obj in present.items() if is_being_deleted(obj) or _owner_uids(obj) & deleted}
        deleted |= {uid_of(present[key]) for key in going}
        made = [_shown(key, present[key]) for key in present.keys() - known - going if not _is_in(own, gvk, key)]
        gone = [key for key in known - (present.keys() - going) if not _is_in(own, gvk, key)]
        found.update((gvk, key, False) for key in made)
        found.update((gvk, key, True) for key in gone)
    counted = (ControllerChange(*change, count) for change, count in found.items())
    return tuple(sorted(counted, key=lambda each: (str(each.key), each.gvk.kind, each.is_deletion)))


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
