"""Signals to the processes of an operator while they work: SIGKILL, SIGTERM, and SIGSTOP with SIGCONT after a while."""

import asyncio
import random
import signal
from functools import partial

import psutil

from tests.chaos.disturbance import Disturbance
from tests.chaos.scene import Scene

PROCESSES = ("operator", "fork server", "run", "play", "module")
_SHORTEST_STOP, _LONGEST_STOP = 0.5, 3.0


async def send(name: str, number: signal.Signals, scene: Scene, _chance: random.Random) -> None:
    """Send a signal that ends a process to one that is at work."""
    await _signalled(name, number, scene)


async def stop_for_a_while(name: str, scene: Scene, chance: random.Random) -> None:
    """Stop a process that is at work, and let it go on after a moment."""
    seconds = chance.uniform(_SHORTEST_STOP, _LONGEST_STOP)
    process = await _signalled(name, signal.SIGSTOP, scene)
    try:
        await asyncio.sleep(seconds)
    finally:
        _go_on(process)


async def stop_for_good(name: str, scene: Scene, _chance: random.Random) -> None:
    """Stop a process that is at work, and leave it so."""
    await _signalled(name, signal.SIGSTOP, scene)


async def _signalled(name: str, number: signal.Signals, scene: Scene) -> psutil.Process:
    while True:
        process = await scene.victim(name)
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue  # its work was done before the signal came
        return process


def _go_on(process: psutil.Process) -> None:
    try:
        process.send_signal(signal.SIGCONT)
    except psutil.NoSuchProcess:
        return  # somebody who waited for it in vain has killed it


def _ending(number: signal.Signals) -> list[Disturbance]:
    return [
        Disturbance(f"{name}: {number.name}", partial(send, name, number), may_end_operator=name == "operator")
        for name in PROCESSES
    ]


KILLS = _ending(signal.SIGKILL)
TERMS = _ending(signal.SIGTERM)
STOPS = [
    *(Disturbance(f"{name}: SIGSTOP for a while", partial(stop_for_a_while, name)) for name in PROCESSES),
    Disturbance("fork server: SIGSTOP for good", partial(stop_for_good, "fork server")),
]
