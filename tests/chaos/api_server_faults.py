"""Faults of the control plane (killed, frozen, slow, rejecting requests) and of the network (cut off, dead watches)."""

import asyncio
import os
import random
import signal
from functools import partial

from tests.chaos.fault import Fault
from tests.chaos.scene import Scene

API_SERVER, ETCD = "kube-apiserver", "etcd"
_MIN_SECONDS, _MAX_SECONDS = 2.0, 6.0
_MIN_OUTAGE, _MAX_OUTAGE = 1.0, 6.0
_MIN_DELAY, _MAX_DELAY = 0.1, 1.0


async def slow_down(scene: Scene, chance: random.Random) -> None:
    """Delay every request and every part of a response."""
    relay = scene.replica.relay
    relay.delay_seconds = chance.uniform(_MIN_DELAY, _MAX_DELAY)
    try:
        await asyncio.sleep(chance.uniform(_MIN_SECONDS, _MAX_SECONDS))
    finally:
        relay.delay_seconds = 0.0


async def reject(status: int, scene: Scene, chance: random.Random) -> None:
    """Reject every new request with an error; watches continue."""
    relay = scene.replica.relay
    before, relay.rejection_status = relay.rejected, status
    try:
        async with scene.busy():
            await asyncio.sleep(chance.uniform(_MIN_SECONDS, _MAX_SECONDS))
            assert relay.rejected > before, "the operator sent no request"
    finally:
        relay.rejection_status = 0


async def cut(scene: Scene, chance: random.Random) -> None:
    """Drop every packet for a while."""
    relay = scene.replica.relay
    relay.cut()
    try:
        await asyncio.sleep(chance.uniform(_MIN_SECONDS, _MAX_SECONDS))
    finally:
        relay.restore()


async def kill_watches(scene: Scene, _chance: random.Random) -> None:
    """Permanently drop every packet of all connections with a watch; others work."""
    assert scene.replica.relay.kill_watches() > 0, "the operator has no watch"


NETWORK = [
    Fault("API server: slow", slow_down),
    *(Fault(f"API server: responds with {status}", partial(reject, status)) for status in (429, 500, 503)),
    Fault("network: cut for a while", cut),
    Fault("network: watches silently dead", kill_watches, is_counted_from_start=True),
]


async def kill(component: str, scene: Scene, chance: random.Random) -> None:
    """Kill a component; start it again after a while."""
    seconds = chance.uniform(_MIN_OUTAGE, _MAX_OUTAGE)
    os.kill(_pid_of(scene, component), signal.SIGKILL)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(scene.plane.start_component, component)


async def freeze(component: str, scene: Scene, chance: random.Random) -> None:
    """Stop a component, which keeps its connections, and continue it after a while."""
    pid, seconds = _pid_of(scene, component), chance.uniform(_MIN_OUTAGE, _MAX_OUTAGE)
    os.kill(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)


def _pid_of(scene: Scene, component: str) -> int:
    state = scene.plane.state()
    assert state is not None
    return state.processes[component].pid


OUTAGES = [
    Fault("API server: SIGKILL, back after a while", partial(kill, API_SERVER)),
    Fault("API server: frozen", partial(freeze, API_SERVER)),
    Fault("etcd: SIGKILL, back after a while", partial(kill, ETCD)),
    Fault("etcd: frozen", partial(freeze, ETCD)),
]
