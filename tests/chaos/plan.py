"""What happens in which order, drawn by a seed, which draws the same again.

A seed never meets the same moment: processes come and go by themselves.
"""

import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.chaos.catalogue import ALONE, GROUPS, PAIR, TRIO
from tests.chaos.disturbance import Disturbance

_PARTS = {1: 3, 2: 1, 3: 1}
"""By the number of replicas: how the time is divided among the disturbances of so many."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What happens to one operator, to two replicas and to three: once each in any order, or until the time ends.

    The time is that of everything together; a disturbance that has begun is always finished.
    """

    seed: int
    alone: Sequence[Disturbance]
    pair: Sequence[Disturbance] = ()
    trio: Sequence[Disturbance] = ()
    seconds: float = math.inf
    is_repeated: bool = False

    def sections(self) -> Iterator[tuple[int, Iterator[Disturbance]]]:
        """Yield how many replicas there are, and what happens to them; nothing is drawn before it is asked for."""
        by_replicas = {replicas: found for replicas, found in self.by_replicas.items() if found}
        parts = sum(_PARTS[replicas] for replicas in by_replicas)
        for replicas, disturbances in by_replicas.items():
            yield replicas, self._drawn(disturbances, self.seconds * _PARTS[replicas] / parts)

    @property
    def by_replicas(self) -> dict[int, Sequence[Disturbance]]:
        """What happens, by the number of replicas to which it does."""
        return {1: self.alone, 2: self.pair, 3: self.trio}

    def chance(self, number: int) -> random.Random:
        """Return the source of all draws of one disturbance, which does not depend on what came before it."""
        return random.Random(f"{self.seed}/{number}")  # noqa: S311 - no secret

    def _drawn(self, disturbances: Sequence[Disturbance], seconds: float) -> Iterator[Disturbance]:
        chance = random.Random(self.seed)  # noqa: S311 - no secret
        deadline = time.monotonic() + seconds
        while True:
            for disturbance in chance.sample(disturbances, len(disturbances)):
                if time.monotonic() > deadline:
                    return
                yield disturbance
            if not self.is_repeated:
                return


def counted(seed: int, counts: Mapping[str, int], only: str = "") -> Plan:
    """Return the plan in which each disturbance of a group happens so often; ``only`` is a part of their names."""
    alone, pair, trio = (_chosen(groups, counts, only) for groups in (ALONE, PAIR, TRIO))
    return Plan(seed, alone, pair, trio)


def timed(seed: int, seconds: float, only: str = "") -> Plan:
    """Return the plan in which all disturbances with this part in their names happen again and again."""
    once = dict.fromkeys(GROUPS, 1)
    alone, pair, trio = (_chosen(groups, once, only) for groups in (ALONE, PAIR, TRIO))
    return Plan(seed, alone, pair, trio, seconds=seconds, is_repeated=True)


def _chosen(groups: Mapping[str, Sequence[Disturbance]], counts: Mapping[str, int], only: str) -> list[Disturbance]:
    return [
        each
        for group, members in groups.items()
        for each in members
        for _ in range(counts.get(group, 0))
        if only in each.name
    ]
