"""One replica among others, on Leases that answer at once, in virtual time."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import suppress
from typing import Any

import pytest
import structlog

from rolecall.kube.errors import ApiError, KubeError
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.election.elector import Election, LeadershipLostError
from rolecall.runner.election.shard_member import ShardMember
from tests.unit.runner.election.simulated_leases import LeaseServer
from tests.unit.runner.election.simulated_replicas import DriftingClock
from tests.unit.runner.election.virtual_time import VirtualTimeLoop

GROUP = ObjectKey("operators", "lock")


class Client:
    """Reaches the Leases at once, hangs, or may not do everything."""

    def __init__(self, server: LeaseServer) -> None:
        self.server = server
        self.hangs = False
        self.refuses: set[str] = set()

    async def _enter(self, verb: str) -> None:
        await asyncio.sleep(1000 if self.hangs else 0.001)
        if verb in self.refuses:
            raise ApiError(403, "Forbidden", f"cannot {verb} leases")

    async def get(self, _gvk: GVK, key: ObjectKey) -> RawObject:
        """Return a Lease."""
        await self._enter("get")
        return self.server.get(key.name)

    async def create(self, obj: RawObject) -> RawObject:
        """Make a Lease."""
        await self._enter("create")
        return self.server.create(obj)

    async def replace(self, obj: RawObject) -> RawObject:
        """Replace a Lease."""
        await self._enter("update")
        return self.server.replace(obj)

    async def delete(self, _gvk: GVK, key: ObjectKey) -> None:
        """Delete a Lease."""
        await self._enter("delete")
        self.server.delete(key.name)

    async def list_pages(self, _gvk: GVK, _namespace: str | None = None) -> AsyncIterator[tuple[list[RawObject], str]]:
        """Yield all Leases."""
        await self._enter("list")
        yield list(self.server.leases.values()), ""


class Rig:
    """A member that says what it works for, and until when."""

    count = 4
    _numbers = itertools.count(1)

    def __init__(self, server: LeaseServer) -> None:
        self.client = Client(server)
        self.working: set[int] = set()
        self.cancelled: set[int] = set()
        self.ends: list[float] = []
        self.members = 0
        can_go_on = asyncio.Event()
        can_go_on.set()
        self.clock = DriftingClock(random.Random(1), can_go_on)  # noqa: S311 - no secret
        election = Election(GROUP, f"replica_{next(self._numbers)}")
        self.member = ShardMember(self, self.client, election, self.clock, self, self.ends.append)
        self.running = asyncio.create_task(self.member.run())

    async def stop(self) -> None:
        """Stop as an operator does."""
        self.running.cancel()
        await asyncio.wait({self.running})
        await self.member.release()

    def take(self, index: int) -> None:
        """Work for a shard."""
        self.working.add(index)

    async def drain(self, index: int) -> None:
        """Work no more for a shard."""
        self.working.discard(index)

    async def cancel(self, index: int) -> None:
        """Do the same in a hurry."""
        self.working.discard(index)
        self.cancelled.add(index)

    def set_leading(self, name: str, *, leading: bool) -> None:
        """Check the name."""
        assert name == GROUP.name
        del leading

    def count_slow_renewal(self, name: str) -> None:
        """Check the name."""
        assert name == GROUP.name

    def set_shards(self, held: Collection[int], members: int) -> None:
        """Note it."""
        assert set(held) <= set(range(self.count))
        self.members = members


Story = Callable[[LeaseServer], Coroutine[Any, Any, None]]


def play(story: Story) -> None:
    """Play a story in virtual time, and end what it left running."""
    loop = VirtualTimeLoop()
    try:
        loop.run_until_complete(story(LeaseServer()))
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(asyncio.sleep(0.1))
        loop.close()


def cause_of(task: asyncio.Task[None]) -> BaseException | None:
    error = task.exception()
    while isinstance(error, ExceptionGroup):
        (error,) = error.exceptions
    return error


def test_a_member_that_reaches_nothing_is_lost_at_its_deadline_and_writes_nothing_until_its_lease_ends() -> None:
    async def story(server: LeaseServer) -> None:
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

    play(story)


def test_a_member_that_was_fenced_ends_and_does_not_come_back() -> None:
    async def story(server: LeaseServer) -> None:
        rig = Rig(server)
        await asyncio.sleep(5)
        (name,) = [name for name in server.leases if "-member-" in name]
        lease = server.get(name)
        server.replace({**lease, "spec": {}})
        await asyncio.wait({rig.running}, timeout=3)
        assert "it is held by '' now" in str(cause_of(rig.running))
        assert server.holder(name) == ""

    play(story)


def test_a_normal_stop_frees_everything_with_one_write_and_the_group_at_last() -> None:
    async def story(server: LeaseServer) -> None:
        first, second = Rig(server), Rig(server)
        await asyncio.sleep(60)
        assert (len(first.working), len(second.working), first.members) == (2, 2, 2)
        before = server.writes
        await first.stop()
        assert server.writes == before + 1
        assert server.holder("lock") == "shards/4"
        await asyncio.sleep(3)
        assert second.working == {0, 1, 2, 3}
        await second.stop()
        assert server.holder("lock") == ""

    play(story)


def test_the_cost_is_one_write_for_each_member_and_one_for_all_every_two_seconds() -> None:
    async def story(server: LeaseServer) -> None:
        rigs = [Rig(server) for _ in range(3)]
        await asyncio.sleep(60)
        before = server.writes
        await asyncio.sleep(60)
        assert 4 * 28 < server.writes - before < 4 * 31
        assert sorted(len(rig.working) for rig in rigs) == [1, 1, 2]

    play(story)


def test_a_shard_that_a_person_gives_to_another_member_is_abandoned() -> None:
    async def story(server: LeaseServer) -> None:
        rig = Rig(server)
        await asyncio.sleep(5)
        lease = server.get("lock-shard-2-of-4")
        server.replace({**lease, "spec": {**lease["spec"], "holderIdentity": "stranger_9"}})
        await asyncio.sleep(3)
        assert rig.cancelled == {2}
        await asyncio.sleep(15)
        assert rig.working == {0, 1, 2, 3}

    play(story)


@pytest.mark.parametrize("verb", ["list", "create", "delete"])
def test_a_missing_permission_is_one_line_and_nothing_is_lost_by_it(verb: str) -> None:
    async def story(server: LeaseServer) -> None:
        gone = Rig(server)
        await asyncio.sleep(5)
        gone.running.cancel()
        server.replace(server.get("lock") | {"spec": {}})
        with structlog.testing.capture_logs() as lines:
            rig = Rig(server)
            rig.client.refuses = {verb}
            await asyncio.sleep(60)
        refused = [line for line in lines if "Could not read or write the Lease" in line["event"]]
        assert [f"cannot {verb} leases" in line["error"] for line in refused] == [True]
        assert rig.working == ({0, 1, 2, 3} if verb == "delete" else set())
        rig.client.refuses.clear()
        await asyncio.sleep(20)
        assert rig.working == {0, 1, 2, 3}

    play(story)


def test_who_waits_for_others_says_for_whom_once() -> None:
    async def story(server: LeaseServer) -> None:
        metadata = {"name": "lock", "namespace": GROUP.namespace}
        spec = {"holderIdentity": "shards/8", "leaseDurationSeconds": 30}
        server.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec})
        with structlog.testing.capture_logs() as lines:
            rig = Rig(server)
            await asyncio.sleep(20)
        waiting = [line for line in lines if "does not share" in line["event"]]
        assert [(line["holder"], line["expected"]) for line in waiting] == [("shards/8", "shards/4")]
        assert rig.working == set()
        await asyncio.sleep(15)
        assert rig.working == {0, 1, 2, 3}

    play(story)


def test_errors_of_the_api_server_are_not_the_end() -> None:
    async def story(server: LeaseServer) -> None:
        rig = Rig(server)
        rig.client.refuses = {"get", "list", "create", "update", "delete"}
        await asyncio.sleep(60)
        rig.client.refuses.clear()
        await asyncio.sleep(5)
        assert rig.working == {0, 1, 2, 3}
        rig.client.refuses = {"update"}
        await asyncio.wait({rig.running})
        assert isinstance(cause_of(rig.running), KubeError)

    play(story)
