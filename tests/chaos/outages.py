"""Outages of the control plane: its API server or etcd killed and started again, or frozen for a while."""

import asyncio
import os
import random
import signal
from functools import partial

from tests.chaos.disturbance import Disturbance
from tests.chaos.scene import Scene

API_SERVER, ETCD = "kube-apiserver", "etcd"
_SHORTEST, _LONGEST = 1.0, 6.0


async def kill(component: str, scene: Scene, chance: random.Random) -> None:
    """Kill a component; start it again after a while."""
    seconds = chance.uniform(_SHORTEST, _LONGEST)
    os.kill(_pid_of(scene, component), signal.SIGKILL)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(scene.plane.start_component, component)


async def freeze(component: str, scene: Scene, chance: random.Random) -> None:
    """Stop a component, which keeps its connections, and let it go on after a while."""
    pid, seconds = _pid_of(scene, component), chance.uniform(_SHORTEST, _LONGEST)
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
    Disturbance("API server: SIGKILL, back after a while", partial(kill, API_SERVER)),
    Disturbance("API server: frozen", partial(freeze, API_SERVER)),
    Disturbance("etcd: SIGKILL, back after a while", partial(kill, ETCD)),
    Disturbance("etcd: frozen", partial(freeze, ETCD)),
]
