"""Deletes what the runs of an object no longer name, if their role ends with ``rolecall.util.prune``.

``Pruner.run_ended`` is called after each run, while its reconcile still holds the object. A wrong deletion can't be
undone, and a missed one is made up for later. So every doubt keeps everything: ``decision.py`` decides from the
inventory, and each deletion is checked against the live primary and the live object immediately before it. The mark of
the live object is the authority, see ``proxy/made_for.py``.

The inventory is written after the last deletion. A crash in between leaves objects in it that no longer exist, which
the next run drops.

An object that a run of another primary requests by name loses its mark after that run. Until then, this process
remembers it, from the moment of the request.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from rolecall.kube.errors import InvalidNameError, KubeError, NotFoundError, UnknownKindError
from rolecall.kube.metadata import annotation_of, is_being_deleted, resource_version_of, uid_of
from rolecall.kube.quantities import format_duration
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.work_queue import Cause, Priority
from rolecall.runner.proxy.made_for import has_uid_in_mark
from rolecall.runner.proxy.ownership import Owner
from rolecall.runner.proxy.seen_objects import is_own
from rolecall.runner.prune.decision import WAIT_SECONDS, CompleteRun, Decision, PruneOptions, Pruning, decide, judge
from rolecall.runner.prune.inventory import (
    INVENTORY_ANNOTATION,
    NAMED,
    Inputs,
    Inventory,
    InventoryObject,
    digest_of_object,
    inputs_of,
)
from rolecall.runner.prune.observations import ObjectId, Observations
from rolecall.runner.reconcile.context import CONFIRM_ANNOTATION, ReconcileContext, is_paused
from rolecall.runner.reconcile.kubernetes_events import NORMAL, WARNING, EventSpec
from rolecall.runner.reconcile.marks import Marks
from rolecall.runner.reconcile.status_writer import Primaries
from rolecall.runner.runs.content import Code, code_of
from rolecall.runner.runs.outcome import Outcome
from rolecall.system.blocking_work import run_in_thread
from rolecall.system.clock import SYSTEM_CLOCK, Clock
from rolecall.system.logs import get_logger

logger = get_logger("prune")

MAX_ATTEMPTS: Final = 5
"""How many runs in a row may name different sets, or change objects, before no further one is requested."""

_SHOWN: Final = 10
PRUNE: Final = Cause("prune", priority=Priority.LOW)
"""The cause of a run that deletes what has become due."""

NAME_AGAIN: Final = Cause("prune: confirm which objects the role names", priority=Priority.LOW)
"""The cause of a run that shows whether the role names the same objects again."""


class _StoppedError(Exception):
    """The primary is no longer as the run has seen it."""


@dataclass(slots=True)
class _Memory:
    """What this process knows about a primary, in addition to its inventory."""

    previous: str | None = None
    """The digest of the last run, if that was complete."""

    attempts: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """How many runs in a row with these inputs have named different sets, or changed something."""

    inputs: tuple[str, str] = ("", "")
    named: set[ObjectId] = field(default_factory=set)
    """The entries that runs with these inputs have named."""

    seen: dict[str, str] = field(default_factory=dict)
    """The digests of objects, by uid, when this process saw for the first time that runs no longer name them."""

    obsolete_at: dict[tuple[str, int], float] = field(default_factory=dict)
    """When this process saw for the first time that an object (its uid) is obsolete since then, monotonic."""

    written: str | None = None
    """The inventory as this process has written it last, empty if it has removed it, None if it has done neither."""

    doubtful: int = 0
    """How many runs in a row have reached the task with a doubt about a request."""

    told: set[str] = field(default_factory=set)
    """What the last Events said."""


@dataclass(slots=True)
class Pruner:
    """Prunes for the primaries of one kind; ``identity`` names the operator and the role in inventories."""

    watch: Watch
    primaries: Primaries
    record_event: Callable[[RawObject, EventSpec], None]
    identity: str
    may_delete: Callable[[ObjectKey], bool]
    """Returns whether this replica holds the object, and no request waits for it."""

    shared: set[tuple[ObjectId, str]] = field(default_factory=set)
    """The objects that runs of other primaries have requested by name, with the uid of the primary in their mark."""

    uids: AbstractSet[str] | None = None
    """The uids of the primaries of all kinds of this operator, None if they aren't known."""

    pruning: set[GVK] = field(default_factory=set)
    """The kinds of this operator whose roles may prune."""

    count: Callable[[str, str], None] = lambda _kind, _mode: None
    """Counts an object of a kind that was deleted, or with the mode ``report`` was proposed."""

    clock: Clock = SYSTEM_CLOCK
    _memory: dict[ObjectKey, _Memory] = field(default_factory=dict)

    @property
    def marks(self) -> Marks:
        """What takes marks from objects."""
        return Marks(self.primaries, self.shared, self.pruning)

    async def run_starts(self, context: ReconcileContext) -> None:
        """Note the role with which a run starts, and let it note what it names. Raises nothing."""
        context.observations = Observations(shared=self.shared, primaries=self.uids)
        if self.watch.gvk in self.pruning or annotation_of(context.obj, INVENTORY_ANNOTATION) is not None:
            context.role = _digest_of(await self._code())

    async def run_ended(self, context: ReconcileContext, *, is_saved: bool = True) -> Pruning:
        """Update the inventory after a run, and delete what is due. Raises nothing: errors are reasons.

        ``is_saved`` is whether the status of the run could be written.
        """
        outcome = context.outcome
        if outcome.prune is not None:  # also in a file that ``Launcher`` didn't find
            self.pruning.add(self.watch.gvk)
        await self.marks.unmark_shared(context)
        inventory = self._inventory_of(context.fresh)
        is_reached = outcome.prune is not None and outcome.is_successful
        if context.finalizing or not (is_reached or inventory.objects):
            self._memory.pop(context.key, None)
            return Pruning()
        options = PruneOptions.of_task(outcome.prune or {})
        reasons = self._doubts(context, options) if is_reached else []
        code = await self._code()
        is_same_role = context.role is not None and _digest_of(code) == context.role
        if not is_same_role:
            reasons.append("the files of the role changed during the run, or weren't known before it")
            context.observations.doubt(reasons[-1])
        if not is_saved:
            reasons.append("the status of the run couldn't be written")
        try:
            if options is not None and is_reached and not reasons:
                return await self._prune(context, inventory, options, _unknown_file(context.outcome, code))
            await self._note(context, inventory, is_same_role=is_same_role)
        except (KubeError, OSError) as error:
            reasons.append(str(error))
        if not is_reached:
            return Pruning(texts={"reasons": tuple(reasons)} if reasons else {})
        logger.info("Nothing is pruned: the run may have left out objects", reasons=reasons)
        if inventory.obsolete:
            self._tell_reasons(context, reasons)
        memory = self._remember(context.key)
        memory.doubtful = memory.doubtful + 1 if context.observations.doubts else 0
        is_tried_again = 0 < memory.doubtful <= MAX_ATTEMPTS  # most requests fail only for a moment
        seconds = 1 if context.role is None else WAIT_SECONDS  # from now on, the role is known before the run
        return Pruning(self.clock.now() + seconds if is_tried_again else None, texts={"reasons": tuple(reasons)})

    def _inventory_of(self, primary: RawObject) -> Inventory:
        """Return the inventory of a primary; of one that others have edited, only what this process has written."""
        found, memory = Inventory.of(primary), self._memory.get(ObjectKey.of_object(primary))
        if found.by != self.identity:  # another operator, or another role, has other rules
            return Inventory()
        written = None if memory is None else memory.written
        if written is None or written == annotation_of(primary, INVENTORY_ANNOTATION):
            return found
        left, known = {each.id for each in found.objects}, Inventory.read(written)
        return replace(known, objects=tuple(each for each in known.objects if each.id in left))

    def _doubts(self, context: ReconcileContext, options: PruneOptions | None) -> list[str]:
        """Return why a successful run isn't complete."""
        outcome, run = context.outcome, context.observations
        skips = (outcome.prune or {})["options"].get("skips", ()) if options else ()
        reasons = [*outcome.doubts, *run.doubts, *(f"the play ran with {each}" for each in skips)]
        if outcome.left_out:  # what another version of the role has made for them is still wanted
            reasons.append(f"the role doesn't declare {', '.join(outcome.left_out)}")
        if outcome.requests_requeue:
            reasons.append("the role requests another run, so it hasn't finished")
        if options is None:
            reasons.append("the options of the task are hidden or unreadable")
        return reasons

    async def _note(self, context: ReconcileContext, inventory: Inventory, *, is_same_role: bool) -> None:
        """Note what a run that isn't complete has named: these objects are needed with these inputs."""
        memory = self._remember(context.key)
        memory.previous = None
        if inventory.objects:
            inputs = self._inputs(context.obj, context.role)
            if not is_same_role:  # it isn't known with which role the run has named what
                inputs = Inputs(inventory.spec, inventory.role, inputs.metadata, inventory.generation)
            await self._write(context.fresh, self._judged(context, inventory, inputs, is_complete=False))

    async def _prune(
        self, context: ReconcileContext, inventory: Inventory, options: PruneOptions, unknown_file: str
    ) -> Pruning:
        primary, memory, run = context.fresh, self._remember(context.key), context.observations
        previous, memory.previous, memory.doubtful = memory.previous, None, 0
        inputs = self._inputs(context.obj, context.role)
        own = await self._own_objects(context)
        for each in [each for each in inventory.objects if await self._is_forged(each)]:
            logger.warning("Ignoring an invalid entry of the inventory", entry=str(each), resource=each.id.resource)
            inventory = inventory.without(each.id)
        old_confirm = inventory.confirm
        inventory = self._judged(context, inventory, inputs, is_complete=True)
        inventory, reasons = await self._examined(context, inventory)
        known_seconds = self._known_seconds(memory, inventory)
        confirmed = annotation_of(primary, CONFIRM_ANNOTATION) or ""
        complete = CompleteRun(inputs, own, run, confirmed, unknown_file)
        memory.previous = complete.digest
        now = self.clock.now()  # for the texts too: a request may take longer than the time that they show
        decision = decide(inventory, complete, previous, options, now=now, known_seconds=known_seconds)
        if not decision.is_stable:
            await self._write(primary, decision.inventory)
            return self._await_stability(memory, inputs, decision)
        memory.attempts.clear()
        self._propose(context, decision, old_confirm, options)
        left, deleted, problems = await self._delete(context, inputs, decision)
        is_other = confirmed != decision.inventory.confirm
        if confirmed and decision.due and not is_other:
            left = replace(left, confirm="")
        await self._write(primary, left, removes_confirmation=bool(confirmed and (decision.due or is_other)))
        reasons += [*filter(None, [decision.remark]), *problems]
        again_at = self.clock.now() + WAIT_SECONDS if problems else decision.again_at
        waits = {each.id: options.seconds_left(each, now, known_seconds(each)) for each in left.obsolete}
        asked = {each.id for each in decision.proposed}
        later = tuple(each for each in left.obsolete if each.id not in asked)
        self._tell(context, memory, reasons, later, waits)
        texts = {
            "reasons": tuple(reasons),
            "obsolete": tuple(f"{each}: no longer named by the role, {_when(waits[each.id])}" for each in later),
            "proposed": tuple(
                f"{each}: no longer named by the role, {_asking(decision)}" for each in decision.proposed
            ),
            "deleted": tuple(f"{kind} {ObjectKey.of_object(each)}" for kind, each in deleted),
        }
        manifests = tuple(each for _, each in deleted)
        return Pruning(again_at, texts=texts, manifests=manifests)

    def _known_seconds(self, memory: _Memory, inventory: Inventory) -> Callable[[InventoryObject], float]:
        """Return a function that returns how long this process has known that an object is obsolete."""
        known_at, now = memory.obsolete_at, self.clock.monotonic()
        seen = {(each.uid, each.since) for each in inventory.obsolete}
        obsolete_at = memory.obsolete_at = {each: known_at.get(each, now) for each in seen}
        return lambda each: now - obsolete_at.get((each.uid, each.since), now)

    def _remember(self, key: ObjectKey) -> _Memory:
        return self._memory.setdefault(key, _Memory())

    def _judged(
        self, context: ReconcileContext, inventory: Inventory, inputs: Inputs, *, is_complete: bool
    ) -> Inventory:
        """Return the inventory with what this run, and earlier ones of this process with these inputs, have named."""
        memory, run = self._remember(context.key), context.observations
        if memory.inputs != inputs[:2]:
            memory.inputs, memory.named = inputs[:2], set()
        memory.named |= {each.id for each in inventory.objects if run.names(each.id, each.uid)}
        named = memory.named
        unnamed = {each.uid for each in inventory.objects if each.id not in named}
        memory.seen = {uid: digest for uid, digest in memory.seen.items() if uid in unnamed}
        return judge(
            inventory,
            inputs,
            lambda each: each.id in named,
            self.clock.now(),
            is_complete=is_complete,
        )

    async def _examined(self, context: ReconcileContext, inventory: Inventory) -> tuple[Inventory, list[str]]:
        """Read what has become obsolete; return the inventory without what can't be pruned, and why a read failed.

        The digest of what was read shows later whether a client has changed the object since, so its time starts now.
        If the inventory can't be written, that of the first read counts.
        """
        problems, now, memory = [], max(1, int(self.clock.now())), self._remember(context.key)
        for each in inventory.obsolete:
            if each.seen:
                continue
            try:
                live = await self._own_object(context, each)
            except KubeError as error:
                problems.append(f"{each}: {error}")
                continue
            if live is None:
                inventory = inventory.without(each.id)
            else:
                seen = memory.seen.setdefault(each.uid, digest_of_object(live))
                inventory = inventory.having(replace(each, since=now, seen=seen))
        return inventory, problems

    async def _own_object(self, context: ReconcileContext, each: InventoryObject) -> RawObject | None:
        """Read an object; return None if it was deleted, is another one, or not the primary's own. Raise KubeError."""
        owner = Owner(self.watch.gvk, context.key, uid_of(context.obj), namespaced=bool(context.key.namespace))
        try:
            live = await self.primaries.client.get(GVK(each.id.group, each.version, each.kind), each.id.key)
        except NotFoundError:
            return None
        is_same = uid_of(live) == each.uid and has_uid_in_mark(live)
        is_marked = is_same and is_own(live, owner, each.id.group, each.kind)
        return live if is_marked and (each.id, owner.uid) not in self.shared else None

    def _await_stability(self, memory: _Memory, inputs: Inputs, decision: Decision) -> Pruning:
        count = memory.attempts.get(inputs.digests, 0) + 1
        memory.attempts = {inputs.digests: count}
        if count <= MAX_ATTEMPTS:
            return Pruning(decision.again_at, is_stable=False, texts={"reasons": (decision.remark,)})
        reason = f"{count} runs in a row with the same inputs have named different objects, or changed some"
        logger.info("Nothing is pruned: the role names or changes other objects in each run", runs=count)
        return Pruning(texts={"reasons": (reason,)})

    async def _code(self) -> Code | None:
        """Return the code of the role; None if a file can't be read."""
        try:
            return await run_in_thread(partial(code_of, self.watch.content))
        except OSError:
            return None

    def _inputs(self, primary: RawObject, role: str | None) -> Inputs:
        variables = {"vars": dict(self.watch.variables), "snakeCase": self.watch.snake_case_parameters}
        return inputs_of(primary, {"files": role, **variables})

    async def _own_objects(self, context: ReconcileContext) -> tuple[InventoryObject, ...]:
        """Return the own objects that a run has named, with their kinds and with complete marks. Raise KubeError."""
        found = []
        for each, seen in context.observations.own.items():
            gvk = await self.marks.kind_of(each, seen.version)
            own = InventoryObject(each, seen.version, gvk.kind, seen.uid)
            if not seen.has_uid_in_mark:  # a run has created it before the role had the task
                await self.marks.complete(context, own)
            found.append(own)
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

    def _propose(self, context: ReconcileContext, decision: Decision, old_confirm: str, options: PruneOptions) -> None:
        """Ask a person, once for each proposal."""
        confirm = decision.inventory.confirm
        if not decision.proposed or confirm == old_confirm:
            return
        how = f"to delete exactly these, annotate this object with {CONFIRM_ANNOTATION}={confirm}"
        message = f"No longer named by the role, and kept, because {decision.why_asking}; {how}: "
        logger.info("Objects are proposed for deletion", objects=_listed(decision.proposed), confirm=confirm)
        spec = EventSpec(WARNING if options.deletes else NORMAL, "PruneProposed", message + _listed(decision.proposed))
        self.record_event(context.fresh, spec)
        for each in decision.proposed:
            self.count(each.kind, "report")

    def _tell(
        self,
        context: ReconcileContext,
        memory: _Memory,
        reasons: Sequence[str],
        later: Sequence[InventoryObject],
        waits: Mapping[ObjectId, float],
    ) -> None:
        """Say once what will be deleted, and what it waits for."""
        known, memory.told = memory.told, memory.told & {*map(str, later), *reasons}
        memory.told |= set(map(str, later))
        if newly := [each for each in later if str(each) not in known]:
            when = _when(min(waits[each.id] for each in newly))
            logger.info("Objects are obsolete", objects=_listed(newly))
            message = f"No longer named by the role, {when}: {_listed(newly)}"
            self.record_event(context.fresh, EventSpec(NORMAL, "ObjectsObsolete", message))
        self._tell_reasons(context, reasons)

    def _tell_reasons(self, context: ReconcileContext, reasons: Sequence[str]) -> None:
        """Say once why obsolete objects aren't deleted yet."""
        told = self._remember(context.key).told
        if new := [each for each in reasons if each not in told]:
            told.update(new)
            logger.info("Obsolete objects wait", reasons=new)
            self.record_event(context.fresh, EventSpec(NORMAL, "PruneWaits", "; ".join(new)))

    async def _delete(
        self, context: ReconcileContext, inputs: Inputs, decision: Decision
    ) -> tuple[Inventory, list[tuple[str, RawObject]], list[str]]:
        """Delete what is due; return the inventory without what is gone, what was deleted, and why something wasn't."""
        left, problems = decision.inventory, []
        deleted: list[tuple[str, RawObject]] = []
        for each in decision.due:
            try:
                await self._check_primary(context, inputs)
            except (KubeError, OSError, _StoppedError) as error:
                problems.append(str(error))
                break
            try:
                live = await self._own_object(context, each)
                if live is not None and digest_of_object(live) != each.seen:  # a user needs it
                    left = left.having(replace(each, since=NAMED, asks=False, seen=""))
                    self._remember(context.key).named.add(each.id)
                    continue
                if live is not None and await self._delete_object(context, each, live):
                    deleted.append((each.kind, live))
                    self.count(each.kind, "delete")
                left = left.without(each.id)
            except KubeError as error:
                logger.warning("Failed to delete an obsolete object", object=str(each), reason=str(error))
                problems.append(f"{each}: {error}")
        if deleted:
            names = _listed([f"{kind} {ObjectKey.of_object(each)}" for kind, each in deleted])
            logger.info("Obsolete objects deleted", objects=names)
            message = f"Deleted, because the role no longer names them: {names}"
            self.record_event(context.fresh, EventSpec(NORMAL, "Pruned", message))
        return left, deleted, problems

    async def _check_primary(self, context: ReconcileContext, inputs: Inputs) -> None:
        """Raise KubeError or _StoppedError unless the primary is still the one that the run has seen."""
        live = await self.primaries.read_again(context.obj)
        if is_paused(live) or is_being_deleted(live):
            raise _StoppedError("the object is paused or being deleted")
        if self._inputs(live, _digest_of(await self._code())).digests != inputs.digests:
            raise _StoppedError("the object or its role changed")
        if context.interruption is not None or not (self.primaries.may_write() and self.may_delete(context.key)):
            raise _StoppedError("another run is due, or another replica may be the leader")

    async def _delete_object(self, context: ReconcileContext, each: InventoryObject, live: RawObject) -> bool:
        """Delete an object as it was read; return False if it doesn't exist. Raise KubeError if that fails."""
        preconditions = {"uid": each.uid, "resourceVersion": resource_version_of(live)}
        try:
            gvk = GVK(each.id.group, each.version, each.kind)
            await self.primaries.client.delete(gvk, each.id.key, preconditions)
        except NotFoundError:
            return False
        self.primaries.own_writes.record_removal((self.watch.gvk, context.key), each.uid)
        return True

    async def _write(self, primary: RawObject, inventory: Inventory, *, removes_confirmation: bool = False) -> None:
        """Write the inventory if it changed, and remove a confirmation that was used, or that is for something else."""
        text = replace(inventory, by=self.identity).to_text() if inventory.objects else None
        changed: dict[str, str | None] = {CONFIRM_ANNOTATION: None} if removes_confirmation else {}
        if annotation_of(primary, INVENTORY_ANNOTATION) != text:
            changed[INVENTORY_ANNOTATION] = text
        if changed and self.primaries.may_write():
            key = ObjectKey.of_object(primary)
            await self.primaries.annotate(key, self.watch.gvk, key, {"uid": uid_of(primary)}, changed)
            self._remember(key).written = text or ""

    def forget(self, key: ObjectKey) -> None:
        """Drop the state of an object that was deleted, or that another replica reconciles from now on."""
        self._memory.pop(key, None)


def _digest_of(code: Code | None) -> str | None:
    return None if code is None else code.digest


def _unknown_file(outcome: Outcome, code: Code | None) -> str:
    """Return a file with tasks of the run that isn't part of the code of the role, empty if there is none."""
    known = code.files if code else frozenset[str]()
    return next((path for path in outcome.task_files if not known & {path, os.path.realpath(path)}), "")


def _when(seconds: float) -> str:
    return f"deleted after {format_duration(math.ceil(seconds))}" if seconds > 0 else "deleted after the next run"


def _asking(decision: Decision) -> str:
    return f"kept, because {decision.why_asking}; confirm with {CONFIRM_ANNOTATION}={decision.inventory.confirm}"


def _listed(objects: Sequence[object]) -> str:
    names = ", ".join(map(str, objects[:_SHOWN]))
    return names if len(objects) <= _SHOWN else f"{names}, and {len(objects) - _SHOWN} more"
