"""Three replicas that share the work, and what happens to one of them: the one that has the long run."""

from rolecall.runner.election.lease import LEASE
from rolecall.runner.election.membership import shard_of
from tests.chaos.accepted import until
from tests.chaos.heartbeats import HEARTBEAT
from tests.chaos.lease_faults import Part, Worker, long_run
from tests.chaos.replica import Replica
from tests.chaos.scene import LEASE_NAME, SHARDS, Scene

_CHANGE_SECONDS = 90.0


async def holders_of_shards(scene: Scene) -> list[str]:
    """Return who holds each shard, by the Leases of shards alone; empty for one that nobody holds."""
    world = scene.workload.world
    leases = {lease["metadata"]["name"]: lease.get("spec") or {} for lease in await world.objects(LEASE)}
    specs = [leases.get(f"{LEASE_NAME}-shard-{index}-of-{SHARDS}", {}) for index in range(SHARDS)]
    return [str(spec.get("holderIdentity") or "") for spec in specs]


async def worker_of_long_run(scene: Scene) -> Worker:
    """Wait until all replicas hold as many shards; return the one with that of the long run. Raises TimeoutError."""
    found: list[Replica] = []

    async def look() -> bool:
        holders, names = await holders_of_shards(scene), [_identity_of(each) for each in scene.replicas]
        key = scene.workload.world.key(long_run(scene))
        holder = holders[shard_of(HEARTBEAT.group, HEARTBEAT.kind, key, SHARDS)]
        found[:] = [each for each, name in zip(scene.replicas, names, strict=True) if name == holder]
        return bool(found) and {holders.count(name) for name in names} == {SHARDS // len(names)}

    await until(look, _CHANGE_SECONDS, "all replicas hold as many shards")
    return Worker(found[0], _identity_of(found[0]))


async def _others_have_its_shards(scene: Scene, former: Worker) -> None:
    async def look() -> bool:
        holders = set(await holders_of_shards(scene))
        return "" not in holders and former.identity not in holders

    await until(look, _CHANGE_SECONDS, "others have its shards")


def _identity_of(replica: Replica) -> str:
    """Return the name under which a replica takes part; empty if it does not yet."""
    sharing = replica.messages("Sharing the work")
    return str(sharing[-1]["identity"]) if sharing else ""


SHARING = Part("shards", worker_of_long_run, _others_have_its_shards).disturbances()
