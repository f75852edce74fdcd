"""Replicas of a simulation: each with its own clock, a network, a watchdog, and work that takes time to end.

They run the real ``ShardMember`` and the real ``Elector``. A watchdog kills its replica at the time of the last
renewal's end, regardless of its state. The work of a replica continues while it is frozen, and ends when it is killed.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from rolecall.kube.references import ObjectKey
from rolecall.runner.election.elector import Election, Elector, LeadershipLostError
from rolecall.runner.election.shard_member import HeldShards, ShardMember
from rolecall.runner.serving.metrics import OperatorMetrics
from tests.unit.runner.election.simulated_leases import LeaseServer, Network, SimulatedClient

GROUP = ObjectKey("operators", "lock")
LEASE_SECONDS, RENEW_DEADLINE_SECONDS, RETRY_SECONDS = 15.0, 10.0, 2.0
_MAX_DRIFT = 0.001


def election(identity: str) -> Election:
    """Return the election that all tests take part in."""
    return Election(GROUP, identity, LEASE_SECONDS, RENEW_DEADLINE_SECONDS, RETRY_SECONDS)


class DriftingClock:
    """A clock that is a little too fast or too slow and starts at any time; it stops while its owner is frozen."""

    def __init__(self, chance: random.Random, can_go_on: asyncio.Event) -> None:
        self._rate = 1 + chance.uniform(-_MAX_DRIFT, _MAX_DRIFT)
        self._offset = chance.uniform(0, 1e5)
        self._can_go_on = can_go_on

    def now(self) -> float:
        """Return the wall clock time."""
        return 1.7e9 + self.monotonic()

    def monotonic(self) -> float:
        """Return the monotonic time."""
        return self._offset + self._rate * asyncio.get_running_loop().time()

    def call_at(self, when_monotonic: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Schedule a callback."""
        loop = asyncio.get_running_loop()

        def fire() -> None:
            if not self._can_go_on.is_set():
                loop.call_later(0.05, fire)
            else:
                callback()

        # Real time passes between two readings of a clock, however close they are.
        return loop.call_later(max(1e-6, self.seconds_until(when_monotonic)), fire)

    def seconds_until(self, when_monotonic: float) -> float:
        """Return how much true time is left."""
        return max(0.0, (when_monotonic - self.monotonic()) / self._rate)


class Ledger:
    """The replica that works for each shard; ``violations`` lists two replicas that worked for the same shard."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.working: dict[tuple[int, int], str] = {}
        self.ended_at: dict[tuple[int, int], float] = {}
        self.taken = 0

    def begin(self, replica: str, count: int, index: int) -> None:
        """Record that a replica works for a shard; without shards it works for the only one of 0."""
        for (other_count, other_index), other in self.working.items():
            if other_count != count or other_index == index:
                self.violations.append(f"{replica}: shard {index} of {count}, {other}: {other_index} of {other_count}")
        self.working[count, index] = replica
        self.taken += 1

    def end(self, replica: str, count: int, index: int) -> None:
        """Record that a replica no longer works for a shard."""
        if self.working.get((count, index)) == replica:
            del self.working[count, index]
            self.ended_at[count, index] = asyncio.get_running_loop().time()

    def end_all(self, replica: str) -> None:
        """Record that a replica is dead."""
        for count, index in [each for each, worker in self.working.items() if worker == replica]:
            self.end(replica, count, index)

    def shards_of(self, replica: str) -> int:
        """Count the shards that a replica works for."""
        return sum(worker == replica for worker in self.working.values())


class Replica:
    """One process; with ``count`` 0 it works without shards."""

    def __init__(self, server: LeaseServer, ledger: Ledger, identity: str, count: int, chance: random.Random) -> None:
        self.identity, self.count = identity, count
        self.is_dead = self.is_stopping = False
        self.can_go_on = asyncio.Event()
        self.can_go_on.set()
        self._ledger, self._chance = ledger, chance
        self.network = Network(chance, self.can_go_on)
        self._clock = DriftingClock(chance, self.can_go_on)
        self._watchdog: asyncio.TimerHandle | None = None
        client = SimulatedClient(server, self.network)
        self._part: ShardMember | Elector
        parts = client, election(identity), self._clock, OperatorMetrics("test"), self._end_at
        self._part = ShardMember(cast("HeldShards", self), *parts) if count else Elector(*parts)
        self._running = asyncio.create_task(self._part.run())
        self._life = asyncio.create_task(self._live())

    async def _live(self) -> None:
        if not self.count and await self._is_elected():
            self._ledger.begin(self.identity, 0, 0)
        with suppress(LeadershipLostError, ExceptionGroup, asyncio.CancelledError):
            await self._running
        await self._clock_sleep(self._chance.uniform(0, 0.9))
        self._ledger.end_all(self.identity)
        if self.is_stopping:
            await self._part.release()
        self.kill()

    async def _is_elected(self) -> bool:
        elected = asyncio.ensure_future(self._part.elected.wait())
        try:
            await asyncio.wait({elected, self._running}, return_when=asyncio.FIRST_COMPLETED)
            return elected.done()
        finally:
            elected.cancel()

    async def _clock_sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.can_go_on.wait()

    def stop(self) -> None:
        """Stop it as Kubernetes does."""
        self.is_stopping = True
        self._running.cancel()

    def kill(self) -> None:
        """Kill it and its work."""
        self.is_dead = True
        self._ledger.end_all(self.identity)
        if self._watchdog is not None:
            self._watchdog.cancel()
        self._running.cancel()
        self._life.cancel()

    def _end_at(self, when: float) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
        if when != float("inf"):
            loop = asyncio.get_running_loop()
            self._watchdog = loop.call_later(self._clock.seconds_until(when), self.kill)

    def take(self, index: int) -> None:
        """Work for a shard."""
        self._ledger.begin(self.identity, self.count, index)

    async def drain(self, index: int, *, is_lost: bool = False) -> None:
        """End the work for a shard, after a while; without edits by people no shard is ever lost."""
        if is_lost:
            self._ledger.violations.append(f"{self.identity} has lost shard {index}")
            return
        await self._clock_sleep(self._chance.uniform(0, 4))
        self._ledger.end(self.identity, self.count, index)
