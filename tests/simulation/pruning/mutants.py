"""Rules of prune that are switched off, one after the other, to show that its cases and histories would find this.

The guarantee of each mutant is a rule of prune: the row of its table, the *principle* (the mark), or *who* decides.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

from rolecall.kube.metadata import uid_of
from rolecall.kube.readiness import verdict_on
from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.proxy import seen_objects, writes
from rolecall.runner.proxy.made_for import (
    MADE_FOR_ANNOTATION,
    PRUNE_ANNOTATION,
    mark_for,
    may_get_mark,
    with_mark,
)
from rolecall.runner.prune import decision, inventory
from rolecall.runner.prune.decision import CompleteRun, PruneOptions, judge
from rolecall.runner.prune.inventory import NAMED, PENDING, Inputs, Inventory, inputs_of
from rolecall.runner.prune.observations import Observations
from rolecall.runner.reconcile import pruner
from rolecall.runner.reconcile.marks import Marks
from rolecall.runner.reconcile.pruner import Pruner
from rolecall.runner.runs import events
from rolecall.runner.runs.outcome import OutcomeBuilder
from tests.simulation.history import Options, Playable
from tests.simulation.mutants import Mutant, Plant, replaced
from tests.simulation.pruning.history import FAULTS, PruningHistory
from tests.simulation.pruning.kept import KEPT, AnyKeptHistory
from tests.simulation.pruning.plain import AnyPlainHistory


def _case_or_history(seed: int, root: Path, options: Options, loop: asyncio.AbstractEventLoop) -> Playable:
    """Return a case in which an object stays, or the history of a seed that is larger than the number of cases."""
    if seed > len(KEPT):
        return PruningHistory(seed, root, options, loop)
    return AnyKeptHistory(seed - 1, root, options, loop)


def _mutant(rule: str, plant: Plant, often: str = "") -> Mutant:
    return Mutant(rule, plant, Options(FAULTS, often=often), _case_or_history)


def _plain(rule: str, plant: Plant) -> Mutant:
    """Return a mutant that prunes too little."""
    return Mutant(rule, plant, Options(0.0, replicas=1), AnyPlainHistory)


def _drop(*_: object) -> None:
    pass


async def _nothing(*_: object, **__: object) -> None:
    pass


async def _never(*_: object) -> bool:
    return False


# The principle.

_is_own = seen_objects.is_own


def _own_without_mark(obj: Any, owner: Any, group: str, kind: str) -> bool:
    mark = mark_for(owner.uid, group, kind, ObjectKey.of_object(obj), uid_of(obj))
    metadata = obj["metadata"]
    annotations = {**(metadata.get("annotations") or {}), MADE_FOR_ANNOTATION: mark}
    return _is_own({**obj, "metadata": {**metadata, "annotations": annotations}}, owner, group, kind)


def _own_with_any_mark_of_primary(obj: Any, owner: Any, group: str, kind: str) -> bool:
    mark = (obj["metadata"].get("annotations") or {}).get(MADE_FOR_ANNOTATION, "")
    return mark.startswith(f"{owner.uid}:") and _own_without_mark(obj, owner, group, kind)


def _own_with_any_uid_in_mark(obj: Any, owner: Any, group: str, kind: str) -> bool:
    mark = (obj["metadata"].get("annotations") or {}).get(MADE_FOR_ANNOTATION, "")
    named = mark_for(owner.uid, group, kind, ObjectKey.of_object(obj))
    return mark.startswith(f"{named}:") and _own_without_mark(obj, owner, group, kind)


def _own_with_second_owner(obj: Any, owner: Any, group: str, kind: str) -> bool:
    metadata = obj["metadata"]
    own = [each for each in metadata.get("ownerReferences") or () if each["uid"] == owner.uid]
    return _is_own({**obj, "metadata": {**metadata, "ownerReferences": own}}, owner, group, kind)


@contextmanager
def _owned(is_own: Any) -> Iterator[None]:
    with (
        mock.patch.object(pruner, "is_own", is_own),
        mock.patch.object(seen_objects, "is_own", is_own),
        mock.patch.object(pruner, "has_uid_in_mark", return_value=True),
        mock.patch.object(seen_objects, "has_uid_in_mark", return_value=True),
    ):
        yield


_with_own_annotations = writes._with_own_annotations


def _mark_whatever_is_written(request: Any, resource: Any, key: Any, obj: Any, existing: Any) -> Any:
    changed = _with_own_annotations(request, resource, key, obj, existing)
    if request.info.verb != "update" or not may_get_mark(resource.gvk.group, resource.gvk.kind, obj):
        return changed
    uid = uid_of(existing or {})
    return with_mark(changed, mark_for(request.run.owner.uid, resource.gvk.group, resource.gvk.kind, key, uid))


_own_object = Pruner._own_object


async def _own_object_of_any_uid(self: Pruner, context: Any, each: Any) -> Any:
    gvk = GVK(each.id.group, each.version, each.kind)
    live = await self.primaries.client.get(gvk, each.id.key)
    return await _own_object(self, context, replace(each, uid=live["metadata"]["uid"]))


async def _delete_whatever_has_the_name(self: Pruner, _context: Any, each: Any, live: Any) -> bool:
    gvk = GVK(each.id.group, each.version, each.kind)
    await self.primaries.client.delete(gvk, each.id.key, {"uid": live["metadata"]["uid"]})
    return True


@contextmanager
def _without_uids() -> Iterator[None]:
    with mock.patch.multiple(Pruner, _own_object=_own_object_of_any_uid, _delete_object=_delete_whatever_has_the_name):
        yield


# Who decides.


def _judge_releases_as_edits(found: Inventory, *arguments: Any, **options: Any) -> Inventory:
    judged = judge(found, *arguments, **options)
    return replace(judged, objects=tuple(replace(each, asks=False) for each in judged.objects))


_of_task = PruneOptions.of_task


def _always_delete(raw: Any) -> PruneOptions | None:
    options = _of_task(raw)
    return options and replace(options, deletes=True)


class _AnyDigest(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return bool(other)

    __hash__ = str.__hash__


def _run_with_any_confirmation(*arguments: Any) -> CompleteRun:
    run = CompleteRun(*arguments)
    return replace(run, confirmed=_AnyDigest(run.confirmed)) if run.confirmed else run


_decide = decision.decide


def _decide_without_stability(found: Inventory, run: CompleteRun, _previous: Any, *args: Any, **options: Any) -> Any:
    observations = replace(run.observations, changes=False)
    return _decide(found, replace(run, observations=observations), run.digest, *args, **options)


# The rows.

_add = Observations.add


def _add_without_dry_runs(self: Observations, info: Any, status: int, seen: Any) -> None:
    if not info.is_dry_run:
        _add(self, info, status, seen)


def _add_without_lists(self: Observations, info: Any, status: int, seen: Any) -> None:
    if info.name or info.verb != "list":
        _add(self, info, status, seen)


def _names_only_ids(self: Observations, found: Any, _uid: str) -> bool:
    return found in self._ids


@contextmanager
def _shared_objects_stay_marked() -> Iterator[None]:
    with (
        mock.patch.object(Marks, "unmark_shared", _nothing),
        mock.patch.object(Observations, "found_other", _drop),
    ):
        yield


_doubts = Pruner._doubts


def _no_doubt_about(text: str) -> Any:
    def doubts(self: Pruner, context: Any, options: Any) -> list[str]:
        return [each for each in _doubts(self, context, options) if text not in each]

    return doubts


@contextmanager
def _jobs_without_doubt() -> Iterator[None]:
    with mock.patch.multiple(OutcomeBuilder, _follow_job=lambda *_: None, doubt=lambda *_: None):
        yield


_judged = Pruner._judged


def _judged_by_the_last_run(self: Pruner, context: Any, found: Inventory, *args: Any, **options: Any) -> Any:
    self._remember(context.key).named = set()
    objects = tuple(replace(each, since=PENDING) if each.since == NAMED else each for each in found.objects)
    return _judged(self, context, replace(found, objects=objects), *args, **options)


def _kstatus_only(info: Any, obj: Any, now: float) -> str:
    return verdict_on(GVK(info.group, info.version, obj.get("kind", "")), obj, now).reason


def _new_waits_of_everything(_found: Inventory, observations: Observations) -> dict[Any, str]:
    return dict(observations.waiting)


_why_asking = decision._why_asking


def _asks_only_for_the_mode(_found: Any, _run: Any, options: PruneOptions, _obsolete: Any) -> str:
    return "" if options.deletes else "the mode is report"


def _left_by_the_wall_clock(self: PruneOptions, each: Any, now: float, _known_seconds: float) -> float:
    return float(each.since + self.after(each) - now)


def _left_by_the_process(self: PruneOptions, each: Any, _now: float, known_seconds: float) -> float:
    return self.after(each) - known_seconds


def _inputs_with_metadata(primary: Any, role: Any) -> Inputs:
    found = inputs_of(primary, role)
    return found._replace(spec=found.spec + found.metadata, generation=0)  # that of a spec has stayed the same


def _run_without_responses_200(self: Observations, info: Any, status: int, seen: Any) -> None:
    _add(self, info, status, seen if info.verb != "patch" or status != 200 else None)


@contextmanager
def _large_inventories() -> Iterator[None]:
    """Let the limit be small, and write what exceeds it."""
    with mock.patch.object(inventory, "MAX_BYTES", 700):
        yield


@contextmanager
def _words_are_lost() -> Iterator[None]:
    kept = tuple(name for name in writes._KEPT_BY_PUT if name != PRUNE_ANNOTATION)
    with (
        mock.patch.object(writes, "_KEPT_BY_PUT", kept),
        mock.patch.object(writes, "without_removed_word", lambda obj: obj),
    ):
        yield


PRUNE_MUTANTS: Final[dict[str, Mutant]] = {
    "prune-needs-no-mark": _mutant("principle", partial(_owned, _own_without_mark)),
    "prune-believes-copied-marks": _mutant("principle", partial(_owned, _own_with_any_mark_of_primary), "clone"),
    "prune-marks-whatever-is-written": _mutant(
        "principle", replaced(writes, "_with_own_annotations", _mark_whatever_is_written), "make_before"
    ),
    "prune-follows-restored-objects": _mutant(
        "principle", partial(_owned, _own_with_any_uid_in_mark), "restore_object"
    ),
    "prune-deletes-any-uid": _mutant("principle", _without_uids, "restore_object"),
    "prune-ignores-second-owners": _mutant("principle", partial(_owned, _own_with_second_owner), "share"),
    "prune-compares-nothing": _mutant("named", replaced(Observations, "names", lambda *_: False)),
    "prune-does-not-look-again": _mutant("live", replaced(Pruner, "_check_primary", _nothing)),
    "prune-needs-no-stability": _mutant("stable", replaced(pruner, "decide", _decide_without_stability)),
    "prune-takes-releases-for-edits": _mutant("who", replaced(pruner, "judge", _judge_releases_as_edits), "_release"),
    "prune-deletes-in-mode-report": _mutant("who", replaced(PruneOptions, "of_task", _always_delete)),
    "prune-believes-entries": _mutant("P1", replaced(Pruner, "_is_forged", _never), "forge_inventory"),
    "prune-leaves-shared-objects-marked": _mutant("P2", _shared_objects_stay_marked),
    "prune-loses-words": _mutant("P3", _words_are_lost, "apply"),
    "prune-ignores-dry-runs": _mutant("P4", replaced(Observations, "add", _add_without_dry_runs), "change_ways"),
    "prune-ignores-lists": _mutant("P4", replaced(Observations, "add", _add_without_lists), "change_ways"),
    "prune-ignores-other-credentials": _mutant("P4", replaced(events, "_bypass", lambda _: ""), "change_ways"),
    "prune-ignores-changes": _mutant("P4", replaced(pruner, "digest_of_object", lambda _: "same"), "label_object"),
    "prune-ignores-jobs": _mutant("P5", _jobs_without_doubt, "change_ways"),
    "prune-forgets-earlier-runs": _mutant("P6", replaced(Pruner, "_judged", _judged_by_the_last_run), "change_ways"),
    "prune-ignores-incomplete-runs": _mutant("P6", replaced(Pruner, "_note", _nothing), "change_ways"),
    "prune-waits-for-nothing": _mutant("P7", replaced(decision, "_new_waits", lambda *_: {}), "edit_and_close"),
    "prune-waits-only-by-kstatus": _mutant(
        "P7", replaced(seen_objects, "why_waiting", _kstatus_only), "edit_and_close"
    ),
    "prune-waits-for-what-never-ends": _plain("P7", replaced(decision, "_new_waits", _new_waits_of_everything)),
    "prune-ignores-requeues": _mutant("P8", replaced(Pruner, "_doubts", _no_doubt_about("another run")), "change_ways"),
    "prune-accepts-any-confirmation": _mutant(
        "P9", replaced(pruner, "CompleteRun", _run_with_any_confirmation), "confirm_wrongly"
    ),
    "prune-deletes-the-last-object": _mutant("P9", replaced(decision, "_why_asking", _asks_only_for_the_mode)),
    "prune-trusts-the-wall-clock": _mutant(
        "P10", replaced(PruneOptions, "seconds_left", _left_by_the_wall_clock), "_jump"
    ),
    "prune-trusts-its-own-clock": _mutant("P12", replaced(PruneOptions, "seconds_left", _left_by_the_process), "_jump"),
    "prune-takes-labels-for-edits": _mutant(
        "P11", replaced(pruner, "inputs_of", _inputs_with_metadata), "label_primary"
    ),
    "prune-skips-responses-200": _plain("P13", replaced(Observations, "add", _run_without_responses_200)),
    "prune-writes-what-it-cannot-read": _mutant("P14", _large_inventories),
}


def mutant_of(name: str) -> Mutant:
    """Return the mutant with a name."""
    return PRUNE_MUTANTS[name]
