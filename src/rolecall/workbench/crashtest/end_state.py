"""The end state of a trial: the objects that its runs have written, and the primary, without fields never compared.

These are the fields that the API server, controllers, and the operator maintain for themselves: versions, uids, times,
counts. An object that only the garbage collector has yet to remove counts as removed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from rolecall.kube.errors import NotFoundError, UnknownKindError
from rolecall.kube.metadata import is_being_deleted, metadata_of, owner_references_of, uid_of
from rolecall.kube.references import GVK, SECRET, ObjectKey, OwnerReference, RawObject
from rolecall.workbench.crashtest.simulated_operator import stored
from rolecall.workbench.crashtest.write_log import ObjectId, WriteLog
from rolecall.workbench.plan.reconciles import PlanContext
from rolecall.workbench.plan.shown_changes import cleaned, text_in_base64

_OF_GARBAGE_COLLECTOR: Final = frozenset({"foregroundDeletion", "orphan"})
_SET_LATER: Final = {"Pod": "nodeName", "PersistentVolumeClaim": "volumeName"}
"""Fields of a spec that controllers set, after some time."""

_VOLATILE: Final = frozenset({"lastTransitionTime", "lastUpdateTime", "lastProbeTime", "ansibleResult"})


@dataclass(frozen=True, slots=True)
class EndObject:
    """An object of an end state; the values of a Secret are decoded."""

    gvk: GVK
    key: ObjectKey
    content: RawObject

    @property
    def is_secret(self) -> bool:
        """Whether it is a Secret."""
        return (self.gvk.group, self.gvk.kind) == (SECRET.group, SECRET.kind)

    @property
    def title(self) -> str:
        """The kind and the key."""
        return f"{self.gvk.kind} {self.key}"


EndState = dict[ObjectId, EndObject]


async def end_state(context: PlanContext, log: WriteLog, others: Iterable[ObjectId] = ()) -> EndState:
    """Return the objects that exist of those that a trial has written, and of others. Raises KubeError."""
    found: EndState = {}
    for ident in dict.fromkeys((log.primary_id, *log.objects, *others)):
        if ident.is_event or not (pair := await stored(context, ident)):
            continue
        gvk, obj = pair
        if not await _is_gone(context, obj):
            with_status = ident in log.with_status or ident == log.primary_id
            found[ident] = EndObject(gvk, ident.key, _compared(gvk, obj, with_status=with_status))
    return found


async def _is_gone(context: PlanContext, obj: RawObject) -> bool:
    """Return whether an object exists only until the garbage collector or the end of its grace period."""
    finalizers = set(metadata_of(obj).get("finalizers") or ())
    if is_being_deleted(obj) and finalizers <= _OF_GARBAGE_COLLECTOR:
        return True
    owners = owner_references_of(obj)
    return bool(owners) and not any([await _exists(context, each, obj) for each in owners])


async def _exists(context: PlanContext, owner: OwnerReference, owned: RawObject) -> bool:
    try:
        resource = await context.client.resource(owner.gvk)
        namespace = ObjectKey.of_object(owned).namespace if resource.namespaced else ""
        return uid_of(await context.client.get(owner.gvk, ObjectKey(namespace, owner.name))) == owner.uid
    except (NotFoundError, UnknownKindError):
        return False


def _compared(gvk: GVK, obj: RawObject, *, with_status: bool) -> RawObject:
    content = cleaned(obj, with_status=with_status)
    if isinstance(status := content.get("status"), dict):
        content["status"] = _without_volatile(status)
    if isinstance(spec := content.get("spec"), dict) and gvk.kind in _SET_LATER:
        content["spec"] = {name: value for name, value in spec.items() if name != _SET_LATER[gvk.kind]}
    if (gvk.group, gvk.kind) == (SECRET.group, SECRET.kind) and isinstance(data := content.get("data"), dict):
        content["data"] = {name: text_in_base64(str(value)) or value for name, value in data.items()}
    return content


def _without_volatile(value: Any) -> Any:
    """Return a part of a status without times and counts; conditions are in the order of their types."""
    if isinstance(value, list):
        return [_without_volatile(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {name: _without_volatile(inner) for name, inner in value.items() if name not in _VOLATILE}
    conditions = found.get("conditions")
    if isinstance(conditions, list) and all(isinstance(each, dict) for each in conditions):
        found["conditions"] = sorted(conditions, key=lambda each: str(each.get("type")))
    return found
