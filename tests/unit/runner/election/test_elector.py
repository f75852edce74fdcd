import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from rolecall.kube.errors import ConflictError, KubeError, NotFoundError, UnreachableError
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.yaml_reader import ConfigurationError
from rolecall.runner.election.elector import LEASE, Election, Elector, LeadershipLostError, election_of
from tests.unit.manual_clock import ManualClock, settle

KEY = ObjectKey("operators", "lock")


class FakeLeases:
    """An API server with one Lease, which answers, refuses or does not answer."""

    def __init__(self) -> None:
        self.lease: RawObject | None = None
        self.version = 0
        self.trouble: KubeError | None = None
        self.hangs = False
        self.reads = 0

    @property
    def spec(self) -> RawObject:
        """The Lease's spec."""
        assert self.lease is not None
        found: RawObject = self.lease["spec"]
        return found

    async def _answer(self) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.trouble is not None:
            raise self.trouble

    async def get(self, gvk: GVK, key: ObjectKey) -> RawObject:
        """Return the Lease."""
        assert (gvk, key) == (LEASE, KEY)
        self.reads += 1
        await self._answer()
        if self.lease is None:
            raise NotFoundError(404, "NotFound", "no such lease")
        return self.lease

    async def create(self, obj: RawObject) -> RawObject:
        """Create it."""
        await self._answer()
        if self.lease is not None:
            raise ConflictError(409, "AlreadyExists", "there is one")
        return self._store(obj)

    async def replace(self, obj: RawObject) -> RawObject:
        """Replace it in the version that was read."""
        await self._answer()
        if self.lease is None:
            raise NotFoundError(404, "NotFound", "no such lease")
        if obj["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise ConflictError(409, "Conflict", "it has changed")
        return self._store(obj)

    def _store(self, obj: RawObject) -> RawObject:
        self.version += 1
        self.lease = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        return self.lease


class Heard:
    """Remembers what an election tells."""

    def __init__(self) -> None:
        self.leading: dict[str, bool] = {}
        self.slow_renewals = 0

    def set_leading(self, name: str, *, leading: bool) -> None:
        """Note it."""
        self.leading[name] = leading

    def count_slow_renewal(self, name: str) -> None:
        """Count it."""
        assert name == "lock"
        self.slow_renewals += 1


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def leases() -> FakeLeases:
    return FakeLeases()


def replica(leases: FakeLeases, clock: ManualClock, identity: str = "one") -> Elector:
    return Elector(leases, Election(KEY, identity), clock, Heard())


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
    """Let time pass in steps of a second, as a loop sees it."""
    for _ in range(int(seconds)):
        await clock.advance_and_settle(1)


async def test_a_lease_that_is_not_there_is_made_and_held(leases: FakeLeases, clock: ManualClock) -> None:
    elector = replica(leases, clock)
    async with running(elector):
        assert elector.is_leading
        assert leases.spec == {
            "holderIdentity": "one",
            "leaseDurationSeconds": 15,
            "acquireTime": "2023-11-14T22:13:20.000000Z",
            "renewTime": "2023-11-14T22:13:20.000000Z",
            "leaseTransitions": 0,
        }
        await pass_time(clock, 60)
        assert elector.is_leading
        assert leases.spec["acquireTime"] == "2023-11-14T22:13:20.000000Z"
        assert leases.spec["renewTime"] == "2023-11-14T22:14:20.000000Z"


async def test_only_one_of_two_replicas_leads(leases: FakeLeases, clock: ManualClock) -> None:
    first, second = replica(leases, clock), replica(leases, clock, "two")
    async with running(first), running(second):
        await pass_time(clock, 60)
        assert (first.is_leading, second.is_leading) == (True, False)


async def test_a_lease_that_was_given_back_is_taken_at_the_next_look(leases: FakeLeases, clock: ManualClock) -> None:
    first, second = replica(leases, clock), replica(leases, clock, "two")
    async with running(first) as task, running(second):
        await pass_time(clock, 4)
        task.cancel()
        await settle()
        await first.release()
        assert not first.may_write
        assert "holderIdentity" not in leases.spec
        await pass_time(clock, 2)
        assert second.is_leading
        assert leases.spec["holderIdentity"] == "two"
        assert leases.spec["leaseTransitions"] == 1


async def test_a_lease_that_is_not_renewed_is_taken_when_its_duration_is_over(
    leases: FakeLeases, clock: ManualClock
) -> None:
    second = replica(leases, clock, "two")
    async with running(replica(leases, clock)):
        pass  # as one that was killed: nothing given back
    async with running(second):
        await pass_time(clock, 14)
        assert not second.is_leading
        await pass_time(clock, 3)
        assert second.is_leading


async def test_a_holder_whose_clock_is_wrong_keeps_its_lease(leases: FakeLeases) -> None:
    ahead, behind = ManualClock(epoch=2_000_000_000), ManualClock(epoch=1_000_000_000)
    first, second = replica(leases, behind), replica(leases, ahead, "two")
    async with running(first), running(second):
        for _ in range(60):
            await behind.advance_and_settle(1)
            await ahead.advance_and_settle(1)
        assert (first.is_leading, second.is_leading) == (True, False)


@pytest.mark.parametrize("silent", [False, True])
async def test_a_leader_that_cannot_renew_stops_before_others_may_take_over(
    leases: FakeLeases, clock: ManualClock, *, silent: bool
) -> None:
    elector = replica(leases, clock)
    async with running(elector) as task:
        leases.trouble, leases.hangs = UnreachableError("connection refused"), silent
        await pass_time(clock, 9)
        assert elector.is_leading
        assert not task.done()
        await pass_time(clock, 1)
        with pytest.raises(LeadershipLostError, match="could not be renewed for 10 s"):
            await task
        assert not elector.is_leading
        assert elector.seconds_left == pytest.approx(5)


async def test_trouble_shorter_than_the_deadline_costs_nothing(leases: FakeLeases, clock: ManualClock) -> None:
    elector = replica(leases, clock)
    async with running(elector):
        for _ in range(3):
            leases.hangs = True
            await pass_time(clock, 7)
            leases.hangs = False
            await pass_time(clock, 4)
        assert elector.is_leading


async def test_a_leader_that_finds_another_holder_has_lost(leases: FakeLeases, clock: ManualClock) -> None:
    elector = replica(leases, clock)
    async with running(elector) as task:
        leases._store({**leases.lease, "spec": {**leases.spec, "holderIdentity": "thief"}} if leases.lease else {})
        await pass_time(clock, 2)
        with pytest.raises(LeadershipLostError, match="held by 'thief'"):
            await task


async def test_a_renewal_survives_a_change_of_the_lease_by_somebody_else(
    leases: FakeLeases, clock: ManualClock
) -> None:
    heard = Heard()
    elector = Elector(leases, Election(KEY, "one"), clock, heard)
    async with running(elector):
        reads = leases.reads
        await pass_time(clock, 4)
        assert leases.reads == reads  # a holder need not read
        assert leases.lease is not None
        leases._store({**leases.lease, "spec": {**leases.spec, "preferredHolder": "x"}})
        await pass_time(clock, 2)
        assert elector.is_leading
        assert leases.spec["preferredHolder"] == "x"
        assert heard.slow_renewals == 1
        assert heard.leading == {"lock": True}
    assert heard.leading == {"lock": False}


async def test_a_leader_may_write_until_shortly_before_its_lease_ends(leases: FakeLeases, clock: ManualClock) -> None:
    elector = replica(leases, clock)
    assert not elector.may_write
    async with running(elector):
        assert elector.may_write
        clock.advance(13.9)  # and the loop has no turn
        assert elector.may_write
        clock.advance(0.2)
        assert not elector.may_write


async def test_a_leader_that_finds_another_holder_writes_nothing_any_more(
    leases: FakeLeases, clock: ManualClock
) -> None:
    elector = replica(leases, clock)
    async with running(elector):
        leases._store({**leases.lease, "spec": {**leases.spec, "holderIdentity": "thief"}} if leases.lease else {})
        await pass_time(clock, 2)
        assert elector.seconds_left > 0
        assert not elector.may_write


async def test_a_lost_lease_is_not_given_back(leases: FakeLeases, clock: ManualClock) -> None:
    elector = replica(leases, clock)
    async with running(elector) as task:
        task.cancel()
        await settle()
        clock.advance(15)
        before = leases.lease
        await elector.release()
        assert leases.lease == before


async def test_when_a_leader_must_have_ended_is_told_with_every_renewal(leases: FakeLeases, clock: ManualClock) -> None:
    told: list[float] = []
    elector = Elector(leases, Election(KEY, "one"), clock, Heard(), told.append)
    async with running(elector):
        await pass_time(clock, 4)
    assert told == [14, 16, 18]


async def test_a_lease_that_somebody_deleted_is_made_again(leases: FakeLeases, clock: ManualClock) -> None:
    elector = replica(leases, clock)
    async with running(elector) as task:
        leases.lease = None
        await pass_time(clock, 20)
        assert not task.done()
        assert elector.is_leading
        assert leases.spec["holderIdentity"] == "one"


async def test_a_lease_without_a_holder_is_taken_back_by_its_leader(leases: FakeLeases, clock: ManualClock) -> None:
    elector = replica(leases, clock)
    async with running(elector):
        assert leases.lease is not None
        leases._store({**leases.lease, "spec": {}})
        await pass_time(clock, 4)
        assert elector.is_leading
        assert leases.spec["holderIdentity"] == "one"


@contextlib.asynccontextmanager
async def member(leases: FakeLeases, clock: ManualClock) -> AsyncIterator[asyncio.Task[None]]:
    """Hold a Lease that is this replica's alone."""
    elector = Elector(leases, Election(KEY, "one", is_membership=True), clock, Heard())
    async with running(elector) as task:
        assert elector.is_leading
        yield task


async def test_the_lease_of_a_member_is_not_made_again_when_somebody_deleted_it(
    leases: FakeLeases, clock: ManualClock
) -> None:
    async with member(leases, clock) as task:
        leases.lease = None
        await pass_time(clock, 4)
        assert isinstance(task.exception(), LeadershipLostError)
        assert leases.lease is None


async def test_the_lease_of_a_member_is_not_taken_back_from_whoever_fenced_it(
    leases: FakeLeases, clock: ManualClock
) -> None:
    async with member(leases, clock) as task:
        assert leases.lease is not None
        leases._store({**leases.lease, "spec": {}})
        await pass_time(clock, 4)
        assert isinstance(task.exception(), LeadershipLostError)
        assert leases.spec == {}


ELECTING = Settings(leader_elect=True, leader_election_id="lock", leader_election_namespace="operators")


def test_nobody_is_elected_unless_asked_for(tmp_path: Path) -> None:
    assert election_of(Settings(leader_election_id="lock"), tmp_path / "namespace") is None


def test_the_settings_name_lease_and_times() -> None:
    election = election_of(ELECTING)
    assert election
    assert election.key == ObjectKey("operators", "lock")
    assert (election.lease_seconds, election.renew_deadline_seconds, election.retry_seconds) == (15, 10, 2)


def test_every_replica_has_an_identity_of_its_own() -> None:
    found = {election.identity for election in (election_of(ELECTING), election_of(ELECTING)) if election}
    assert len(found) == 2
    assert all(len(identity.rpartition("_")[2]) == 36 for identity in found)


def test_in_a_pod_the_namespace_is_its_own(tmp_path: Path) -> None:
    file = tmp_path / "namespace"
    file.write_text("home\n")
    election = election_of(Settings(leader_elect=True, leader_election_id="lock"), file)
    assert election
    assert election.key == ObjectKey("home", "lock")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (Settings(leader_elect=True, leader_election_namespace="n"), "give --leader-election-id"),
        (Settings(leader_elect=True, leader_election_id="lock"), "give --leader-election-namespace"),
        (
            Settings(leader_elect=True, leader_election_id="lock", lease_duration_seconds=10),
            "must be above 0 and below --leader-elect-lease-duration, found 10 s and 10 s",
        ),
    ],
)
def test_what_is_missing_is_named(settings: Settings, text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as error:
        election_of(settings, tmp_path / "namespace")
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (Settings(shards=4), "--shards 4 needs leader election: give --leader-elect"),
        (replace(ELECTING, shards=257), "--shards: expected at most 256, found 257"),
    ],
)
def test_shards_without_what_they_need_are_refused(settings: Settings, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        election_of(settings)
