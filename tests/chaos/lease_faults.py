"""What happens to a replica that works because it holds a Lease: it is killed, stopped, frozen, or cut off too long.

Frozen and cut off it must have ended its runs before another one begins.
"""

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import psutil

from tests.chaos.disturbance import Act, Disturbance
from tests.chaos.replica import Replica
from tests.chaos.scene import LEASE_SECONDS, Scene

_BEAT_BEYOND_THE_LEASE, _SHORT_BEAT = 3.0 * LEASE_SECONDS, 0.2
_SHORTEST_BEYOND, _LONGEST_BEYOND = 4.0, 8.0


@dataclass(frozen=True, slots=True)
class Worker:
    """The replica that works for ``long_run``, and the name under which it holds Leases until it starts again."""

    replica: Replica
    identity: str


@dataclass(frozen=True, slots=True)
class Part:
    """How to find the worker, and how to wait until others have taken over from it. Both raise TimeoutError."""

    name: str
    worker: Callable[[Scene], Awaitable[Worker]]
    until_replaced: Callable[[Scene, Worker], Awaitable[None]]

    def disturbances(self) -> list[Disturbance]:
        """Return all that happens to this replica."""
        acts: dict[str, Act] = {
            "SIGKILL": partial(_send, signal.SIGKILL, self),
            "SIGTERM": partial(_send, signal.SIGTERM, self),
            "SIGKILL of the process above it": partial(_kill_guard, self),
            "SIGSTOP for longer than its Lease": partial(_freeze, self),
            "cut off for longer than its Lease": partial(_cut, self),
        }
        return [
            Disturbance(f"{self.name}: {name}", act, is_counted_from_start=True, may_end_operator=True)
            for name, act in acts.items()
        ]


def long_run(scene: Scene) -> str:
    """Return the name of the heartbeat whose run beats on when another replica may work, unless it is ended."""
    return scene.workload.heartbeats.names[-1]


async def _send(number: signal.Signals, part: Part, scene: Scene, _chance: random.Random) -> None:
    worker = await part.worker(scene)
    # A kubelet asks the process that it has started; the kernel kills the one that is too large.
    process = psutil.Process(worker.replica.pid) if number == signal.SIGTERM else worker.replica.itself
    process.send_signal(number)
    await part.until_replaced(scene, worker)


async def _kill_guard(part: Part, scene: Scene, _chance: random.Random) -> None:
    """Kill the process above the worker, which would end it in time: it must not go on alone."""
    worker = await part.worker(scene)
    await _begin_long_run(scene)
    psutil.Process(worker.replica.pid).kill()
    await _shorten_next_run(scene)
    await part.until_replaced(scene, worker)


async def _freeze(part: Part, scene: Scene, chance: random.Random) -> None:
    """Stop the worker for longer than its Lease, and let it go on."""
    worker = await part.worker(scene)
    await _begin_long_run(scene)
    frozen = worker.replica.itself
    frozen.send_signal(signal.SIGSTOP)
    try:
        await _shorten_next_run(scene)
        await asyncio.sleep(_beyond_the_lease(chance))
    finally:
        with suppress(psutil.NoSuchProcess):  # its guard has killed it, as it must
            frozen.send_signal(signal.SIGCONT)
    await part.until_replaced(scene, worker)


async def _cut(part: Part, scene: Scene, chance: random.Random) -> None:
    """Lose every packet of the worker for longer than its Lease."""
    worker = await part.worker(scene)
    await _begin_long_run(scene)
    worker.replica.relay.cut()
    try:
        await _shorten_next_run(scene)
        await asyncio.sleep(_beyond_the_lease(chance))
    finally:
        worker.replica.relay.mend()
    await part.until_replaced(scene, worker)


async def _begin_long_run(scene: Scene) -> None:
    await scene.workload.heartbeats.begin_long_run(long_run(scene), _BEAT_BEYOND_THE_LEASE)


async def _shorten_next_run(scene: Scene) -> None:
    await scene.workload.heartbeats.resize(long_run(scene), _SHORT_BEAT)


def _beyond_the_lease(chance: random.Random) -> float:
    return LEASE_SECONDS + chance.uniform(_SHORTEST_BEYOND, _LONGEST_BEYOND)
