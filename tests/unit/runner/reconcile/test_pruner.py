from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rolecall.runner.prune.decision import Pruning
from rolecall.runner.prune.observations import Observations, Own
from rolecall.runner.reconcile.context import ReconcileContext
from rolecall.runner.reconcile.pruner import Pruner
from rolecall.runner.runs.outcome import Outcome
from tests.support.reconciler_rig import FAILURE, SUCCESS, make_rig
from tests.support.things import MANIFEST
from tests.support.world import World
from tests.unit.fake_cluster import FakeCluster
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
