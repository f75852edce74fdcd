import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rolecall.kube.errors import UnreachableError
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.yaml_reader import ConfigurationError
from rolecall.runner.election.elector import Elector, LeadershipLostError, election_of
from rolecall.runner.serving.metrics import OperatorMetrics
from tests.unit.manual_clock import ManualClock, settle
from tests.unit.runner.election.simulated_leases import DirectClient, LeaseServer
from tests.unit.runner.election.simulated_replicas import GROUP, election

LOCK = GROUP.name


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def client() -> DirectClient:
    return DirectClient(LeaseServer())


def replica(client: DirectClient, clock: ManualClock, identity: str = "one") -> Elector:
    return Elector(client, election(identity), clock, OperatorMetrics("test"))


def spec_of(client: DirectClient) -> RawObject:
    found: RawObject = client.server.get(LOCK)["spec"]
    return found


def write(client: DirectClient, **spec: Any) -> None:
    """Replace the spec of the Lease, as another client does."""
    client.server.put({**client.server.get(LOCK), "spec": spec})


@contextlib.asynccontextmanager
async def running(elector: Elector) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(elector.run())
    await settle()
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})


async def pass_time(clock: ManualClock, seconds: float) -> None:
    """Advance the clock of the loop in steps of a second."""
    for _ in range(int(seconds)):
        await clock.advance_and_settle(1)


async def test_missing_lease_is_created_and_renewed(client: DirectClient, clock: ManualClock) -> None:
    elector = replica(client, clock)
    async with running(elector):
        assert elector.is_leading
        assert spec_of(client) == {
            "holderIdentity": "one",
            "leaseDurationSeconds": 15,
            "acquireTime": "2023-11-14T22:13:20.000000Z",
            "renewTime": "2023-11-14T22:13:20.000000Z",
            "leaseTransitions": 0,
        }
        await pass_time(clock, 60)
        assert elector.is_leading
        assert spec_of(client)["acquireTime"] == "2023-11-14T22:13:20.000000Z"
        assert spec_of(client)["renewTime"] == "2023-11-14T22:14:20.000000Z"


async def test_released_lease_is_taken_at_the_next_attempt(client: DirectClient, clock: ManualClock) -> None:
    first, second = replica(client, clock), replica(client, clock, "two")
    async with running(first) as task, running(second):
        await pass_time(clock, 4)
        task.cancel()
        await settle()
        await first.release()
        assert not first.may_write
        assert "holderIdentity" not in spec_of(client)
        await pass_time(clock, 2)
        assert second.is_leading
        assert spec_of(client)["holderIdentity"] == "two"
        assert spec_of(client)["leaseTransitions"] == 1


async def test_lease_without_renewals_is_taken_after_its_duration(client: DirectClient, clock: ManualClock) -> None:
    second = replica(client, clock, "two")
    async with running(replica(client, clock)):
        pass  # killed: it releases nothing
    async with running(second):
        await pass_time(clock, 14)
        assert not second.is_leading
        await pass_time(clock, 3)
        assert second.is_leading


async def test_only_one_replica_leads_even_if_their_clocks_differ(client: DirectClient) -> None:
    ahead, behind = ManualClock(epoch=2_000_000_000), ManualClock(epoch=1_000_000_000)
    first, second = replica(client, behind), replica(client, ahead, "two")
    async with running(first), running(second):
        for _ in range(60):
            await behind.advance_and_settle(1)
            await ahead.advance_and_settle(1)
        assert (first.is_leading, second.is_leading) == (True, False)


@pytest.mark.parametrize("hangs", [False, True])
async def test_leader_that_cannot_renew_stops_before_the_lease_expires(
    client: DirectClient, clock: ManualClock, *, hangs: bool
) -> None:
    elector = replica(client, clock)
    async with running(elector) as task:
        client.error, client.hangs = UnreachableError("connection refused"), hangs
        await pass_time(clock, 9)
        assert elector.is_leading
        assert not task.done()
        await pass_time(clock, 1)
        with pytest.raises(LeadershipLostError, match="could not be renewed for 10 s"):
            await task
        assert not elector.is_leading
        assert elector.seconds_left == pytest.approx(5)


async def test_outage_shorter_than_the_deadline_has_no_effect(client: DirectClient, clock: ManualClock) -> None:
    elector = replica(client, clock)
    async with running(elector):
        for _ in range(3):
            client.hangs = True
            await pass_time(clock, 7)
            client.hangs = False
            await pass_time(clock, 4)
        assert elector.is_leading


async def test_leader_that_finds_another_holder_stops_and_writes_nothing(
    client: DirectClient, clock: ManualClock
) -> None:
    elector = replica(client, clock)
    async with running(elector) as task:
        write(client, holderIdentity="thief")
        await pass_time(clock, 2)
        with pytest.raises(LeadershipLostError, match="held by 'thief'"):
            await task
        assert elector.seconds_left > 0
        assert not elector.may_write


async def test_renewal_after_a_change_by_another_client_keeps_the_change(
    client: DirectClient, clock: ManualClock
) -> None:
    metrics = OperatorMetrics("test")
    elector = Elector(client, election("one"), clock, metrics)
    async with running(elector):
        await pass_time(clock, 4)
        assert client.verbs == ["get", "create", "update", "update"]
        write(client, **spec_of(client), preferredHolder="x")
        await pass_time(clock, 2)
        assert elector.is_leading
        assert spec_of(client)["preferredHolder"] == "x"
        series = metrics.render().decode()
        assert 'leader_election_slowpath_total{name="lock"} 1.0' in series
        assert 'leader_election_master_status{name="lock"} 1.0' in series
    assert 'leader_election_master_status{name="lock"} 0.0' in metrics.render().decode()


async def test_leader_may_write_until_shortly_before_its_lease_expires(
    client: DirectClient, clock: ManualClock
) -> None:
    elector = replica(client, clock)
    assert not elector.may_write
    async with running(elector):
        assert elector.may_write
        clock.advance(13.9)  # the loop has no turn
        assert elector.may_write
        clock.advance(0.2)
        assert not elector.may_write


async def test_lost_lease_is_not_released(client: DirectClient, clock: ManualClock) -> None:
    elector = replica(client, clock)
    async with running(elector) as task:
        task.cancel()
        await settle()
        clock.advance(15)
        before = spec_of(client)
        await elector.release()
        assert spec_of(client) == before


async def test_each_renewal_reports_when_the_leader_must_have_ended(client: DirectClient, clock: ManualClock) -> None:
    ends: list[float] = []
    elector = Elector(client, election("one"), clock, OperatorMetrics("test"), ends.append)
    async with running(elector):
        await pass_time(clock, 4)
    assert ends == [14, 16, 18]


async def test_follower_knows_the_holder(client: DirectClient, clock: ManualClock) -> None:
    async with running(replica(client, clock)):
        follower = replica(client, clock, "two")
        assert follower.holder == ""
        async with running(follower):
            assert (follower.is_leading, follower.holder) == (False, "one")


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_leader_takes_back_a_deleted_lease_or_one_without_a_holder(
    client: DirectClient, clock: ManualClock, *, is_deleted: bool
) -> None:
    elector = replica(client, clock)
    async with running(elector) as task:
        write(client)
        if is_deleted:
            client.server.delete(LOCK)
        await pass_time(clock, 20)
        assert not task.done()
        assert elector.is_leading
        assert spec_of(client)["holderIdentity"] == "one"


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_member_does_not_take_back_a_deleted_or_fenced_lease(
    client: DirectClient, clock: ManualClock, *, is_deleted: bool
) -> None:
    member = replace(election("one"), member_of="group")
    async with running(Elector(client, member, clock, OperatorMetrics("test"))) as task:
        write(client)
        if is_deleted:
            client.server.delete(LOCK)
        leases = dict(client.server.leases)
        await pass_time(clock, 4)
        assert isinstance(task.exception(), LeadershipLostError)
        assert client.server.leases == leases


ELECTING = Settings(leader_elect=True, leader_election_id="lock", leader_election_namespace="operators")


def test_there_is_no_election_by_default(tmp_path: Path) -> None:
    assert election_of(Settings(leader_election_id="lock"), tmp_path / "namespace") is None


def test_settings_determine_the_lease_and_the_times() -> None:
    found = election_of(ELECTING)
    assert found
    assert found.key == ObjectKey("operators", "lock")
    assert (found.lease_seconds, found.renew_deadline_seconds, found.retry_seconds) == (15, 10, 2)


def test_every_replica_has_its_own_identity() -> None:
    found = {each.identity for each in (election_of(ELECTING), election_of(ELECTING)) if each}
    assert len(found) == 2
    assert all(len(identity.rpartition("_")[2]) == 36 for identity in found)


def test_namespace_of_a_pod_is_the_default(tmp_path: Path) -> None:
    file = tmp_path / "namespace"
    file.write_text("home\n")
    found = election_of(replace(ELECTING, leader_election_namespace=""), file)
    assert found
    assert found.key == ObjectKey("home", "lock")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (replace(ELECTING, leader_election_id=""), "give --leader-election-id"),
        (replace(ELECTING, leader_election_namespace=""), "give --leader-election-namespace"),
        (
            replace(ELECTING, lease_duration_seconds=10),
            "must be above 0 and below --leader-elect-lease-duration, found 10 s and 10 s",
        ),
        (Settings(shards=4), "--shards 4 needs leader election: give --leader-elect"),
        (replace(ELECTING, shards=257), "--shards: expected at most 256, found 257"),
    ],
)
def test_missing_or_invalid_setting_is_named(settings: Settings, text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as error:
        election_of(settings, tmp_path / "namespace")
    assert text in str(error.value)
