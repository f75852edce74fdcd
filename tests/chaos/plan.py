"""All faults by group, in the order of the table, and the order of injection, which a seed reproduces.

Only the order is reproducible, not the timing.
"""

import asyncio
import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.chaos.api_server_faults import NETWORK, OUTAGES
from tests.chaos.content_faults import CONTENT
from tests.chaos.fault import Fault
from tests.chaos.lease_faults import LEADERS, SHARING
from tests.chaos.process_faults import KILLS, STOPS, TERMS
from tests.chaos.scene import Scene
from tests.chaos.shortages import SHORTAGES

_PARTS = {1: 3, 2: 1, 3: 1}
"""Shares of the time, by number of replicas."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Faults of one operator, two replicas, and three replicas: once each in random order, or until the time ends.

    The time is the total; a started fault is always finished.
    """

    seed: int
    alone: Sequence[Fault]
    pair: Sequence[Fault] = ()
    trio: Sequence[Fault] = ()
    seconds: float = math.inf
    is_repeated: bool = False

    def sections(self) -> Iterator[tuple[int, Iterator[Fault]]]:
        """Yield numbers of replicas and their faults, drawn lazily."""
        by_replicas = {replicas: found for replicas, found in self.by_replicas.items() if found}
        parts = sum(_PARTS[replicas] for replicas in by_replicas)
        for replicas, faults in by_replicas.items():
            yield replicas, self._drawn(faults, self.seconds * _PARTS[replicas] / parts)

    @property
    def by_replicas(self) -> dict[int, Sequence[Fault]]:
        """Faults by number of replicas."""
        return {1: self.alone, 2: self.pair, 3: self.trio}

    def chance(self, number: int) -> random.Random:
        """Return the random source of one fault, independent of earlier faults."""
        return random.Random(f"{self.seed}/{number}")  # noqa: S311 - no secret

    def _drawn(self, faults: Sequence[Fault], seconds: float) -> Iterator[Fault]:
        chance = random.Random(self.seed)  # noqa: S311 - no secret
        deadline = time.monotonic() + seconds
        while True:
            for fault in chance.sample(faults, len(faults)):
                if time.monotonic() > deadline:
                    return
                yield fault
            if not self.is_repeated:
                return


def counted(seed: int, counts: Mapping[str, int], only: str = "") -> Plan:
    """Return a plan that injects each fault of a group this often; ``only`` is a part of their names."""
    alone, pair, trio = (_chosen(groups, counts, only) for groups in (ALONE, PAIR, TRIO))
    return Plan(seed, alone, pair, trio)


def timed(seed: int, seconds: float, only: str = "") -> Plan:
    """Return a plan that repeats all faults whose names contain ``only``."""
    once = dict.fromkeys(GROUPS, 1)
    alone, pair, trio = (_chosen(groups, once, only) for groups in (ALONE, PAIR, TRIO))
    return Plan(seed, alone, pair, trio, seconds=seconds, is_repeated=True)


def _chosen(groups: Mapping[str, Sequence[Fault]], counts: Mapping[str, int], only: str) -> list[Fault]:
    return [
        each
        for group, members in groups.items()
        for each in members
        for _ in range(counts.get(group, 0))
        if only in each.name
    ]


async def do_nothing(_scene: Scene, chance: random.Random) -> None:
    """Only change objects, as a baseline for the other figures."""
    await asyncio.sleep(chance.uniform(0.0, 1.0))


ALONE: Mapping[str, Sequence[Fault]] = {
    "nothing": [Fault("nothing, to compare", do_nothing)],
    "kills": KILLS,
    "terms": TERMS,
    "stops": STOPS,
    "outages": OUTAGES,
    "network": NETWORK,
    "shortages": SHORTAGES,
    "content": CONTENT,
}
"""Faults of one operator."""

PAIR: Mapping[str, Sequence[Fault]] = {"leaders": LEADERS}
"""Faults of two replicas."""

TRIO: Mapping[str, Sequence[Fault]] = {"shards": SHARING}
"""Faults of three replicas that share the work."""

GROUPS: Mapping[str, Sequence[Fault]] = {**ALONE, **PAIR, **TRIO}
