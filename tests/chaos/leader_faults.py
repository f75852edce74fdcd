"""Two replicas of which one leads: the leader is killed, stopped, frozen, or cut off for longer than its Lease lasts.

Frozen and cut off it must have ended its runs before the other one begins.
"""

import asyncio
import random
import signal
from contextlib import suppress
from functools import partial

import psutil

from rolecall.controller.leader_election import LEASE
from tests.chaos.accepted import until
from tests.chaos.disturbance import Act, Disturbance
from tests.chaos.replica import Replica
from tests.chaos.scene import LEASE_NAME, LEASE_SECONDS, Scene

_CHANGE_SECONDS = 60.0
_BEAT_BEYOND_THE_LEASE, _SHORT_BEAT = 3.0 * LEASE_SECONDS, 0.2
_SHORTEST_BEYOND, _LONGEST_BEYOND = 4.0, 8.0


async def signal_leader(number: signal.Signals, scene: Scene, _chance: random.Random) -> None:
    """Send a signal that ends it to the leader."""
    leader = await leader_and_follower(scene)
    # A kubelet asks the process that it has started; the kernel kills the one that is too large.
    process = psutil.Process(leader.pid) if number == signal.SIGTERM else leader.itself
    process.send_signal(number)
    await _another_leads(scene, leader)


async def kill_guard(scene: Scene, _chance: random.Random) -> None:
    """Kill the process above the leader, which would end it in time: it must not go on alone."""
    leader = await leader_and_follower(scene)
    await _begin_long_run(scene)
    psutil.Process(leader.pid).kill()
    await _shorten_next_run(scene)
    await _another_leads(scene, leader)


async def freeze_leader(scene: Scene, chance: random.Random) -> None:
    """Stop the leader for longer than its Lease, and let it go on."""
    leader = await leader_and_follower(scene)
    await _begin_long_run(scene)
    frozen = leader.itself
    frozen.send_signal(signal.SIGSTOP)
    try:
        await _shorten_next_run(scene)
        await asyncio.sleep(_beyond_the_lease(chance))
    finally:
        with suppress(psutil.NoSuchProcess):  # its guard has killed it, as it must
            frozen.send_signal(signal.SIGCONT)
    await _another_leads(scene, leader)


async def cut_leader(scene: Scene, chance: random.Random) -> None:
    """Lose every packet of the leader for longer than its Lease."""
    leader = await leader_and_follower(scene)
    await _begin_long_run(scene)
    leader.relay.cut()
    try:
        await _shorten_next_run(scene)
        await asyncio.sleep(_beyond_the_lease(chance))
    finally:
        leader.relay.mend()
    await _another_leads(scene, leader)


async def leader_and_follower(scene: Scene) -> Replica:
    """Wait until one replica leads and another one waits; return the one that leads. Raises TimeoutError."""
    found: list[Replica] = []

    async def look() -> bool:
        holder = await holder_of_lease(scene)
        found[:] = [each for each in scene.replicas if holder and identity_of(each) == holder]
        return bool(found) and all(map(identity_of, scene.replicas))

    await until(look, _CHANGE_SECONDS, "one replica leads, and the other one waits")
    return found[0]


async def holder_of_lease(scene: Scene) -> str:
    """Return who holds the Lease; empty if nobody does."""
    lease = await scene.workload.world.find(LEASE, LEASE_NAME) or {}
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def identity_of(replica: Replica) -> str:
    """Return the name under which a replica takes part; empty if it does not yet."""
    waiting = replica.messages("Waiting to become the leader")
    return str(waiting[-1]["identity"]) if waiting else ""


async def _begin_long_run(scene: Scene) -> None:
    """Let a run begin that beats on when another replica may lead, unless it is ended."""
    beats = scene.workload.heartbeats
    await beats.begin_long_run(beats.names[-1], _BEAT_BEYOND_THE_LEASE)


async def _shorten_next_run(scene: Scene) -> None:
    beats = scene.workload.heartbeats
    await beats.resize(beats.names[-1], _SHORT_BEAT)


async def _another_leads(scene: Scene, former: Replica) -> None:
    async def look() -> bool:
        others = [each for each in scene.replicas if each is not former]
        return await holder_of_lease(scene) in filter(None, map(identity_of, others))

    await until(look, _CHANGE_SECONDS, "the other replica leads")


def _beyond_the_lease(chance: random.Random) -> float:
    return LEASE_SECONDS + chance.uniform(_SHORTEST_BEYOND, _LONGEST_BEYOND)


def _leader_fault(name: str, act: Act) -> Disturbance:
    return Disturbance(f"leader: {name}", act, is_counted_from_start=True, may_end_operator=True)


LEADERS = [
    _leader_fault("SIGKILL", partial(signal_leader, signal.SIGKILL)),
    _leader_fault("SIGTERM", partial(signal_leader, signal.SIGTERM)),
    _leader_fault("SIGKILL of the process above it", kill_guard),
    _leader_fault("SIGSTOP for longer than its Lease", freeze_leader),
    _leader_fault("cut off for longer than its Lease", cut_leader),
]
