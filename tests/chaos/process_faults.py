"""Signals to busy processes of an operator: SIGKILL, SIGTERM, and SIGSTOP, with SIGCONT after a while."""

import asyncio
import random
import signal
from functools import partial

import psutil

from tests.chaos.fault import Fault
from tests.chaos.scene import Scene

PROCESSES = ("operator", "fork server", "run", "play", "module")
_SHORTEST_STOP, _LONGEST_STOP = 0.5, 3.0


async def send(name: str, number: signal.Signals, scene: Scene, _chance: random.Random) -> None:
    """Send a terminating signal to a busy process."""
    await _signalled(name, number, scene)


async def stop_for_a_while(name: str, scene: Scene, chance: random.Random) -> None:
    """Stop a busy process and continue it after a moment."""
    seconds = chance.uniform(_SHORTEST_STOP, _LONGEST_STOP)
    process = await _signalled(name, signal.SIGSTOP, scene)
    try:
        await asyncio.sleep(seconds)
    finally:
        _continue(process)


async def stop_for_good(name: str, scene: Scene, _chance: random.Random) -> None:
    """Stop a busy process permanently."""
    await _signalled(name, signal.SIGSTOP, scene)


async def _signalled(name: str, number: signal.Signals, scene: Scene) -> psutil.Process:
    while True:
        process = await scene.victim(name)
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue  # it had exited before the signal arrived
        return process


def _continue(process: psutil.Process) -> None:
    try:
        process.send_signal(signal.SIGCONT)
    except psutil.NoSuchProcess:
        return  # the operator has killed it after a timeout


def _terminating(number: signal.Signals) -> list[Fault]:
    return [
        Fault(f"{name}: {number.name}", partial(send, name, number), may_end_operator=name == "operator")
        for name in PROCESSES
    ]


KILLS = _terminating(signal.SIGKILL)
TERMS = _terminating(signal.SIGTERM)
STOPS = [
    *(Fault(f"{name}: SIGSTOP for a while", partial(stop_for_a_while, name)) for name in PROCESSES),
    Fault("fork server: SIGSTOP for good", partial(stop_for_good, "fork server")),
]
