"""The end state of a trial: the objects that its runs have written, and the primary, without fields never compared.

An object that only the garbage collector has yet to remove counts as removed.
"""

from collections.abc import Iterable
from typing import Final

from rolecall.kube.errors import UnknownKindError
from rolecall.kube.metadata import is_being_deleted, metadata_of, owner_references_of, uid_of
from rolecall.kube.references import ObjectKey, OwnerReference, RawObject
from rolecall.workbench.comparison.end_states import EndObject, EndState, ObjectId
from rolecall.workbench.comparison.objects import compared
from rolecall.workbench.crashtest.simulated_operator import stored
from rolecall.workbench.crashtest.write_log import WriteLog
from rolecall.workbench.plan.model import ABSENT
from rolecall.workbench.plan.reconciles import PlanContext

_OF_GARBAGE_COLLECTOR: Final = frozenset({"foregroundDeletion", "orphan"})


async def end_state(context: PlanContext, log: WriteLog, others: Iterable[ObjectId] = ()) -> EndState:
    """Return the objects that exist of those that a trial has written, and of others. Raises KubeError."""
    found: EndState = {}
    for ident in dict.fromkeys((log.primary_id, *log.objects, *others)):
        if ident.is_event or not (pair := await stored(context, ident)):
            continue
        gvk, obj = pair
        if not await _is_gone(context, obj):
            with_status = ident in log.with_status or ident == log.primary_id
            found[ident] = EndObject(gvk, ident.key, compared(gvk, obj, with_status=with_status))
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
    except (*ABSENT, UnknownKindError):
        return False
