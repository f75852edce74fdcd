import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rolecall.runner.prune.decision import Pruning
from rolecall.runner.prune.inventory import INVENTORY_ANNOTATION, Inventory
from rolecall.runner.prune.observations import Observations, Own
from rolecall.runner.reconcile.context import ReconcileContext
from rolecall.runner.reconcile.kubernetes_events import EventSpec
from rolecall.runner.reconcile.pruner import Pruner
from rolecall.runner.runs.outcome import Outcome
from tests.support.reconciler_rig import FAILURE, SUCCESS, make_rig
from tests.support.things import MANIFEST
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


async def test_time_until_a_deletion_is_that_of_the_decision_however_long_a_write_takes(
    world: World, cluster: FakeCluster, tmp_path: Path
) -> None:
    inventory = Inventory("earlier inputs", (item("a"),), "by").to_text()
    annotations = json.dumps({INVENTORY_ANNOTATION: inventory})
    await world.create(MANIFEST.replace("name: one", f"name: one, annotations: {annotations}"))
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
    thing, prune = await rig.thing(), {"options": {**OPTIONS["options"], "after": "1s"}}
    outcome = replace(SUCCESS, prune=prune, observations=Observations())
    context = ReconcileContext(rig.key, "run", obj=thing, fresh=thing, outcome=outcome)
    await pruner.run_ended(context)
    ended = await pruner.run_ended(context)  # the second of two equal runs
    text = "no longer named by the role, deleted after 1s"
    assert [event.message for event in events] == [f"{text.capitalize()}: Service ns/a"]
    assert ended.texts["obsolete"] == (f"Service ns/a: {text}",)
