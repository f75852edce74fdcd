"""Pruner: what it reads, writes, and deletes after a run; ``test_decision.py`` has the rules."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from rolecall.kube.errors import ConflictError, KubeError
from rolecall.kube.metadata import annotation_of, uid_of
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.controller.controller import Controller, Result
from rolecall.runner.controller.work_queue import Backoff, Cause, WorkQueue
from rolecall.runner.proxy.made_for import (
    MADE_FOR_ANNOTATION,
    PRUNE_ANNOTATION,
    has_uid_in_mark,
    marked_primary,
)
from rolecall.runner.prune.decision import Pruning
from rolecall.runner.prune.inventory import INVENTORY_ANNOTATION, Inputs, Inventory, InventoryObject
from rolecall.runner.prune.observations import ObjectId, Other, Own
from rolecall.runner.reconcile.context import CONFIRM_ANNOTATION, PERIOD_ANNOTATION, ReconcileContext
from rolecall.runner.reconcile.kubernetes_events import EventSpec
from rolecall.runner.reconcile.pruner import Pruner, _digest_of
from rolecall.runner.runs.outcome import Outcome
from tests.support.metrics import controller_metrics
from tests.support.reconciler_rig import FAILURE, SUCCESS, Rig, make_rig
from tests.support.things import MANIFEST, THING
from tests.support.world import CONFIG_MAP, World
from tests.unit.fake_cluster import FakeCluster
from tests.unit.manual_clock import ManualClock
from tests.unit.runner.prune.test_decision import item

OPTIONS: dict[str, Any] = {"options": {"after": None, "mode": "delete", "skips": []}}


@dataclass(slots=True)
class Stage:
    """A Thing, ConfigMaps that runs have made for it, and its pruner."""

    rig: Rig
    pruner: Pruner
    clock: ManualClock
    events: list[EventSpec] = field(default_factory=list)
    made: dict[str, RawObject] = field(default_factory=dict)

    @classmethod
    async def of(cls, world: World, tmp_path: Path) -> "Stage":
        """Return a stage with the Thing."""
        await world.create(MANIFEST)
        rig, clock = make_rig(world, tmp_path), ManualClock()
        events: list[EventSpec] = []
        pruner = Pruner(
            watch=rig.reconciler.watch,
            primaries=rig.reconciler.primaries,
            record_event=lambda _obj, event: events.append(event),
            identity="by",
            may_delete=lambda _key: True,
            pruning={THING},
            clock=clock,
        )
        return cls(rig, pruner, clock, events)

    async def make(self, name: str, mark: str | None = None) -> RawObject:
        """Make a ConfigMap as a run of a role that prunes would, or with another mark."""
        uid = uid_of(await self.rig.thing())
        owner = {"apiVersion": THING.api_version, "kind": THING.kind, "name": "one", "uid": uid}
        metadata = {"name": name, "namespace": "default", "ownerReferences": [owner]}
        obj = await self.rig.world.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        own = f"{uid}:/ConfigMap:default/{name}:{uid_of(obj)}"
        marks = {MADE_FOR_ANNOTATION: own if mark is None else mark}
        await self.rig.world.patch(CONFIG_MAP, name, {"metadata": {"annotations": marks}})
        self.made[name] = obj
        return obj

    def entry(self, name: str, since: int = 0) -> InventoryObject:
        """Return the entry of an object in an inventory."""
        found = ObjectId("", "configmaps", "default", name)
        return InventoryObject(found, "v1", "ConfigMap", uid_of(self.made[name]), since)

    async def note(self, before: Inputs | None = None, **changes: Any) -> None:
        """Write an inventory of all objects, by default that of runs before an edit."""
        role = self.pruner._inputs(await self.rig.thing(), _digest_of(await self.pruner._code())).role
        inputs = before or Inputs("before-the-edit", "")
        entries = tuple(self.entry(name) for name in self.made)
        inventory = Inventory(inputs.spec, inputs.role or role, 0, entries, "by")
        text = replace(inventory, **changes).to_text()
        await self.rig.world.patch(THING, "one", {"metadata": {"annotations": {INVENTORY_ANNOTATION: text}}})

    async def inventory(self) -> Inventory:
        """Return the inventory of the Thing."""
        return Inventory.of(await self.rig.thing())

    async def run_ended(  # noqa: PLR0913 - what a run can do
        self,
        *names: str,
        after: str | None = None,
        mode: str = "delete",
        outcome: Outcome = SUCCESS,
        others: Any = None,
        doubts: Sequence[str] = (),
        named: tuple[str, ...] = (),
        during: Callable[[], object] = lambda: None,
    ) -> Pruning:
        """Let a run end that has named these objects."""
        prune: dict[str, Any] = {"options": {"after": after, "mode": mode, "skips": []}}
        if outcome.is_successful:
            outcome = replace(outcome, prune=prune)
        thing = await self.rig.thing()
        context = ReconcileContext(self.rig.key, "run", obj=thing, fresh=thing, outcome=outcome)
        await self.pruner.run_starts(context)
        during()
        for name in names:
            entry, live = self.entry(name), await self.rig.world.get(CONFIG_MAP, name)
            context.observations._ids.add(entry.id)
            if marked_primary(live, "") == uid_of(thing):
                context.observations.own[entry.id] = Own("v1", entry.uid, has_uid_in_mark(live))
        context.observations._ids |= {self.entry(name).id for name in named}
        context.observations.doubts.extend(doubts)
        for found, other in (others or {}).items():
            context.observations.found_other(found, other)
        return await self.pruner.run_ended(context)

    async def edit(self, text: str) -> None:
        """Change the spec of the Thing."""
        await self.rig.world.patch(THING, "one", {"spec": {"text": text}})

    async def restore(self, name: str) -> RawObject:
        """Delete a ConfigMap, and create it with the same mark."""
        live = await self.rig.world.get(CONFIG_MAP, name)
        await self.rig.world.delete(CONFIG_MAP, name)
        return await self.make(name, annotation_of(live, MADE_FOR_ANNOTATION))

    async def live(self) -> set[str]:
        """Return the names of the ConfigMaps."""
        return {key.name for gvk, key in self.rig.world.client.objects() if gvk == CONFIG_MAP}  # type: ignore[attr-defined]


async def staged(world: World, tmp_path: Path, *names: str) -> Stage:
    """Return a stage after an edit, with these objects in the inventory."""
    stage = await Stage.of(world, tmp_path)
    for name in names:
        await stage.make(name)
    await stage.note()
    return stage


@pytest.mark.parametrize(
    ("outcome", "sends"),
    [
        (SUCCESS, False),
        (replace(FAILURE, prune=OPTIONS), False),
        (replace(SUCCESS, prune=OPTIONS, doubts=("a host was unreachable",)), False),
        (replace(SUCCESS, prune=OPTIONS, requeue_after_seconds=5.0), False),
        (replace(SUCCESS, prune=OPTIONS, left_out=("quota.storage",)), False),
        (replace(SUCCESS, prune=OPTIONS), True),
    ],
)
async def test_only_a_complete_run_with_the_task_sends_requests(
    world: World, cluster: FakeCluster, tmp_path: Path, outcome: Outcome, *, sends: bool
) -> None:
    await world.create(MANIFEST)
    rig = make_rig(world, tmp_path)
    pruner = Pruner(rig.reconciler.watch, rig.reconciler.primaries, lambda *_: None, "by", lambda _key: True)
    pruner.pruning.add(THING)
    thing = await rig.thing()
    context = ReconcileContext(rig.key, "run", obj=thing, fresh=thing, outcome=outcome)
    await pruner.run_starts(context)
    context.observations.own[item("a").id] = Own("v1", "uid-a", has_uid_in_mark=True)
    cluster.calls.clear()
    assert ((await pruner.run_ended(context)) != Pruning()) is bool(outcome.is_successful and outcome.prune)
    assert bool(cluster.calls) is sends


@pytest.mark.parametrize(
    ("period", "expected"), [("1h", "prune: confirm which objects the role names"), ("1s", "period")]
)
async def test_run_that_confirms_the_objects_has_its_own_cause_and_keeps_the_period(
    world: World, tmp_path: Path, period: str, expected: str
) -> None:
    """Of the period and the time that prune requests, the earlier is the cause of the next run."""
    annotations = f"annotations: {{{PERIOD_ANNOTATION}: {period}}}"
    await world.create(MANIFEST.replace("name: one", f"name: one, {annotations}"))
    rig, clock = make_rig(world, tmp_path), ManualClock()
    rig.runner.outcome = replace(SUCCESS, prune=OPTIONS)
    rig.reconciler.pruner = Pruner(
        watch=rig.reconciler.watch,
        primaries=rig.reconciler.primaries,
        record_event=lambda *_: None,
        identity="by",
        may_delete=lambda _key: True,
        pruning={THING},
        clock=ManualClock(clock.now() + 60),  # the run is requested for a second later
    )
    results = []

    async def reconcile(_key: ObjectKey, _causes: tuple[Cause, ...]) -> Result:
        results.append(await rig.reconcile())
        return results[-1]

    queue: WorkQueue[ObjectKey] = WorkQueue(clock, Backoff(1, 300), controller_metrics())
    queue.add(rig.key, Cause("created"))
    await Controller(THING, queue, 1, reconcile, lambda *_: False).process(*queue.take())
    assert results[0].requeue_after_seconds == {"1h": 3600.0, "1s": 1.0}[period]
    assert queue.look_up(rig.key).causes == (expected,)


async def test_time_until_a_deletion_is_that_of_the_decision_however_long_a_write_takes(
    world: World, cluster: FakeCluster, tmp_path: Path
) -> None:
    stage = await Stage.of(world, tmp_path)
    cluster.before = lambda call: stage.clock.advance(5 if call == "patch" else 0)
    for name in ("a", "b"):
        await stage.make(name)
    await stage.note()
    await stage.run_ended("b", after="10s")
    ended = await stage.run_ended("b", after="10s")  # the second of two equal runs
    text = "no longer named by the role, deleted after 5s"
    assert [event.message for event in stage.events] == [f"{text.capitalize()}: ConfigMap default/a"]
    assert ended.texts["obsolete"] == (f"ConfigMap default/a: {text}",)


async def test_what_an_edit_makes_obsolete_is_deleted_in_the_third_run(world: World, tmp_path: Path) -> None:
    stage = await staged(world, tmp_path, "a", "b")
    first, second = await stage.run_ended("a", after="5s"), await stage.run_ended("a", after="5s")
    assert (first.is_stable, second.again_at) == (False, stage.clock.now() + 5)
    stage.clock.advance(5)
    third = await stage.run_ended("a", after="5s")
    assert await stage.live() == {"a"}
    assert [each["metadata"]["name"] for each in third.manifests] == ["b"]
    assert [event.reason for event in stage.events] == ["ObjectsObsolete", "Pruned"]


@pytest.mark.parametrize(
    "change",
    [
        {"annotations": {PRUNE_ANNOTATION: "false"}},
        {"annotations": {"rolecall.dev/adopt": "true"}},
        {"annotations": {"meta.helm.sh/release-name": "x"}},
        {"annotations": {MADE_FOR_ANNOTATION: None}},
        {"annotations": {MADE_FOR_ANNOTATION: "other:/ConfigMap:default/b"}},
        {"labels": {"x": "y"}},
        {"ownerReferences": []},
    ],
)
@pytest.mark.parametrize("runs", [0, 1, 2])
async def test_object_that_anyone_changed_is_kept_whenever_that_happened(
    world: World, tmp_path: Path, change: dict[str, Any], runs: int
) -> None:
    """Before an object became obsolete, only a change that shows that it isn't the primary's own keeps it."""
    stage = await staged(world, tmp_path, "a", "b")
    for number in range(4):
        if number == runs:
            await world.patch(CONFIG_MAP, "b", {"metadata": change})
        await stage.run_ended("a", after="0")
    assert await stage.live() == ({"a"} if runs == 0 and "labels" in change else {"a", "b"})


@pytest.mark.parametrize("outcome", [SUCCESS, FAILURE])
async def test_change_of_an_obsolete_object_counts_although_the_spec_changes_too(
    world: World, tmp_path: Path, outcome: Outcome
) -> None:
    """In particular if somebody changes it after an edit, and before the run for that edit has ended."""
    stage = await staged(world, tmp_path, "a", "b")
    await stage.run_ended("a", after="0")
    await stage.edit("that leaves it switched off")
    await world.patch(CONFIG_MAP, "b", {"metadata": {"labels": {"used": "true"}}})
    await stage.run_ended("a", after="0", outcome=outcome)
    for _ in range(3):
        await stage.run_ended("a", after="0")
    assert await stage.live() == {"a", "b"}


async def test_tasks_outside_the_code_of_the_role_only_propose(world: World, tmp_path: Path) -> None:
    """They are those of a role in a collection, or of another directory, whose changes are no inputs."""
    stage = await staged(world, tmp_path, "a", "b")
    outcome = replace(SUCCESS, task_files=("/collections/x/roles/y/tasks/main.yml",))
    for _ in range(4):
        await stage.run_ended("a", after="0", outcome=outcome)
    assert await stage.live() == {"a", "b"}
    [event] = stage.events
    assert event.reason == "PruneProposed"
    assert "doesn't follow changes of /collections/x/roles/y/tasks/main.yml" in event.message


async def test_run_that_shows_that_its_role_prunes_is_repeated_at_once(world: World, tmp_path: Path) -> None:
    """Before it, nobody knew, so the files of the role weren't compared."""
    stage = await Stage.of(world, tmp_path)
    stage.pruner.pruning.clear()
    await stage.make("a")
    assert (await stage.run_ended("a")).again_at == stage.clock.now() + 1
    await stage.run_ended("a")
    await stage.run_ended("a")
    assert {each.id.name for each in (await stage.inventory()).objects} == {"a"}


async def test_object_created_again_by_somebody_is_kept(world: World, tmp_path: Path) -> None:
    stage = await staged(world, tmp_path, "a", "b")
    await stage.run_ended("a", after="0")
    await world.delete(CONFIG_MAP, "b")
    await stage.make("b")
    for _ in range(3):
        await stage.run_ended("a", after="0")
    assert await stage.live() == {"a", "b"}


@pytest.mark.parametrize("is_noted", [True, False])
async def test_restored_object_is_kept_however_often_the_spec_changes(
    world: World, tmp_path: Path, *, is_noted: bool
) -> None:
    """No run has created it: its mark has the uid of its predecessor, whatever an inventory says."""
    stage = await staged(world, tmp_path, "a", "b")
    await stage.restore("b")
    if is_noted:
        await stage.note()
    for number, names in enumerate([("a",), ("a", "b"), ("a",)]):
        await stage.edit(f"edit {number}")
        for _ in range(4):
            await stage.run_ended(*names, after="0")
    assert await stage.live() == {"a", "b"}


async def test_mark_from_before_the_role_had_the_task_gets_the_uid(world: World, tmp_path: Path) -> None:
    stage = await Stage.of(world, tmp_path)
    made, uid = await stage.make("b"), uid_of(await stage.rig.thing())
    await stage.make("b2", mark=f"{uid}:/ConfigMap:default/b2")
    await stage.make("a")
    await stage.run_ended("a", "b2")
    mark = annotation_of(await world.get(CONFIG_MAP, "b2"), MADE_FOR_ANNOTATION)
    assert mark == f"{uid}:/ConfigMap:default/b2:{uid_of(stage.made['b2'])}"
    await stage.run_ended("a", "b2")
    await stage.edit("switched off")
    for _ in range(3):
        await stage.run_ended("a", after="0")
    assert await stage.live() == {"a", made["metadata"]["name"]}


@pytest.mark.parametrize("mark", ["", "other:/ConfigMap:default/a"])
async def test_mark_that_was_removed_after_the_run_saw_it_does_not_come_back(
    world: World, tmp_path: Path, mark: str
) -> None:
    stage = await Stage.of(world, tmp_path)
    await stage.make("a", mark=mark)
    thing = await stage.rig.thing()
    context = ReconcileContext(stage.rig.key, "run", obj=thing, fresh=thing, outcome=SUCCESS)
    await stage.pruner.marks.complete(context, stage.entry("a"))
    assert annotation_of(await world.get(CONFIG_MAP, "a"), MADE_FOR_ANNOTATION) == mark


async def test_object_that_was_changed_counts_although_no_inventory_could_be_written_before(
    world: World, cluster: FakeCluster, tmp_path: Path
) -> None:
    """The first run without the object has looked at it, and this process remembers what it saw."""
    stage = await staged(world, tmp_path, "a", "b")
    cluster.troubles = [("patch", KubeError("no response"))]
    await stage.run_ended("a", after="0")
    await world.patch(CONFIG_MAP, "b", {"metadata": {"labels": {"used": "true"}}})
    for _ in range(4):
        await stage.run_ended("a", after="0")
    assert await stage.live() == {"a", "b"}


async def test_entry_that_others_have_written_counts_only_if_this_process_has_written_it(
    world: World, tmp_path: Path
) -> None:
    """An object left the inventory, because the role names it only sometimes: no note makes it obsolete later."""
    stage = await staged(world, tmp_path, "a", "b")
    for _ in range(2):
        await stage.run_ended("a", "b")
    forged = await stage.inventory()
    for _ in range(3):
        await stage.run_ended("a")
    assert [each.id.name for each in (await stage.inventory()).objects] == ["a"]
    await world.patch(THING, "one", {"metadata": {"annotations": {INVENTORY_ANNOTATION: forged.to_text()}}})
    await stage.edit("now")
    for _ in range(4):
        await stage.run_ended("a", after="0")
    assert await stage.live() == {"a", "b"}


async def test_release_during_a_run_is_no_edit(world: World, tmp_path: Path) -> None:
    """Nobody knows with which version the run has named what; the next run shows that the role changed."""
    stage = await staged(world, tmp_path, "a", "b")
    file = tmp_path / "roles" / "thing" / "tasks" / "main.yml"
    file.parent.mkdir(parents=True)
    file.write_text("one version")
    for _ in range(2):
        await stage.run_ended("a", "b")
    ended = await stage.run_ended("a", "b", during=lambda: file.write_text("another version"))
    assert "the files of the role changed during the run" in ended.texts["reasons"][0]
    await stage.edit("at the same time")
    for _ in range(4):
        await stage.run_ended("a", after="0")
    assert await stage.live() == {"a", "b"}
    assert [each.asks for each in (await stage.inventory()).obsolete] == [True]


async def test_run_with_a_doubt_about_a_request_is_repeated_some_times(world: World, tmp_path: Path) -> None:
    """Otherwise an edit would wait for the period, because of one error of one request."""
    stage = await staged(world, tmp_path, "a", "b")
    await stage.run_ended("a")
    times = [(await stage.run_ended("a", doubts=["a request got the status 503"])).again_at for _ in range(6)]
    assert times == [stage.clock.now() + 60] * 5 + [None]
    await stage.run_ended("a")
    assert (await stage.run_ended("a", doubts=["a request got the status 503"])).again_at is not None


async def test_person_confirms_exactly_what_is_proposed(world: World, tmp_path: Path) -> None:
    stage = await staged(world, tmp_path, "a", "b")
    for _ in range(3):
        pruning = await stage.run_ended("a", mode="report")
    confirm = (await stage.inventory()).confirm
    assert [event.reason for event in stage.events] == ["PruneProposed"]
    assert f"{CONFIRM_ANNOTATION}={confirm}" in stage.events[0].message
    assert confirm in pruning.texts["proposed"][0]
    await world.patch(THING, "one", {"metadata": {"annotations": {CONFIRM_ANNOTATION: "another"}}})
    await stage.run_ended("a", mode="report")
    assert annotation_of(await stage.rig.thing(), CONFIRM_ANNOTATION) is None
    assert await stage.live() == {"a", "b"}
    await world.patch(THING, "one", {"metadata": {"annotations": {CONFIRM_ANNOTATION: confirm}}})
    await stage.run_ended("a", mode="report")
    assert await stage.live() == {"a"}
    assert annotation_of(await stage.rig.thing(), CONFIRM_ANNOTATION) is None
    assert not (await stage.inventory()).confirm


@pytest.mark.parametrize("error", [None, ConflictError(409, "Conflict", "not now")])
async def test_failed_run_that_names_an_obsolete_object_keeps_it_also_if_the_inventory_cannot_be_written(
    world: World, cluster: FakeCluster, tmp_path: Path, error: KubeError | None
) -> None:
    stage = await staged(world, tmp_path, "a", "b")
    await stage.run_ended("a", after="0")
    cluster.troubles = [] if error is None else [("patch", error)]
    await stage.run_ended("b", outcome=FAILURE)
    for _ in range(3):
        await stage.run_ended("a", after="0")
    assert await stage.live() == {"a", "b"}


async def test_object_that_another_role_names_loses_its_mark_or_is_remembered(
    world: World, cluster: FakeCluster, tmp_path: Path
) -> None:
    for error in (None, KubeError("not permitted")):
        stage = await staged(world, tmp_path, "a", "b")
        entry = stage.entry("b")
        await stage.run_ended("a", after="0")
        user = Pruner(
            stage.rig.reconciler.watch,
            stage.rig.reconciler.primaries,
            lambda *_: None,
            "user",
            lambda _key: True,
            stage.pruner.shared,
        )
        thing = await stage.rig.thing()
        context = ReconcileContext(ObjectKey("default", "two"), "run", obj=thing, fresh=thing, outcome=FAILURE)
        await user.run_starts(context)
        context.observations.found_other(entry.id, Other("v1", entry.uid, uid_of(thing)))
        cluster.troubles = [] if error is None else [("patch", error)]
        await user.run_ended(context)
        marked = annotation_of(await world.get(CONFIG_MAP, "b"), MADE_FOR_ANNOTATION)
        assert (marked is None, bool(stage.pruner.shared)) == (error is None, error is not None)
        for _ in range(3):
            await stage.run_ended("a", after="0")
        assert await stage.live() == {"a", "b"}
        for name in ("a", "b"):
            await world.delete(CONFIG_MAP, name)
        await world.delete(THING, "one")


@pytest.mark.parametrize(
    "forged",
    [
        replace(item("b", since=1), id=ObjectId("", "services", "ns", "../../../namespaces/ns")),
        replace(item("b", since=1), id=ObjectId("", "services", "..", "b")),
        replace(item("b", since=1), id=ObjectId("", "secrets", "ns", "b")),
        replace(item("b", since=1), id=ObjectId("", "servicez", "ns", "b")),
        replace(item("b", since=1), id=ObjectId("", "services", "", "b")),
        replace(item("b", since=1), id=ObjectId("..", "services", "ns", "b")),
        replace(item("b", since=1), kind="Namespace"),
    ],
)
async def test_entry_that_no_run_writes_is_ignored(
    world: World, cluster: FakeCluster, tmp_path: Path, forged: InventoryObject
) -> None:
    """Who may only patch the primary can write anything into its inventory."""
    await world.create(MANIFEST)
    rig = make_rig(world, tmp_path)
    pruner = Pruner(rig.reconciler.watch, rig.reconciler.primaries, lambda *_: None, "by", lambda _key: True)
    pruner.pruning.add(THING)
    inputs = pruner._inputs(await rig.thing(), _digest_of(await pruner._code()))
    inventory = Inventory(inputs.spec, inputs.role, 0, (forged,), "by").to_text()
    await world.patch(THING, "one", {"metadata": {"annotations": {INVENTORY_ANNOTATION: inventory}}})
    thing = await rig.thing()
    outcome = replace(SUCCESS, prune=OPTIONS)
    context = ReconcileContext(rig.key, "run", obj=thing, fresh=thing, outcome=outcome)
    for _ in range(3):
        await pruner.run_starts(context)
        ended = await pruner.run_ended(context)
        assert not ended.texts.get("obsolete")
        assert not ended.texts.get("deleted")
    assert "delete" not in cluster.calls
