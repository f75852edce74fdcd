"""Faults of a replica that holds a Lease, as leader of two or shard holder among three.

A frozen or disconnected replica must stop its runs before another replica's run of the object starts.
"""

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import psutil

from rolecall.runner.election.elector import LEASE
from rolecall.runner.election.membership import shard_of
from tests.chaos.fault import Act, Fault
from tests.chaos.heartbeats import HEARTBEAT
from tests.chaos.replica import Replica
from tests.chaos.requests import until
from tests.chaos.scene import LEASE_NAME, LEASE_SECONDS, SHARDS, Scene

_BEAT_BEYOND_THE_LEASE, _SHORT_BEAT = 3.0 * LEASE_SECONDS, 0.2
_MIN_BEYOND, _MAX_BEYOND = 4.0, 8.0
_LEADER_CHANGE_SECONDS, _SHARD_CHANGE_SECONDS = 60.0, 90.0


@dataclass(frozen=True, slots=True)
class Worker:
    """The replica responsible for ``long_run``, and its Lease identity until its next start."""

    replica: Replica
    identity: str


@dataclass(frozen=True, slots=True)
class Part:
    """How to find the worker, and how to wait until others have replaced it. Both raise TimeoutError."""

    name: str
    worker: Callable[[Scene], Awaitable[Worker]]
    until_replaced: Callable[[Scene, Worker], Awaitable[None]]

    def faults(self) -> list[Fault]:
        """Return all faults of this replica."""
        acts: dict[str, Act] = {
            "SIGKILL": partial(_send, signal.SIGKILL, self),
            "SIGTERM": partial(_send, signal.SIGTERM, self),
            "SIGKILL of its guard": partial(_kill_guard, self),
            "SIGSTOP for longer than its Lease": partial(_freeze, self),
            "cut off for longer than its Lease": partial(_cut, self),
        }
        return [
            Fault(f"{self.name}: {name}", act, is_counted_from_start=True, may_end_operator=True)
            for name, act in acts.items()
        ]


def long_run(scene: Scene) -> str:
    """Return the heartbeat whose run outlasts the Lease unless the operator stops it."""
    return scene.workload.heartbeats.names[-1]


async def _send(number: signal.Signals, part: Part, scene: Scene, _chance: random.Random) -> None:
    worker = await part.worker(scene)
    # A kubelet signals the process that it has started; the kernel kills the one that uses too much memory.
    process = psutil.Process(worker.replica.pid) if number == signal.SIGTERM else worker.replica.itself
    process.send_signal(number)
    await part.until_replaced(scene, worker)


async def _kill_guard(part: Part, scene: Scene, _chance: random.Random) -> None:
    """Kill the guard of the worker, which would stop it in time: the worker must not continue without it."""
    worker = await part.worker(scene)
    await _start_long_run(scene)
    psutil.Process(worker.replica.pid).kill()
    await _shorten_next_run(scene)
    await part.until_replaced(scene, worker)


async def _freeze(part: Part, scene: Scene, chance: random.Random) -> None:
    """Stop the worker for longer than its Lease, then continue it."""
    worker = await part.worker(scene)
    await _start_long_run(scene)
    frozen = worker.replica.itself
    frozen.send_signal(signal.SIGSTOP)
    try:
        await _shorten_next_run(scene)
        await asyncio.sleep(_beyond_the_lease(chance))
    finally:
        with suppress(psutil.NoSuchProcess):  # its guard has killed it, as expected
            frozen.send_signal(signal.SIGCONT)
    await part.until_replaced(scene, worker)


async def _cut(part: Part, scene: Scene, chance: random.Random) -> None:
    """Drop every packet of the worker for longer than its Lease."""
    worker = await part.worker(scene)
    await _start_long_run(scene)
    worker.replica.relay.cut()
    try:
        await _shorten_next_run(scene)
        await asyncio.sleep(_beyond_the_lease(chance))
    finally:
        worker.replica.relay.restore()
    await part.until_replaced(scene, worker)


async def _start_long_run(scene: Scene) -> None:
    await scene.workload.heartbeats.start_long_run(long_run(scene), _BEAT_BEYOND_THE_LEASE)


async def _shorten_next_run(scene: Scene) -> None:
    await scene.workload.heartbeats.resize(long_run(scene), _SHORT_BEAT)


def _beyond_the_lease(chance: random.Random) -> float:
    return LEASE_SECONDS + chance.uniform(_MIN_BEYOND, _MAX_BEYOND)


async def leader_and_follower(scene: Scene) -> Worker:
    """Wait until one replica leads and the other waits; return the leader. Raises TimeoutError."""
    found: list[Replica] = []

    async def look() -> bool:
        holder = await holder_of_lease(scene)
        found[:] = [each for each in scene.replicas if holder and _leader_identity_of(each) == holder]
        return bool(found) and all(map(_leader_identity_of, scene.replicas))

    await until(look, _LEADER_CHANGE_SECONDS, "one replica leads and the other waits")
    return Worker(found[0], _leader_identity_of(found[0]))


async def holder_of_lease(scene: Scene) -> str:
    """Return the holder of the Lease; empty if there is none."""
    lease = await scene.workload.world.find(LEASE, LEASE_NAME) or {}
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def _leader_identity_of(replica: Replica) -> str:
    """Return the identity of a replica; empty before it takes part."""
    waiting = replica.messages("Waiting to become the leader")
    return str(waiting[-1]["identity"]) if waiting else ""


async def _another_leads(scene: Scene, former: Worker) -> None:
    async def look() -> bool:
        others = [each for each in scene.replicas if each is not former.replica]
        return await holder_of_lease(scene) in filter(None, map(_leader_identity_of, others))

    await until(look, _LEADER_CHANGE_SECONDS, "the other replica leads")


LEADERS = Part("leader", leader_and_follower, _another_leads).faults()


async def holders_of_shards(scene: Scene) -> list[str]:
    """Return the holder of each shard by its Lease; empty for a free shard."""
    world = scene.workload.world
    leases = {lease["metadata"]["name"]: lease.get("spec") or {} for lease in await world.objects(LEASE)}
    specs = [leases.get(f"{LEASE_NAME}-shard-{index}-of-{SHARDS}", {}) for index in range(SHARDS)]
    return [str(spec.get("holderIdentity") or "") for spec in specs]


async def worker_of_long_run(scene: Scene) -> Worker:
    """Wait until all replicas hold equally many shards; return the one with the long run. Raises TimeoutError."""
    found: list[Replica] = []

    async def look() -> bool:
        holders, names = await holders_of_shards(scene), [_shard_identity_of(each) for each in scene.replicas]
        key = scene.workload.world.key(long_run(scene))
        holder = holders[shard_of(HEARTBEAT.group, HEARTBEAT.kind, key, SHARDS)]
        found[:] = [each for each, name in zip(scene.replicas, names, strict=True) if name == holder]
        return bool(found) and {holders.count(name) for name in names} == {SHARDS // len(names)}

    await until(look, _SHARD_CHANGE_SECONDS, "all replicas hold equally many shards")
    return Worker(found[0], _shard_identity_of(found[0]))


async def _others_have_its_shards(scene: Scene, former: Worker) -> None:
    async def look() -> bool:
        holders = set(await holders_of_shards(scene))
        return "" not in holders and former.identity not in holders

    await until(look, _SHARD_CHANGE_SECONDS, "other replicas hold its shards")


def _shard_identity_of(replica: Replica) -> str:
    """Return the identity of a replica; empty before it takes part."""
    sharing = replica.messages("Sharing the work")
    return str(sharing[-1]["identity"]) if sharing else ""


SHARING = Part("shards", worker_of_long_run, _others_have_its_shards).faults()
