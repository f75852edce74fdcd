"""One replica of a group, on Leases that respond immediately, in virtual time."""

import asyncio
import itertools
import random
from typing import cast

import pytest
import structlog

from rolecall.kube.errors import KubeError
from rolecall.runner.election.elector import LeadershipLostError, new_lease
from rolecall.runner.election.shard_member import HeldShards, ShardMember
from rolecall.runner.serving.metrics import OperatorMetrics
from tests.support.virtual_time import in_virtual_time
from tests.unit.runner.election.simulated_leases import DirectClient, LeaseServer
from tests.unit.runner.election.simulated_replicas import GROUP, DriftingClock, election


class Rig:
    """A member, the shards that it works for, and the times at which it must have ended."""

    count = 4
    _numbers = itertools.count(1)

    def __init__(self, server: LeaseServer) -> None:
        self.client = DirectClient(server, 0.001)
        self.working: set[int] = set()
        self.lost: set[int] = set()
        self.ends: list[float] = []
        self.metrics = OperatorMetrics("test")
        can_go_on = asyncio.Event()
        can_go_on.set()
        self.clock = DriftingClock(random.Random(1), can_go_on)  # noqa: S311 - no secret
        own = election(f"replica_{next(self._numbers)}")
        self.member = ShardMember(
            cast("HeldShards", self), self.client, own, self.clock, self.metrics, self.ends.append
        )
        self.running = asyncio.create_task(self.member.run())

    async def stop(self) -> None:
        """Stop as an operator does."""
        self.running.cancel()
        await asyncio.wait({self.running})
        await self.member.release()

    def reports(self, line: str) -> bool:
        """Return whether the metrics contain a line."""
        return line in self.metrics.render().decode().splitlines()

    def take(self, index: int) -> None:
        """Work for a shard."""
        self.working.add(index)

    async def drain(self, index: int, *, is_lost: bool = False) -> None:
        """Stop to work for a shard."""
        self.working.discard(index)
        if is_lost:
            self.lost.add(index)


@pytest.fixture
def server() -> LeaseServer:
    return LeaseServer()


def cause_of(task: asyncio.Task[None]) -> BaseException | None:
    error = task.exception()
    while isinstance(error, ExceptionGroup):
        (error,) = error.exceptions
    return error


@in_virtual_time
async def test_unreachable_member_stops_at_its_deadline_and_writes_nothing_after_its_lease(server: LeaseServer) -> None:
    rig = Rig(server)
    await asyncio.sleep(20)
    assert rig.working == {0, 1, 2, 3}
    assert rig.member.may_write
    rig.client.hangs = True
    cut = asyncio.get_running_loop().time()
    await asyncio.wait({rig.running})
    assert 6 < asyncio.get_running_loop().time() - cut <= 10.1
    assert isinstance(cause_of(rig.running), LeadershipLostError)
    assert not rig.member.is_leading
    assert 3.9 < rig.ends[-1] - rig.clock.monotonic() < 4.1
    assert rig.member.may_write
    await asyncio.sleep(4.1)
    assert not rig.member.may_write


@in_virtual_time
async def test_fenced_member_stops_and_does_not_take_its_lease_back(server: LeaseServer) -> None:
    rig = Rig(server)
    await asyncio.sleep(5)
    (name,) = [name for name in server.leases if "-member-" in name]
    lease = server.get(name)
    server.replace({**lease, "spec": {}})
    await asyncio.wait({rig.running}, timeout=3)
    assert "it is held by '' now" in str(cause_of(rig.running))
    assert server.holder(name) == ""


@in_virtual_time
async def test_stop_frees_all_shards_with_one_write_and_the_last_one_the_group(server: LeaseServer) -> None:
    first, second = Rig(server), Rig(server)
    await asyncio.sleep(60)
    assert (len(first.working), len(second.working)) == (2, 2)
    assert first.reports("ansible_operator_shard_members 2.0")
    assert first.reports('leader_election_master_status{name="lock"} 1.0')
    before = server.writes
    await first.stop()
    assert server.writes == before + 1
    assert server.holder("lock") == "shards/4"
    await asyncio.sleep(3)
    assert second.working == {0, 1, 2, 3}
    await second.stop()
    assert server.holder("lock") == ""


@in_virtual_time
async def test_each_member_and_the_group_take_one_write_every_two_seconds(server: LeaseServer) -> None:
    rigs = [Rig(server) for _ in range(3)]
    await asyncio.sleep(60)
    before = server.writes
    await asyncio.sleep(60)
    assert 4 * 28 < server.writes - before < 4 * 31
    assert sorted(len(rig.working) for rig in rigs) == [1, 1, 2]


@in_virtual_time
async def test_shard_that_a_person_gives_to_another_member_is_cancelled(server: LeaseServer) -> None:
    rig = Rig(server)
    await asyncio.sleep(5)
    lease = server.get("lock-shard-2-of-4")
    server.replace({**lease, "spec": {**lease["spec"], "holderIdentity": "stranger_9"}})
    await asyncio.sleep(3)
    assert rig.lost == {2}
    await asyncio.sleep(15)
    assert rig.working == {0, 1, 2, 3}


@pytest.mark.parametrize("verb", ["list", "create", "delete"])
@in_virtual_time
async def test_missing_permission_is_logged_once_and_takes_effect_when_granted(server: LeaseServer, verb: str) -> None:
    gone = Rig(server)
    await asyncio.sleep(5)
    gone.running.cancel()
    server.replace(server.get("lock") | {"spec": {}})
    with structlog.testing.capture_logs() as lines:
        rig = Rig(server)
        rig.client.denied_verbs = {verb}
        await asyncio.sleep(60)
    refused = [line for line in lines if "Failed to read or write the Lease" in line["event"]]
    assert [f"cannot {verb} leases" in line["error"] for line in refused] == [True]
    assert rig.working == ({0, 1, 2, 3} if verb == "delete" else set())
    rig.client.denied_verbs.clear()
    await asyncio.sleep(20)
    assert rig.working == {0, 1, 2, 3}


@in_virtual_time
async def test_waiting_member_logs_holder_once(server: LeaseServer) -> None:
    spec = {"holderIdentity": "shards/8", "leaseDurationSeconds": 30}
    server.create(new_lease(GROUP) | {"spec": spec})
    with structlog.testing.capture_logs() as lines:
        rig = Rig(server)
        await asyncio.sleep(20)
    waiting = [line for line in lines if "different shard configuration" in line["event"]]
    assert [(line["holder"], line["expected"]) for line in waiting] == [("shards/8", "shards/4")]
    assert rig.working == set()
    await asyncio.sleep(15)
    assert rig.working == {0, 1, 2, 3}


@in_virtual_time
async def test_errors_of_the_api_server_are_retried_until_the_deadline(server: LeaseServer) -> None:
    rig = Rig(server)
    rig.client.denied_verbs = {"get", "list", "create", "update", "delete"}
    await asyncio.sleep(60)
    rig.client.denied_verbs.clear()
    await asyncio.sleep(5)
    assert rig.working == {0, 1, 2, 3}
    rig.client.denied_verbs = {"update"}
    await asyncio.wait({rig.running})
    assert isinstance(cause_of(rig.running), KubeError)
