"""Deletes what the runs of an object no longer name, if their role ends with ``rolecall.util.prune``.

``Pruner.run_ended`` is called after each successful run, while its reconcile still holds the object. A wrong deletion
can't be undone, and a missed one is made up for later. So every doubt keeps everything: ``decision.py`` decides from
the inventory, and each deletion is checked against the live primary and the live object immediately before it.

The inventory is written after the last deletion. A crash in between leaves objects in it that no longer exist, which
the next run drops.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from rolecall.kube.errors import InvalidNameError, KubeError, NotFoundError, UnknownKindError
from rolecall.kube.metadata import annotation_of, is_being_deleted, resource_version_of, uid_of
from rolecall.kube.quantities import format_duration
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.work_queue import Cause, Priority
from rolecall.runner.proxy.ownership import Owner
from rolecall.runner.proxy.seen_objects import PRUNE_ANNOTATION, is_own
from rolecall.runner.prune.decision import WAIT_SECONDS, CompleteRun, Decision, PruneOptions, Pruning, decide
from rolecall.runner.prune.inventory import INVENTORY_ANNOTATION, Inventory, InventoryObject, digest_of_inputs
from rolecall.runner.prune.observations import Observations
from rolecall.runner.reconcile.context import ReconcileContext, is_paused
from rolecall.runner.reconcile.kubernetes_events import NORMAL, WARNING, EventSpec
from rolecall.runner.reconcile.status_writer import Primaries
from rolecall.runner.runs.content import digest_of_content
from rolecall.system.blocking_work import run_in_thread
from rolecall.system.clock import SYSTEM_CLOCK
from rolecall.system.logs import get_logger

logger = get_logger("prune")

MAX_ATTEMPTS: Final = 5
"""How many runs in a row may name different sets, or change objects, before no further one is requested."""

_SHOWN: Final = 10
CONFIRM: Final = "confirm"
PRUNE: Final = Cause("prune", priority=Priority.LOW)
"""The cause of a run that confirms which objects the role names, or that deletes those that became due."""


class _StoppedError(Exception):
    """The primary is no longer as the run has seen it."""


@dataclass(slots=True)
class Pruner:
    """Prunes for the primaries of one kind; ``identity`` names the operator and the role in inventories."""

    watch: Watch
    primaries: Primaries
    record_event: Callable[[RawObject, EventSpec], None]
    identity: str
    may_delete: Callable[[ObjectKey], bool]
    """Returns whether this replica holds the object, and no request waits for it."""

    inventories: Mapping[str, str]
    """The inventories of all primaries of the operator, by their uid."""

    count: Callable[[str, str], None] = lambda _kind, _mode: None
    """Counts an object of a kind that was deleted, or with the mode ``report`` would have been."""

    now: Callable[[], float] = SYSTEM_CLOCK.now
    _previous: dict[ObjectKey, str] = field(default_factory=dict)
    """The digest of each object's last run, if that was complete."""

    _attempts: dict[ObjectKey, dict[str, int]] = field(default_factory=dict)
    """How many runs in a row with these inputs have named different sets, or changed something."""

    async def run_ended(self, context: ReconcileContext) -> Pruning:
        """Update the inventory after a run, and delete what is due. Raises nothing: errors are reasons."""
        outcome, run = context.outcome, context.outcome.observations
        await self._keep_for_others(context.key, run)
        previous = self._previous.pop(context.key, None)
        if outcome.prune is None or not outcome.is_successful or context.finalizing:
            return Pruning()
        options = PruneOptions.of_task(outcome.prune)
        skips = outcome.prune["options"].get("skips", ()) if options else ()
        reasons = [*outcome.doubts, *run.doubts, *(f"the play ran with {each}" for each in skips)]
        if outcome.left_out:  # what another version of the role has made for them is still wanted
            reasons.append(f"the role doesn't declare {', '.join(outcome.left_out)}")
        if outcome.requests_requeue:
            reasons.append("the role requests another run, so it hasn't finished")
        if options is None:
            reasons.append("the options of the task are hidden or unreadable")
        elif not reasons:
            try:
                return await self._prune(context, options, previous)
            except (KubeError, OSError) as error:
                reasons.append(str(error))
        logger.info("Nothing is pruned: the run may have left out objects", reasons=reasons)
        return Pruning(texts={"reasons": tuple(reasons)})

    async def _prune(self, context: ReconcileContext, options: PruneOptions, previous: str | None) -> Pruning:
        primary, key, run = context.fresh, context.key, context.outcome.observations
        inputs = await self._inputs(context.obj)
        own = await self._own_objects(run)
        inventory = Inventory.of(primary)
        if inventory.by != self.identity:  # another operator, or another role, has other rules
            inventory = Inventory()
        for each in [each for each in inventory.objects if await self._is_forged(each)]:
            logger.warning("Ignoring an invalid entry of the inventory", entry=str(each), resource=each.id.resource)
            inventory = inventory.without(each.id)
        is_confirmed = annotation_of(primary, PRUNE_ANNOTATION) == CONFIRM
        complete = CompleteRun(inputs, own, run, is_confirmed)
        self._previous[key] = complete.digest
        now = self.now()  # for the texts too: a request may take longer than the time that they show
        decision = decide(inventory, complete, previous, options, now=now)
        if not decision.is_stable:
            return self._await_stability(key, inputs, decision)
        self._attempts.pop(key, None)
        self._announce(primary, decision, options, now)
        left, deleted, reasons = await self._delete(context, inputs, decision)
        await self._write(primary, left, is_used=is_confirmed and bool(deleted))
        again_at = self.now() + WAIT_SECONDS if reasons else decision.again_at
        remarks = tuple(filter(None, [decision.remark, *reasons]))
        obsolete = tuple(f"{each}: {_no_longer_named(options.due_at(each), options, now)}" for each in left.obsolete)
        texts = {"reasons": remarks, "obsolete": obsolete, "deleted": tuple(map(str, deleted))}
        return Pruning(again_at, texts=texts, deletes=len(left.obsolete) if options.deletes else 0)

    def _await_stability(self, key: ObjectKey, inputs: str, decision: Decision) -> Pruning:
        count = self._attempts.get(key, {}).get(inputs, 0) + 1
        self._attempts[key] = {inputs: count}
        if count <= MAX_ATTEMPTS:
            return Pruning(decision.again_at, is_stable=False, texts={"reasons": (decision.remark,)})
        reason = f"{count} runs in a row with the same inputs have named different objects, or changed some"
        logger.info("Nothing is pruned: the role names or changes other objects in each run", runs=count)
        return Pruning(texts={"reasons": (reason,)})

    async def _inputs(self, primary: RawObject) -> str:
        files = await run_in_thread(partial(digest_of_content, (self.watch.content,)))
        variables = {"vars": dict(self.watch.variables), "snakeCase": self.watch.snake_case_parameters}
        return digest_of_inputs(primary, {"files": files, **variables})

    async def _own_objects(self, run: Observations) -> tuple[InventoryObject, ...]:
        """Return the own objects that a run has named, with their kinds. Raise KubeError if one isn't served."""
        found = []
        for each, seen in run.own.items():
            resource = await self.primaries.client.resource_for_path(each.group, seen.version, each.resource)
            if resource is None:
                raise UnknownKindError(GVK(each.group, seen.version, each.resource))
            found.append(InventoryObject(each, seen.version, resource.gvk.kind, seen.uid))
        return tuple(found)

    async def _is_forged(self, each: InventoryObject) -> bool:
        """Return whether an entry can't come from a run: its kind isn't that of its resource, or has another scope."""
        try:
            resource = await self.primaries.client.resource(GVK(each.id.group, each.version, each.kind))
            resource.path_of(each.id.key)
        except UnknownKindError:  # it can't be deleted either
            return False
        except InvalidNameError:
            return True
        return (resource.plural, resource.namespaced) != (each.id.resource, bool(each.id.namespace))

    def _announce(self, primary: RawObject, decision: Decision, options: PruneOptions, now: float) -> None:
        if newly := decision.newly_obsolete:
            why = _no_longer_named(min(map(options.due_at, newly)), options, now)
            logger.info("Objects are obsolete", objects=_listed(newly), deletes=options.deletes)
            message = f"{why.capitalize()}: {_listed(newly)}"
            self.record_event(primary, EventSpec(NORMAL, "ObjectsObsolete", message))
            for each in () if options.deletes else newly:
                self.count(each.kind, "report")
        if decision.needs_confirmation:
            how = f'to delete them, set the annotation {PRUNE_ANNOTATION}: "{CONFIRM}"'
            message = f"Nothing was deleted: {decision.remark}; {how}: {_listed(decision.inventory.obsolete)}"
            self.record_event(primary, EventSpec(WARNING, "PruneNeedsConfirmation", message))

    async def _delete(
        self, context: ReconcileContext, inputs: str, decision: Decision
    ) -> tuple[Inventory, list[InventoryObject], list[str]]:
        """Delete what is due; return the inventory without what is gone, what was deleted, and why something wasn't."""
        left, deleted, reasons = decision.inventory, [], []
        for each in decision.due:
            try:
                await self._check_primary(context, inputs)
            except (KubeError, OSError, _StoppedError) as error:
                reasons.append(str(error))
                break
            try:
                if await self._delete_object(context, each):
                    deleted.append(each)
                    self.count(each.kind, "delete")
                left = left.without(each.id)
            except KubeError as error:
                logger.warning("Failed to delete an obsolete object", object=str(each), reason=str(error))
                reasons.append(f"{each}: {error}")
        if deleted:
            logger.info("Obsolete objects deleted", objects=_listed(deleted))
            message = f"Deleted, because the role no longer names them: {_listed(deleted)}"
            self.record_event(context.fresh, EventSpec(NORMAL, "Pruned", message))
        return left, deleted, reasons

    async def _check_primary(self, context: ReconcileContext, inputs: str) -> None:
        """Raise KubeError or _StoppedError unless the primary is still the one that the run has seen."""
        live = await self.primaries.read_again(context.obj)
        if is_paused(live) or is_being_deleted(live):
            raise _StoppedError("the object is paused or being deleted")
        if await self._inputs(live) != inputs:
            raise _StoppedError("the object or its role changed")
        if context.interruption is not None or not (self.primaries.may_write() and self.may_delete(context.key)):
            raise _StoppedError("another run is due, or another replica may be the leader")

    async def _delete_object(self, context: ReconcileContext, each: InventoryObject) -> bool:
        """Delete an object; return False if it must stay, or is gone. Raise KubeError if it couldn't be deleted."""
        client, gvk = self.primaries.client, GVK(each.id.group, each.version, each.kind)
        owner = Owner(self.watch.gvk, context.key, uid_of(context.obj), namespaced=bool(context.key.namespace))
        try:
            live = await client.get(gvk, each.id.key)
            if uid_of(live) != each.uid or not is_own(live, owner):
                return False
            await client.delete(gvk, each.id.key, {"uid": each.uid, "resourceVersion": resource_version_of(live)})
        except NotFoundError:
            return False
        self.primaries.own_writes.record_removal((self.watch.gvk, context.key), each.uid)
        return True

    async def _write(self, primary: RawObject, inventory: Inventory, *, is_used: bool) -> None:
        """Write the inventory if it changed, and remove a confirmation that was used."""
        text = replace(inventory, by=self.identity).to_text() if inventory.objects else None
        changed: dict[str, str | None] = {PRUNE_ANNOTATION: None} if is_used else {}
        if annotation_of(primary, INVENTORY_ANNOTATION) != text:
            changed[INVENTORY_ANNOTATION] = text
        if changed and self.primaries.may_write():
            key = ObjectKey.of_object(primary)
            written = await self._annotate(self.watch.gvk, key, uid_of(primary), changed)
            self.primaries.own_writes.record_write((self.watch.gvk, key), written)

    async def _annotate(self, gvk: GVK, key: ObjectKey, uid: str, annotations: Mapping[str, str | None]) -> RawObject:
        patch = {"metadata": {"uid": uid, "annotations": annotations}}  # the uid is a precondition
        return await self.primaries.client.patch(gvk, key, patch)

    async def _keep_for_others(self, key: ObjectKey, run: Observations) -> None:
        """Mark the objects of other primaries' inventories that the run has requested by name: these stay."""
        for found, (version, uid, owner_uid) in run.others.items():
            if f'"{uid}"' not in self.inventories.get(owner_uid, "") or not self.primaries.may_write():
                continue
            name = f"{found.resource} {found.key}"
            try:
                resource = await self.primaries.client.resource_for_path(found.group, version, found.resource)
                if resource is not None:
                    written = await self._annotate(resource.gvk, found.key, uid, {PRUNE_ANNOTATION: "false"})
                    self.primaries.own_writes.record_write((self.watch.gvk, key), written)
                    logger.info("Keeping an object that roles of two objects use", object=name)
            except KubeError as error:
                logger.warning("Failed to mark an object that roles of two objects use", object=name, reason=str(error))

    def forget(self, key: ObjectKey) -> None:
        """Drop the state of a deleted object."""
        self._previous.pop(key, None)
        self._attempts.pop(key, None)


def _no_longer_named(due: float, options: PruneOptions, now: float) -> str:
    after = format_duration(max(0, math.ceil(due - now)))
    verdict = f"deleted after {after}" if options.deletes else "not deleted, because the mode is report"
    return f"no longer named by the role, {verdict}"


def _listed(objects: Sequence[InventoryObject]) -> str:
    names = ", ".join(map(str, objects[:_SHOWN]))
    return names if len(objects) <= _SHOWN else f"{names}, and {len(objects) - _SHOWN} more"
