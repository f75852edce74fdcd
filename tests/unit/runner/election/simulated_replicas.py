"""Replicas of a simulation: each with a clock of its own, a network, a guard, and work that takes time to end.

They run the real ``ShardMember`` and the real ``Elector``. A guard kills at the time that it was told, whatever the
replica does. Work of a replica goes on while it is frozen, and ends when it is killed.
"""

import asyncio
import random
from collections.abc import Callable, Collection
from contextlib import suppress

from rolecall.kube.references import ObjectKey
from rolecall.runner.election.elector import Election, Elector, LeadershipLostError
from rolecall.runner.election.shard_member import ShardMember
from tests.unit.runner.election.simulated_leases import LeaseServer, Network, SimulatedClient

GROUP = ObjectKey("operators", "lock")
_MAX_DRIFT = 0.001


class DriftingClock:
    """A clock that runs a little too fast or too slow, from any time on; it tells nothing while its owner is frozen."""

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

        # Real time goes on between two readings of a clock, however close they are.
        return loop.call_later(max(1e-6, self.seconds_until(when_monotonic)), fire)

    def seconds_until(self, when_monotonic: float) -> float:
        """Return how much true time is left."""
        return max(0.0, (when_monotonic - self.monotonic()) / self._rate)


class Ledger:
    """Who works for what; ``violations`` says when two replicas worked for the same."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.working: dict[tuple[int, int], str] = {}
        self.ended_at: dict[tuple[int, int], float] = {}
        self.taken = 0

    def begin(self, replica: str, count: int, index: int) -> None:
        """Take note that a replica works for a shard; without shards it works for the only one of 0."""
        for (other_count, other_index), other in self.working.items():
            if other_count != count or other_index == index:
                self.violations.append(f"{replica}: shard {index} of {count}, {other}: {other_index} of {other_count}")
        self.working[count, index] = replica
        self.taken += 1

    def end(self, replica: str, count: int, index: int) -> None:
        """Take note that a replica does not work for a shard any more."""
        if self.working.get((count, index)) == replica:
            del self.working[count, index]
            self.ended_at[count, index] = asyncio.get_running_loop().time()

    def end_all(self, replica: str) -> None:
        """Take note that a replica is dead."""
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
        self._guard: asyncio.TimerHandle | None = None
        client, election = SimulatedClient(server, self.network), Election(GROUP, identity)
        self._part: ShardMember | Elector
        if count:
            self._part = ShardMember(self, client, election, self._clock, self, self._end_at)
        else:
            self._part = Elector(client, election, self._clock, self, self._end_at)
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
        elected = asyncio.ensure_future(self._part.elected())
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
        if self._guard is not None:
            self._guard.cancel()
        self._running.cancel()
        self._life.cancel()

    def _end_at(self, when: float) -> None:
        if self._guard is not None:
            self._guard.cancel()
            self._guard = None
        if when != float("inf"):
            loop = asyncio.get_running_loop()
            self._guard = loop.call_later(self._clock.seconds_until(when), self.kill)

    def take(self, index: int) -> None:
        """Work for a shard."""
        self._ledger.begin(self.identity, self.count, index)

    async def drain(self, index: int) -> None:
        """End what runs for a shard, after a while."""
        await self._clock_sleep(self._chance.uniform(0, 4))
        self._ledger.end(self.identity, self.count, index)

    async def cancel(self, index: int) -> None:
        """Take note of what must not happen: without edits by people no shard is ever lost."""
        self._ledger.violations.append(f"{self.identity} has lost shard {index}")

    def set_leading(self, name: str, *, leading: bool) -> None:
        """Ignore it."""

    def count_slow_renewal(self, name: str) -> None:
        """Ignore it."""

    def set_shards(self, held: Collection[int], members: int) -> None:
        """Ignore it."""
