"""Decides after a run what its object no longer needs, and when that may be deleted. Pure.

A deletion without a person needs the author's word (the task ``rolecall.util.prune`` in mode ``delete``), the user's
edit of the spec, and time. All others need a person, who confirms exactly what is proposed.

- An entry of the inventory that **any** run with the present inputs has named, even a failed one, stays until they
  change.
- The first complete run after a change of the inputs makes the others obsolete. If the role or its variables changed,
  or did at any time since a run named the entry, a person must confirm its deletion.
- A set of objects is *stable* when two successive complete runs with equal inputs have named it, and the second has
  changed nothing. Only with a stable set objects enter the inventory, leave it, or are deleted.
- With equal inputs, missing objects leave the inventory and stay in the cluster: the role names them only sometimes.
- Nothing is deleted while an object that the run has seen isn't final, unless it wasn't for the same reason when the
  inventory was last written without anything obsolete.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rolecall.kube.quantities import parse_duration
from rolecall.kube.references import RawObject
from rolecall.runner.prune.inventory import (
    MAX_BYTES,
    MAX_OBJECTS,
    NAMED,
    PENDING,
    Inputs,
    Inventory,
    InventoryObject,
    confirmation_of,
    digest_of,
)
from rolecall.runner.prune.observations import ObjectId, Observations

PRUNES_VARIABLE: Final = "ROLECALL_PRUNES"
"""Tells the task in a run that an operator knows earlier runs."""

AFTER_SECONDS: Final = 300.0
CONFIGMAP_SECONDS: Final = 3600.0
MAX_KNOWN_SECONDS: Final = 600.0
"""How long this process must have known that an object is obsolete, at most: the time in a note may be wrong."""

WAIT_SECONDS: Final = 60.0
"""The time until the next look at an object that isn't deleted yet because another one waits."""

_FEW: Final = 3


@dataclass(frozen=True, slots=True)
class PruneOptions:
    """The options of the task."""

    after_seconds: float | None = None
    deletes: bool = False

    @classmethod
    def of_task(cls, raw: Mapping[str, Any]) -> "PruneOptions | None":
        """Return the options in the result of the task; None if they are hidden or unreadable."""
        try:
            given = raw["options"]
            after = None if given["after"] is None else parse_duration(given["after"])
            return cls(after, given["mode"] == "delete")
        except (ValueError, TypeError, LookupError):
            return None

    def after(self, each: InventoryObject) -> float:
        """Return how long an object must be obsolete, in seconds."""
        is_config = (each.id.group, each.kind) == ("", "ConfigMap")
        default = CONFIGMAP_SECONDS if is_config else AFTER_SECONDS
        return default if self.after_seconds is None else self.after_seconds

    def seconds_left(self, each: InventoryObject, now: float, known_seconds: float) -> float:
        """Return when an obsolete object may be deleted, in seconds from now; zero or less if it may be now.

        ``now`` is in seconds since the epoch, ``known_seconds`` how long this process has known that it is obsolete.
        """
        after = self.after(each)
        return max(each.since + after - now, min(after, MAX_KNOWN_SECONDS) - known_seconds)


@dataclass(frozen=True, slots=True)
class CompleteRun:
    """A complete run: its inputs, the primary's objects that it has named, and what else it has seen."""

    inputs: Inputs
    own: tuple[InventoryObject, ...] = ()
    observations: Observations = field(default_factory=Observations)
    confirmed: str = ""
    """The digest of the deletions that a person permits."""

    unknown_file: str = ""
    """A file with tasks whose content isn't part of the inputs, empty if there is none."""

    @property
    def digest(self) -> str:
        """The digest by which runs are compared: of the inputs and the objects, without uids."""
        return digest_of(self.inputs.digests, sorted(each.id for each in self.own))


@dataclass(frozen=True, slots=True)
class Decision:
    """The new inventory, the objects to propose and to delete now, and when to run again.

    ``remark`` says for people why something isn't deleted now, and ``why_asking`` why a person must confirm.
    ``again_at`` is in seconds since the epoch.
    """

    inventory: Inventory
    proposed: tuple[InventoryObject, ...] = ()
    due: tuple[InventoryObject, ...] = ()
    again_at: float | None = None
    remark: str = ""
    why_asking: str = ""
    is_stable: bool = True


@dataclass(frozen=True, slots=True)
class Pruning:
    """What pruning did after a run, and why it did nothing, or not everything."""

    again_at: float | None = None
    """When the next run is due, in seconds since the epoch."""

    is_stable: bool = True
    """Whether the set of objects is known, so that the next run is not only to confirm it."""

    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """``reasons``, ``obsolete``, ``proposed``, and ``deleted`` for people."""

    manifests: tuple[RawObject, ...] = ()
    """The deleted objects, as they were."""


def judge(
    inventory: Inventory,
    inputs: Inputs,
    is_named: Callable[[InventoryObject], bool],
    now: float,
    *,
    is_complete: bool,
) -> Inventory:
    """Return the inventory with what a run, complete or not, has done with each entry.

    ``is_named`` returns whether this run has named an entry, or one with the same inputs before it. An incomplete run
    only shows what is named. The digests of the inventory change with its judgement.
    """
    is_new = (inventory.spec, inventory.role) != (inputs.spec, inputs.role)
    is_users = inputs.generation != inventory.generation or not inputs.generation
    is_edit = inventory.role == inputs.role and bool(inventory.spec) and is_users
    named = {each.id for each in inventory.objects if is_named(each)}
    if is_new and not (is_complete or named):
        return inventory  # the next run decides

    def judged(each: InventoryObject) -> InventoryObject:
        if each.id in named:
            return replace(each, since=NAMED, asks=False, seen="")
        if not (is_new or each.since == PENDING):
            return each
        asks = (each.asks and each.since != NAMED) or (is_new and not is_edit)
        # Whether anyone has changed it is compared with what was seen first, also if the inputs change in the meantime.
        return replace(each, since=max(1, int(now)) if is_complete else PENDING, asks=asks)

    objects = tuple(judged(each) for each in inventory.objects)
    inventory = replace(inventory, generation=inputs.generation, objects=objects)
    return replace(inventory, spec=inputs.spec, role=inputs.role, stable="", confirm="") if is_new else inventory


def decide(  # noqa: PLR0913 - two clocks, the past, and the present
    inventory: Inventory,
    run: CompleteRun,
    previous: str | None,
    options: PruneOptions,
    *,
    now: float,
    known_seconds: Callable[[InventoryObject], float],
) -> Decision:
    """Return the decision about a complete run after which its object has this inventory, see ``judge``.

    ``previous`` is the digest of the run before, None if it wasn't complete. ``now`` is in seconds since the epoch, and
    ``known_seconds`` is how long this process has known that an object is obsolete.
    """
    is_repeated = run.digest == previous and not run.observations.changes
    if not is_repeated and run.digest != inventory.stable:
        remark = "the next run must name the same objects, and change none"
        return Decision(inventory, again_at=now + 1, remark=remark, is_stable=False)
    was_stable = run.digest == inventory.stable  # so an Event has told of each deletion: it takes at least three runs
    inventory = _with_stable_set(inventory, run)
    if len(inventory.objects) > MAX_OBJECTS or len(inventory.to_text()) > MAX_BYTES:
        remark = (
            f"the run has named {len(run.own)} objects, and at most {MAX_OBJECTS}, or {MAX_BYTES >> 10} KiB of names"
        )
        return Decision(Inventory(), remark=f"{remark}, are followed")
    obsolete = tuple(each for each in inventory.obsolete if each.seen)
    why_asking = _why_asking(inventory, run, options, obsolete)
    proposed = tuple(each for each in obsolete if why_asking or each.asks)
    confirm = confirmation_of(run.inputs.digests, proposed) if proposed else ""
    inventory = replace(inventory, confirm=confirm)
    if proposed and not why_asking:
        why_asking = "the role or its variables changed"
    left = {each.id: options.seconds_left(each, now, known_seconds(each)) for each in obsolete if each not in proposed}
    if not was_stable:
        left = {each: max(seconds, 1.0) for each, seconds in left.items()}
    due = tuple(each for each in obsolete if left.get(each.id, 1.0) <= 0)
    if was_stable and confirm and run.confirmed == confirm:
        due, proposed = (*due, *proposed), ()
    again = min((seconds for seconds in left.values() if seconds > 0), default=None)
    decision = Decision(inventory, proposed, again_at=None if again is None else now + again, why_asking=why_asking)
    if due and (waits := _new_waits(inventory, run.observations)):
        waiting, reason = next(iter(waits.items()))
        remark = f"nothing is deleted while {waiting.resource} {waiting.key} isn't final: {reason}"
        again_at = now + min(WAIT_SECONDS, WAIT_SECONDS if again is None else again)
        return replace(decision, again_at=again_at, remark=remark)
    return replace(decision, due=due)


def _with_stable_set(inventory: Inventory, run: CompleteRun) -> Inventory:
    """Return the inventory with the objects of a stable set, and without those that the role names only sometimes."""
    named = run.observations.names
    kept = [each for each in inventory.objects if each.is_obsolete or named(each.id, each.uid)]
    current = {each.id: each for each in (*kept, *run.own)}
    is_calm = not any(each.is_obsolete for each in current.values())
    waiting = dict(run.observations.waiting) if is_calm else inventory.waiting
    return replace(inventory, objects=tuple(current.values()), stable=run.digest, waiting=waiting)


def _why_asking(
    inventory: Inventory, run: CompleteRun, options: PruneOptions, obsolete: tuple[InventoryObject, ...]
) -> str:
    """Return why a person must confirm all deletions, empty if only some need it."""
    if not options.deletes:
        return "the mode is report"
    if run.unknown_file:  # another version of it may name less
        return f"the operator doesn't follow changes of {run.unknown_file}"
    is_most = len(obsolete) > _FEW and 2 * len(obsolete) > len(inventory.objects)
    names_nothing = not (run.own or run.observations.dependents)
    if obsolete and (is_most or names_nothing):
        return f"the role no longer names {len(obsolete)} of {len(inventory.objects)} objects"
    return ""


def _new_waits(inventory: Inventory, observations: Observations) -> dict[ObjectId, str]:
    return {each: why for each, why in observations.waiting.items() if inventory.waiting.get(each) != why}
