"""What Kubernetes' controllers make and delete because of a plan: the ReplicaSets, pods and the like of workloads.

They have done it in the shadow when a plan is ready. Everything that belongs to what the runs have deleted counts as
deleted, whether the garbage collector of the shadow has come to it or not.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rolecall.kube.client import Client
from rolecall.kube.metadata import is_being_deleted, metadata_of, owner_references_of, resource_version_of, uid_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.workbench.plan.convergence import Written, settled
from rolecall.workbench.plan.importer import Importer
from rolecall.workbench.plan.relatives import MADE_BY_CONTROLLERS
from rolecall.workbench.plan.results import ControllerChange, ObjectChange, ObjectPlan


async def controller_changes(importer: Importer, plans: Iterable[ObjectPlan]) -> tuple[ControllerChange, ...]:
    """Return what controllers have made and deleted in the shadow, apart from what runs have. Raises KubeError."""
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
