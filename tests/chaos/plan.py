"""What happens in which order: so often each, or for so long; a seed draws the same again.

A seed never meets the same moment: processes come and go by themselves.
"""

import itertools
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.chaos.catalogue import ALONE, GROUPS, PAIR
from tests.chaos.disturbance import Disturbance

_SHARE_OF_PAIR = 0.25
"""Of the time: what the disturbances of two replicas get."""


@dataclass(frozen=True, slots=True)
class Plan:
    """``counts`` says how often each disturbance of a group happens; where it is empty, all happen for ``seconds``."""

    seed: int = 1
    seconds: float = 300.0
    counts: Mapping[str, int] = field(default_factory=dict)
    only: str = ""
    """A part of the names of those that happen; empty means all."""

    def alone(self) -> Iterator[Disturbance]:
        """Yield what happens to one operator."""
        share = 1.0 if not self._chosen(PAIR) else 1 - _SHARE_OF_PAIR
        return self._drawn(ALONE, self.seconds * share)

    def pair(self) -> Iterator[Disturbance]:
        """Yield what happens to two replicas."""
        share = 1.0 if not self._chosen(ALONE) else _SHARE_OF_PAIR
        return self._drawn(PAIR, self.seconds * share)

    def has(self, groups: Mapping[str, Sequence[Disturbance]]) -> bool:
        """Tell whether anything of these groups happens."""
        return bool(self._chosen(groups))

    def chance(self, number: int) -> random.Random:
        """Return the source of all draws of one disturbance, which does not depend on what came before it."""
        return random.Random(f"{self.seed}/{number}")  # noqa: S311 - no secret

    def _drawn(self, groups: Mapping[str, Sequence[Disturbance]], seconds: float) -> Iterator[Disturbance]:
        chance = random.Random(self.seed)  # noqa: S311 - no secret
        chosen = self._chosen(groups)
        if self.counts:
            chance.shuffle(chosen)
            yield from chosen
            return
        deadline = time.monotonic() + seconds
        for _ in itertools.count():
            chance.shuffle(chosen)
            for disturbance in chosen:
                if time.monotonic() > deadline:
                    return
                yield disturbance

    def _chosen(self, groups: Mapping[str, Sequence[Disturbance]]) -> list[Disturbance]:
        counts = self.counts or dict.fromkeys(GROUPS, 1)
        return [
            each
            for group, members in groups.items()
            for each in members
            for _ in range(counts.get(group, 0))
            if self.only in each.name
        ]
