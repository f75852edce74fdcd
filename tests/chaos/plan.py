"""What happens in which order, drawn by a seed, which draws the same again.

A seed never meets the same moment: processes come and go by themselves.
"""

import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.chaos.catalogue import ALONE, GROUPS, PAIR
from tests.chaos.disturbance import Disturbance

_SHARE_OF_PAIR = 0.25
"""Of the time: what the disturbances of two replicas get, if there are others too."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What happens to one operator, and to two replicas: once each in any order, or again until the time ends.

    The time is that of everything together; a disturbance that has begun is always finished.
    """

    seed: int
    alone: Sequence[Disturbance]
    pair: Sequence[Disturbance] = ()
    seconds: float = math.inf
    is_repeated: bool = False

    def sections(self) -> Iterator[tuple[int, Iterator[Disturbance]]]:
        """Yield how many replicas there are, and what happens to them; nothing is drawn before it is asked for."""
        if self.alone:
            yield 1, self._drawn(self.alone, self.seconds * (1 - _SHARE_OF_PAIR if self.pair else 1.0))
        if self.pair:
            yield 2, self._drawn(self.pair, self.seconds * (_SHARE_OF_PAIR if self.alone else 1.0))

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
    return Plan(seed, _chosen(ALONE, counts, only), _chosen(PAIR, counts, only))


def timed(seed: int, seconds: float, only: str = "") -> Plan:
    """Return the plan in which all disturbances with this part in their names happen again and again."""
    once = dict.fromkeys(GROUPS, 1)
    return Plan(seed, _chosen(ALONE, once, only), _chosen(PAIR, once, only), seconds, is_repeated=True)


def _chosen(groups: Mapping[str, Sequence[Disturbance]], counts: Mapping[str, int], only: str) -> list[Disturbance]:
    return [
        each
        for group, members in groups.items()
        for each in members
        for _ in range(counts.get(group, 0))
        if only in each.name
    ]
