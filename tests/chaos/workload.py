"""Everything that lives while disorder happens: objects of four kinds that people keep changing."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from rolecall.kube.errors import KubeError
from tests.chaos.changes import Change
from tests.chaos.choir import Choir
from tests.chaos.heartbeats import HEARTBEAT, PASSING, Heartbeats
from tests.chaos.ledger import Ledger
from tests.chaos.scalers import Scalers
from tests.integration.world import World

HEARTBEATS, PASSINGS, SCALERS = 4, 2, 3
_FEWEST_CHANGES, _MOST_CHANGES = 3, 6
_PROBE_BEAT = 0.1


@dataclass(slots=True)
class Workload:
    """The objects of one namespace, and what they shall be like."""

    world: World
    ledger: Ledger
    heartbeats: Heartbeats = field(init=False)
    passings: Heartbeats = field(init=False)
    scalers: Scalers = field(init=False)
    choir: Choir = field(init=False)

    def __post_init__(self) -> None:
        """Take the parts."""
        self.heartbeats = Heartbeats(self.world, HEARTBEAT, self.ledger, HEARTBEATS, has_finalizer=True)
        self.passings = Heartbeats(self.world, PASSING, self.ledger, PASSINGS)
        self.scalers = Scalers(self.world, SCALERS)
        self.choir = Choir(self.world)

    @asynccontextmanager
    async def at_work(self, chance: random.Random) -> AsyncIterator[None]:
        """Make the objects; listen to the songs meanwhile."""
        for part in (self.heartbeats, self.passings, self.scalers):
            await part.begin(chance)
        async with self.choir.listened_to():
            yield

    def changes(self, chance: random.Random) -> list[Change]:
        """Draw what people do during one disturbance: a song, and changes of the others."""
        count = chance.randint(_FEWEST_CHANGES, _MOST_CHANGES)
        parts = [chance.choice((self.heartbeats, self.heartbeats, self.scalers)) for _ in range(count)]
        return [self.choir.change(chance), *(part.change(chance) for part in parts)]

    async def touch(self) -> None:
        """Change an object of two kinds, so that there is work."""
        await self.heartbeats.resize(self.heartbeats.names[0], _PROBE_BEAT)
        name = min(self.scalers.wanted)
        await self.scalers.scale(name, 1 + self.scalers.wanted[name] % 3)

    async def wrong(self) -> list[str]:
        """Return what is not as it shall be, or why nobody can tell."""
        parts = (self.heartbeats, self.passings, self.scalers, self.choir)
        try:
            found = await asyncio.gather(*(part.wrong() for part in parts))
        except KubeError as error:
            return [f"the API server does not answer: {error}"]
        return [text for texts in found for text in texts]

    async def left(self) -> list[str]:
        """Return objects whose owner is gone."""
        found = await asyncio.gather(self.heartbeats.left(), self.passings.left(), self.choir.left())
        return [text for texts in found for text in texts]
