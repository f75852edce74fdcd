"""Two replicas of which one leads, and what happens to the leader."""

from rolecall.runner.election.lease import LEASE
from tests.chaos.accepted import until
from tests.chaos.lease_faults import Part, Worker
from tests.chaos.replica import Replica
from tests.chaos.scene import LEASE_NAME, Scene

_CHANGE_SECONDS = 60.0


async def leader_and_follower(scene: Scene) -> Worker:
    """Wait until one replica leads and another one waits; return the one that leads. Raises TimeoutError."""
    found: list[Replica] = []

    async def look() -> bool:
        holder = await holder_of_lease(scene)
        found[:] = [each for each in scene.replicas if holder and identity_of(each) == holder]
        return bool(found) and all(map(identity_of, scene.replicas))

    await until(look, _CHANGE_SECONDS, "one replica leads, and the other one waits")
    return Worker(found[0], identity_of(found[0]))


async def holder_of_lease(scene: Scene) -> str:
    """Return who holds the Lease; empty if nobody does."""
    lease = await scene.workload.world.find(LEASE, LEASE_NAME) or {}
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def identity_of(replica: Replica) -> str:
    """Return the name under which a replica takes part; empty if it does not yet."""
    waiting = replica.messages("Waiting to become the leader")
    return str(waiting[-1]["identity"]) if waiting else ""


async def _another_leads(scene: Scene, former: Worker) -> None:
    async def look() -> bool:
        others = [each for each in scene.replicas if each is not former.replica]
        return await holder_of_lease(scene) in filter(None, map(identity_of, others))

    await until(look, _CHANGE_SECONDS, "the other replica leads")


LEADERS = Part("leader", leader_and_follower, _another_leads).disturbances()
