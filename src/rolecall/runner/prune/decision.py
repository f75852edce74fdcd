"""Decides after a complete run what its object no longer needs, and when that may be deleted. Pure.

A deletion needs three things at once: the author's word (the task ``rolecall.util.prune``), an edit of the primary, and
time. A new version of the role is no edit: a mistake in it would delete objects of all primaries.

- A set of objects is *stable* when two successive complete runs with equal inputs have named it, and the second has
  changed nothing. Only a stable set changes the inventory; before that, another run follows.
- With equal inputs, missing objects leave the inventory and stay in the cluster: the role names them only sometimes.
- After an edit of the primary, missing objects become obsolete. A run that names one again ends that.
- After a change of the role, or of both, missing objects leave the inventory, and the time of obsolete ones restarts.
- An object that is obsolete for long enough is due in a later run, unless the run has seen an object that still waits.
- If a run names nothing at all, or most of the inventory is obsolete, a person must confirm.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rolecall.kube.quantities import parse_duration
from rolecall.runner.prune.inventory import MAX_OBJECTS, Inventory, InventoryObject
from rolecall.runner.prune.observations import Observations

PRUNES_VARIABLE: Final = "ROLECALL_PRUNES"
"""Tells the task in a run that an operator knows earlier runs."""

AFTER_SECONDS: Final = 300.0
CONFIGMAP_SECONDS: Final = 3600.0
WAIT_SECONDS: Final = 60.0
"""The time until the next look at an object that isn't deleted yet because another one waits."""

PRUNED_KINDS: Final = frozenset(
    (group, kind)
    for group, kinds in {
        "": ("ConfigMap", "Service", "ServiceAccount"),
        "apps": ("DaemonSet", "Deployment"),
        "autoscaling": ("HorizontalPodAutoscaler",),
        "batch": ("CronJob",),
        "networking.k8s.io": ("Ingress", "NetworkPolicy"),
        "policy": ("PodDisruptionBudget",),
        "rbac.authorization.k8s.io": ("Role", "RoleBinding"),
        "route.openshift.io": ("Route",),
    }.items()
    for kind in kinds
)
NEVER_PRUNED: Final = frozenset(
    {("", "Namespace"), ("", "PersistentVolumeClaim"), ("apiextensions.k8s.io", "CustomResourceDefinition")}
)
_FEW: Final = 3


@dataclass(frozen=True, slots=True)
class PruneOptions:
    """The options of the task."""

    after_seconds: float | None = None
    kinds: frozenset[tuple[str, str]] = frozenset()
    deletes: bool = True

    @classmethod
    def of_task(cls, raw: Mapping[str, Any]) -> "PruneOptions | None":
        """Return the options in the result of the task; None if they are hidden or unreadable."""
        try:
            given = raw["options"]
            after = None if given["after"] is None else parse_duration(given["after"])
            return cls(after, frozenset((group, kind) for group, kind in given["kinds"]), given["mode"] == "delete")
        except (ValueError, TypeError, LookupError):
            return None

    def prunes(self, each: InventoryObject) -> bool:
        """Return whether an object is of a kind that may be deleted."""
        kind = each.id.group, each.kind
        return kind in PRUNED_KINDS | self.kinds and kind not in NEVER_PRUNED

    def due_at(self, each: InventoryObject) -> float:
        """Return when an obsolete object may be deleted."""
        is_config = (each.id.group, each.kind) == ("", "ConfigMap")
        default = CONFIGMAP_SECONDS if is_config else AFTER_SECONDS
        return each.obsolete_since + (default if self.after_seconds is None else self.after_seconds)


@dataclass(frozen=True, slots=True)
class CompleteRun:
    """A complete run: the digest of its inputs, the primary's objects that it has named, and what else it has seen."""

    inputs: str
    own: tuple[InventoryObject, ...] = ()
    observations: Observations = field(default_factory=Observations)
    is_confirmed: bool = False
    """Whether a person permits unusual deletions."""

    @property
    def digest(self) -> str:
        """The digest by which runs are compared: of the inputs and the objects, without uids."""
        return Inventory(self.inputs, self.own).digest


@dataclass(frozen=True, slots=True)
class Decision:
    """The new inventory, the objects that have just become obsolete, those to delete now, and when to run again.

    ``remark`` says for people why something isn't deleted now.
    """

    inventory: Inventory
    newly_obsolete: tuple[InventoryObject, ...] = ()
    due: tuple[InventoryObject, ...] = ()
    again_at: float | None = None
    remark: str = ""
    needs_confirmation: bool = False
    is_stable: bool = True


@dataclass(frozen=True, slots=True)
class Pruning:
    """What pruning did after a run, and why it did nothing, or not everything."""

    again_at: float | None = None
    """When the next run is due, in seconds since the epoch."""

    is_stable: bool = True
    """Whether the set of objects is known, so that the next run is not only to confirm it."""

    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """``reasons``, ``obsolete``, and ``deleted`` for people."""

    deletes: int = 0
    """How many of the obsolete objects later runs delete."""


def decide(
    inventory: Inventory,
    run: CompleteRun,
    previous: str | None,
    options: PruneOptions,
    *,
    now: float,
) -> Decision:
    """Return what follows from a complete run whose object has this inventory.

    ``previous`` is the digest of the run before, None if it wasn't complete. ``now`` is in seconds since the epoch.
    """
    own, inputs = run.own, run.inputs
    if len(own) > MAX_OBJECTS:
        return Decision(
            Inventory(), remark=f"the run has named {len(own)} objects, and at most {MAX_OBJECTS} are followed"
        )
    is_repeated = run.digest == previous and not run.observations.changes
    if not is_repeated and run.digest != inventory.digest:
        remark = "the next run must name the same objects, and change none"
        return Decision(inventory, again_at=now + 1, remark=remark, is_stable=False)
    missing = [
        each for each in inventory.objects if options.prunes(each) and not run.observations.names(each.id, each.uid)
    ]
    (primary, _, role), (old_primary, _, old_role) = inputs.partition("."), inventory.inputs.partition(".")
    is_edited = primary != old_primary and role == old_role
    obsolete = [each for each in missing if each.obsolete_since or is_edited]
    if inventory.inputs != inputs:
        obsolete = [replace(each, obsolete_since=int(now)) for each in obsolete]
    # Only what an earlier run has marked is due: a deletion takes at least three runs.
    marked = {each.id for each in inventory.obsolete}
    newly = tuple(each for each in obsolete if each.id not in marked)
    result = Decision(Inventory(inputs, (*own, *obsolete)), newly)
    if not options.deletes:
        return result
    due = tuple(each for each in obsolete if each.id in marked and options.due_at(each) <= now)
    later = [options.due_at(each) for each in obsolete if each not in due]
    result = replace(result, again_at=min(later, default=None))
    if due and (waits := run.observations.waiting):
        waiting, reason = next(iter(waits.items()))
        remark = f"nothing is deleted while {waiting.resource} {waiting.key} waits: {reason}"
        return replace(result, again_at=min([now + WAIT_SECONDS, *later]), remark=remark)
    is_unusual = not own or (len(obsolete) > _FEW and 2 * len(obsolete) > len(inventory.objects))
    if due and is_unusual and not run.is_confirmed:
        remark = f"{len(obsolete)} of {len(inventory.objects)} objects are no longer named, so a person must confirm"
        return replace(result, remark=remark, needs_confirmation=True)
    return replace(result, due=due)
