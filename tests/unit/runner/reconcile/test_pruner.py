from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rolecall.kube.references import ObjectKey
from rolecall.runner.controller.controller import Controller, Result
from rolecall.runner.controller.work_queue import Backoff, Cause, WorkQueue
from rolecall.runner.prune.decision import Pruning
from rolecall.runner.prune.inventory import INVENTORY_ANNOTATION, Inventory, InventoryObject
from rolecall.runner.prune.observations import ObjectId, Observations, Own
from rolecall.runner.reconcile.context import PERIOD_ANNOTATION, ReconcileContext
from rolecall.runner.reconcile.kubernetes_events import EventSpec
from rolecall.runner.reconcile.pruner import Pruner
from rolecall.runner.runs.outcome import Outcome
from tests.support.metrics import controller_metrics
from tests.support.reconciler_rig import FAILURE, SUCCESS, make_rig
from tests.support.things import MANIFEST, THING
from tests.support.world import World
from tests.unit.fake_cluster import FakeCluster
from tests.unit.manual_clock import ManualClock
from tests.unit.runner.prune.test_decision import item

OPTIONS: dict[str, Any] = {"options": {"after": None, "kinds": [], "mode": "delete", "skips": []}}


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
    pruner = Pruner(rig.reconciler.watch, rig.reconciler.primaries, lambda *_: None, "by", lambda _key: True, {})
    own = Observations(own={item("a").id: Own("v1", "uid-a")}, others={item("b").id: ("v1", "uid-b", "owner")})
    thing = await rig.thing()
    context = ReconcileContext(rig.key, "run", obj=thing, fresh=thing, outcome=replace(outcome, observations=own))
    cluster.calls.clear()
    assert ((await pruner.run_ended(context)) != Pruning()) is bool(outcome.is_successful and outcome.prune)
    assert bool(cluster.calls) is sends


@pytest.mark.parametrize(("period", "expected"), [("1h", "prune"), ("1s", "period")])
async def test_run_that_confirms_the_objects_has_its_own_cause_and_keeps_the_period(
    world: World, tmp_path: Path, period: str, expected: str
) -> None:
    """Of the period and the time that prune requests, the earlier is the cause of the next run."""
    annotations = f"annotations: {{{PERIOD_ANNOTATION}: {period}}}"
    await world.create(MANIFEST.replace("name: one", f"name: one, {annotations}"))
    rig, clock = make_rig(world, tmp_path), ManualClock()
    own = Observations(own={item("a").id: Own("v1", "uid-a")})
    rig.runner.outcome = replace(SUCCESS, prune=OPTIONS, observations=own)
    rig.reconciler.pruner = Pruner(
        watch=rig.reconciler.watch,
        primaries=rig.reconciler.primaries,
        record_event=lambda *_: None,
        identity="by",
        may_delete=lambda _key: True,
        inventories={},
        now=lambda: clock.now() + 60,  # the run is requested for a second later
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
    await world.create(MANIFEST)
    rig = make_rig(world, tmp_path)
    clock = ManualClock()
    events: list[EventSpec] = []
    cluster.before = lambda call: clock.advance(5 if call == "patch" else 0)
    pruner = Pruner(
        watch=rig.reconciler.watch,
        primaries=rig.reconciler.primaries,
        record_event=lambda _obj, event: events.append(event),
        identity="by",
        may_delete=lambda _key: True,
        inventories={},
        now=clock.now,
    )
    role = (await pruner._inputs(await rig.thing())).partition(".")[2]
    inventory = Inventory(f"before-the-edit.{role}", (item("a"),), "by").to_text()
    await world.patch(THING, "one", {"metadata": {"annotations": {INVENTORY_ANNOTATION: inventory}}})
    thing, prune = await rig.thing(), {"options": {**OPTIONS["options"], "after": "1s"}}
    outcome = replace(SUCCESS, prune=prune, observations=Observations())
    context = ReconcileContext(rig.key, "run", obj=thing, fresh=thing, outcome=outcome)
    await pruner.run_ended(context)
    ended = await pruner.run_ended(context)  # the second of two equal runs
    text = "no longer named by the role, deleted after 1s"
    assert [event.message for event in events] == [f"{text.capitalize()}: Service ns/a"]
    assert ended.texts["obsolete"] == (f"Service ns/a: {text}",)


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
    pruner = Pruner(rig.reconciler.watch, rig.reconciler.primaries, lambda *_: None, "by", lambda _key: True, {})
    inventory = Inventory(await pruner._inputs(await rig.thing()), (forged,), "by").to_text()
    await world.patch(THING, "one", {"metadata": {"annotations": {INVENTORY_ANNOTATION: inventory}}})
    thing = await rig.thing()
    outcome = replace(SUCCESS, prune=OPTIONS, observations=Observations())
    context = ReconcileContext(rig.key, "run", obj=thing, fresh=thing, outcome=outcome)
    for _ in range(3):
        ended = await pruner.run_ended(context)
        assert not ended.texts.get("obsolete")
        assert not ended.texts.get("deleted")
    assert "delete" not in cluster.calls
