"""All disturbances, in the order of the table, by groups that can be asked for."""

import asyncio
import random
from collections.abc import Mapping, Sequence

from tests.chaos.content_faults import CONTENT
from tests.chaos.disturbance import Disturbance
from tests.chaos.leader_faults import LEADERS
from tests.chaos.network_faults import NETWORK
from tests.chaos.outages import OUTAGES
from tests.chaos.process_faults import KILLS, STOPS, TERMS
from tests.chaos.scene import Scene
from tests.chaos.shard_faults import SHARING
from tests.chaos.shortages import SHORTAGES


async def do_nothing(_scene: Scene, chance: random.Random) -> None:
    """Let people make their changes, so that the other figures can be compared with this."""
    await asyncio.sleep(chance.uniform(0.0, 1.0))


ALONE: Mapping[str, Sequence[Disturbance]] = {
    "nothing": [Disturbance("nothing, to compare", do_nothing)],
    "kills": KILLS,
    "terms": TERMS,
    "stops": STOPS,
    "outages": OUTAGES,
    "network": NETWORK,
    "shortages": SHORTAGES,
    "content": CONTENT,
}
"""What happens to one operator."""

PAIR: Mapping[str, Sequence[Disturbance]] = {"leaders": LEADERS}
"""What happens to two replicas."""

TRIO: Mapping[str, Sequence[Disturbance]] = {"shards": SHARING}
"""What happens to three replicas that share the work."""

GROUPS: Mapping[str, Sequence[Disturbance]] = {**ALONE, **PAIR, **TRIO}
