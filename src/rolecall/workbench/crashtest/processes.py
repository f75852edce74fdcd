"""The fork servers of two operator processes, for tests of a role.

**The end state of a role must not depend on the process in which it runs.** Python orders a set by a hash seed, which
differs in each process, and all warm runs of an operator have that of its fork server. So a second server, with another
seed, has the runs of an operator that was started later. It is replaced several times, because a small set often has
the same order with two seeds.
"""

import random
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from rolecall.runner.config.watches import Watch
from rolecall.runner.runs.process import ProcessRunner, Runner, Starter
from rolecall.runner.warm.starter import ForkserverStarter, starter_for

OTHER_SERVERS: Final = 12


@dataclass(slots=True)
class Processes:
    """The runner of an operator, and that of another one.

    ``seeds`` are the hash seeds of the servers of the latter, of which ``number`` is the current one.
    """

    runner: Runner
    other: Runner
    starter: Starter
    seeds: Sequence[int]
    number: int = 0

    @property
    def is_renewable(self) -> bool:
        """Whether there is another hash seed left; cold runs always have one."""
        return self.number + 1 < len(self.seeds) and isinstance(self.starter, ForkserverStarter)

    async def renew(self) -> None:
        """Give later runs of the other operator another hash seed, if there is one left."""
        if self.is_renewable and isinstance(self.starter, ForkserverStarter):
            self.number += await self.starter.renew(self.seeds[self.number + 1])


@asynccontextmanager
async def running_processes(
    watches: Iterable[Watch], *, warm: bool, seed: int = 0, number: int = 0
) -> AsyncIterator[Processes]:
    """Yield processes whose hash seeds follow from ``seed``, the other one with the seed of a number."""
    known = tuple(watches)
    first, *others = random.Random(seed).sample(range(1, 1 << 32), 1 + OTHER_SERVERS)  # noqa: S311 - no secret
    number = min(number, len(others) - 1)
    async with (
        starter_for(known, warm=warm, hash_seed=first) as starter,
        starter_for(known, warm=warm, hash_seed=others[number]) as other,
    ):
        yield Processes(ProcessRunner(starter), ProcessRunner(other), other, others, number)
