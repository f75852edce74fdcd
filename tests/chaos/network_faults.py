"""A bad network, and a bad API server at its end: slow, refusing, cut, or with watches that are dead without a word."""

import asyncio
import random
from functools import partial

from tests.chaos.disturbance import Disturbance
from tests.chaos.scene import Scene

_SHORTEST, _LONGEST = 2.0, 6.0
_SHORTEST_DELAY, _LONGEST_DELAY = 0.1, 1.0


async def slow_down(scene: Scene, chance: random.Random) -> None:
    """Hold every request and every piece of an answer back for a moment."""
    relay = scene.replica.relay
    relay.delay_seconds = chance.uniform(_SHORTEST_DELAY, _LONGEST_DELAY)
    try:
        await asyncio.sleep(chance.uniform(_SHORTEST, _LONGEST))
    finally:
        relay.delay_seconds = 0.0


async def refuse(status: int, scene: Scene, chance: random.Random) -> None:
    """Answer every new request with an error; watches go on."""
    relay = scene.replica.relay
    before, relay.refusal = relay.refused, status
    try:
        async with scene.busy():
            await asyncio.sleep(chance.uniform(_SHORTEST, _LONGEST))
            assert relay.refused > before, "nothing was asked for"
    finally:
        relay.refusal = 0


async def cut(scene: Scene, chance: random.Random) -> None:
    """Lose every packet for a while."""
    relay = scene.replica.relay
    relay.cut()
    try:
        await asyncio.sleep(chance.uniform(_SHORTEST, _LONGEST))
    finally:
        relay.mend()


async def kill_watches(scene: Scene, _chance: random.Random) -> None:
    """Lose every packet of all connections that carry a watch, for ever; others work."""
    assert scene.replica.relay.kill_watches() > 0, "the operator has no watch"


NETWORK = [
    Disturbance("API server: slow", slow_down),
    *(Disturbance(f"API server: answers {status}", partial(refuse, status)) for status in (429, 500, 503)),
    Disturbance("network: cut for a while", cut),
    Disturbance("network: watches silently dead", kill_watches, is_counted_from_start=True),
]
