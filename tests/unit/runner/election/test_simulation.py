"""Replicas of a group die, freeze, stop, start and are cut off at random: one replica works for each shard.

Everything but the API server, the network and the clocks is real. The seed and the number of steps can be set::

    SHARD_STEPS=100000 SHARD_SEED=1 .venv/bin/pytest -s tests/unit/runner/election/test_simulation.py
"""

import asyncio
import os
import random

import pytest

from tests.support.virtual_time import VirtualTimeLoop
from tests.unit.runner.election.simulated_leases import LeaseServer
from tests.unit.runner.election.simulated_replicas import GROUP, Ledger, Replica

STEPS = int(os.environ.get("SHARD_STEPS", "1000"))
SEEDS = [int(os.environ["SHARD_SEED"])] if "SHARD_SEED" in os.environ else [1, 2, 3]
SHARDS, MAX_REPLICAS = 8, 5
CALM_SECONDS, LONGEST_GAP = 90.0, 45.0


class Simulation:
    """Replicas, faults, and invariants."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - no secret
        self.server, self.ledger = LeaseServer(), Ledger()
        self.replicas: list[Replica] = []
        self.count = SHARDS
        self.born = 0
        self.events: dict[str, int] = {}
        self.calms: list[float] = []

    @property
    def now(self) -> float:
        """The simulated time."""
        return asyncio.get_running_loop().time()

    async def run(self, steps: int) -> None:
        """Take so many steps."""
        for _ in range(steps):
            await asyncio.sleep(self.chance.expovariate(1.0))
            assert self.ledger.violations == []
            self.replicas = [each for each in self.replicas if not each.is_dead]
            if self.chance.random() < 0.25:
                self._inject_fault()
            if self.chance.random() < 0.004:
                await self.calm_down()
        await self.calm_down()

    def _inject_fault(self) -> None:
        name = self.chance.choice(
            ["start"] * 6 + ["kill"] * 2 + ["stop"] * 2 + ["freeze"] * 2 + ["cut"] * 2 + ["outage", "other"]
        )
        self.events[name] = self.events.get(name, 0) + 1
        getattr(self, f"_{name}")()

    def _start(self) -> None:
        """Start a replica; some have another number of shards and must wait for the end of the others."""
        self._start_one(self.chance.choice([self.count] * 5 + [SHARDS, 5, 0]))

    def _start_one(self, count: int) -> None:
        if len(self.replicas) < MAX_REPLICAS:
            self.born += 1
            identity = f"replica-{self.born % MAX_REPLICAS}_{self.born}"
            self.replicas.append(Replica(self.server, self.ledger, identity, count, self.chance))

    def _kill(self) -> None:
        if self.replicas:
            self.chance.choice(self.replicas).kill()

    def _stop(self) -> None:
        if self.replicas:
            self.chance.choice(self.replicas).stop()

    def _freeze(self) -> None:
        if self.replicas:
            replica = self.chance.choice(self.replicas)
            replica.can_go_on.clear()
            asyncio.get_running_loop().call_later(self._a_while(), replica.can_go_on.set)

    def _cut(self) -> None:
        if self.replicas:
            self._cut_off(self.chance.choice(self.replicas))

    def _outage(self) -> None:
        for each in self.replicas:
            self._cut_off(each)

    def _other(self) -> None:
        """Switch to another number of shards, or to none, or back."""
        if self.chance.random() < 0.3:
            self.count = self.chance.choice([SHARDS, SHARDS, 5, 0])
            for each in self.replicas[1:]:
                each.stop()
            self._start_one(self.count)

    def _cut_off(self, replica: Replica) -> None:
        replica.network.is_cut = True
        asyncio.get_running_loop().call_later(self._a_while(), setattr, replica.network, "is_cut", False)  # noqa: FBT003 - setattr

    def _a_while(self) -> float:
        return self.chance.choice([0.3, 3.0, 8.0, 20.0]) * self.chance.uniform(0.5, 1.5)

    async def calm_down(self) -> None:
        """Stop all faults for a while: every shard has a holder soon, and in the end they share evenly."""
        for each in self.replicas:
            each.can_go_on.set()
            each.network.is_cut = False
            each.network.is_good = True
            if each.count != self.count:
                each.stop()
        started = self.now
        wanted = max(1, self.count)
        while (missing := wanted - sum(count == self.count for count, _ in self.ledger.working)) > 0:
            await self._keep(3)
            gap = self.now - started
            assert gap < LONGEST_GAP, f"{missing} shards have had no replica for {gap:.0f} s"
        self.calms.append(self.now - started)
        while self.now < started + CALM_SECONDS:
            await self._keep(3)
        self._check_balance(wanted)
        for each in self.replicas:
            each.network.is_good = False

    async def _keep(self, wanted: int) -> None:
        """Replace ended replicas, as a Deployment does."""
        await asyncio.sleep(0.25)
        self.replicas = [each for each in self.replicas if not each.is_dead]
        if sum(not each.is_stopping for each in self.replicas) < wanted:
            self._start_one(self.count)
            self.replicas[-1].network.is_good = True

    def _check_balance(self, wanted: int) -> None:
        """All shards are shared as evenly as possible."""
        shares = sorted(self.ledger.shards_of(each.identity) for each in self.replicas if not each.is_dead)
        assert sum(shares) == wanted, shares
        assert not self.count or shares[-1] - shares[0] <= 1, shares


@pytest.mark.parametrize("seed", SEEDS)
def test_each_shard_has_exactly_one_replica_despite_random_faults(seed: int) -> None:
    simulation = Simulation(seed)
    loop = VirtualTimeLoop()
    failures: list[str] = []
    loop.set_exception_handler(lambda _, context: failures.append(repr(context)))
    try:
        loop.run_until_complete(simulation.run(STEPS))
        seconds = loop.time()
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(1))
        loop.close()
    assert failures == []
    print(  # noqa: T201 - for long runs
        f"\n{STEPS} steps, {seconds:.0f} s of simulated time, {simulation.server.writes} writes, "
        f"{simulation.ledger.taken} shards taken, {simulation.born} replicas, {simulation.events}; "
        f"all shards held after {max(simulation.calms):.0f} s at most, {len(simulation.calms)} times"
    )
    assert simulation.ledger.taken > STEPS / 10
    assert GROUP.name in simulation.server.leases
