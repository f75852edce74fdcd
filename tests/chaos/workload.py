"""The workload during faults: objects of four kinds that keep changing."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from rolecall.kube.errors import KubeError
from tests.chaos.heartbeats import HEARTBEAT, PASSING, Heartbeats, Ledger
from tests.chaos.hikawa_workload import HikawaWorkload
from tests.chaos.requests import Change
from tests.chaos.scalers import Scalers
from tests.support.world import World

HEARTBEATS, PASSINGS, SCALERS = 4, 2, 3
_MIN_CHANGES, _MAX_CHANGES = 3, 6
_PROBE_BEAT = 0.1


@dataclass(slots=True)
class Workload:
    """The objects of one namespace, and their expected state."""

    world: World
    ledger: Ledger
    heartbeats: Heartbeats = field(init=False)
    passings: Heartbeats = field(init=False)
    scalers: Scalers = field(init=False)
    hikawas: HikawaWorkload = field(init=False)

    def __post_init__(self) -> None:
        """Create the parts."""
        self.heartbeats = Heartbeats(self.world, HEARTBEAT, self.ledger, HEARTBEATS, has_finalizer=True)
        self.passings = Heartbeats(self.world, PASSING, self.ledger, PASSINGS)
        self.scalers = Scalers(self.world, SCALERS)
        self.hikawas = HikawaWorkload(self.world)

    @asynccontextmanager
    async def at_work(self, chance: random.Random) -> AsyncIterator[None]:
        """Create the objects, and record all words of songs."""
        for part in (self.heartbeats, self.passings, self.scalers):
            await part.create_all(chance)
        async with self.hikawas.watched_words():
            yield

    def changes(self, chance: random.Random) -> list[Change]:
        """Draw the changes during one fault: a song, and changes of the other objects."""
        count = chance.randint(_MIN_CHANGES, _MAX_CHANGES)
        parts = [chance.choice((self.heartbeats, self.heartbeats, self.scalers)) for _ in range(count)]
        return [self.hikawas.change(chance), *(part.change(chance) for part in parts)]

    async def touch(self) -> None:
        """Change an object of each of two kinds, so that there is work."""
        await self.heartbeats.resize(self.heartbeats.names[0], _PROBE_BEAT)
        name = min(self.scalers.wanted)
        await self.scalers.scale(name, 1 + self.scalers.wanted[name] % 3)

    async def problems(self) -> list[str]:
        """Return deviations from the expected state, or the reason why it is unknown."""
        parts = (self.heartbeats, self.passings, self.scalers, self.hikawas)
        try:
            found = await asyncio.gather(*(part.problems() for part in parts))
        except KubeError as error:
            return [f"the API server does not respond: {error}"]
        return [text for problems in found for text in problems]

    async def leaked(self) -> list[str]:
        """Return objects whose owner was deleted."""
        found = await asyncio.gather(self.heartbeats.leaked(), self.passings.leaked(), self.hikawas.leaked())
        return [text for problems in found for text in problems]
