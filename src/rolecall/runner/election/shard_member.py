"""A replica that shares the work with others: looks at the Leases of sharding, and does what the ``protocol`` decides.

It takes part as ``leader_election.Elector`` does, and its work ends in the same way. It has one deadline: the Lease
that it renews, and the Lease of the group, whose renewals by others it sees. Shards come and go meanwhile: ``work`` is
told of a shard that is taken, and before a shard is handed over, nothing may work for it any more.

The shards that this replica holds, and what follows for the queues and reconciles of all kinds.

Informers see every object. A request is accepted only if its object belongs to a shard that is held. When a shard is
taken, all its objects are reconciled once; before it is handed over, its requests are dropped and its reconciles end.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Protocol

from rolecall.kube.errors import ConflictError, NotFoundError
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.controller.controller import Controller, Dispatcher
from rolecall.runner.election.elector import (
    LEASE,
    Election,
    ElectionObserver,
    Elector,
    LeadershipLostError,
    LeaseClient,
    timestamp,
)
from rolecall.runner.election.lease import Attempts, LeaseNames, Record, View, free_lease, held_lease, meant_for
from rolecall.runner.election.membership import Handoff, Membership, Purpose, Write, shard_of
from rolecall.system.clock import Clock, sleep
from rolecall.system.logs import get_logger

logger = get_logger("shards")

_REQUEST_SHARE = 0.5
"""Of the renewal deadline: the longest time for a request, and for all writes after one look."""


class ShardLeaseClient(LeaseClient, Protocol):
    """What a member needs from the API server; ``rolecall.kube.client.Client`` is one."""

    def list_pages(self, gvk: GVK, namespace: str | None = None) -> AsyncIterator[tuple[list[RawObject], str]]:
        """Yield all objects of a namespace as they are at one moment, page by page."""

    async def delete(self, gvk: GVK, key: ObjectKey) -> None:
        """Delete an object. Raises NotFoundError."""
        ...


class ShardWork(Protocol):
    """What is done for the shards that this replica holds, of ``count`` shards."""

    @property
    def count(self) -> int:
        """The number of all shards."""

    def take(self, index: int) -> None:
        """Begin to work for a shard; must return at once."""

    async def drain(self, index: int) -> None:
        """Begin nothing for a shard any more, and return when nothing works for it; what runs may end by itself."""

    async def cancel(self, index: int) -> None:
        """Do the same, but end at once what runs, because another replica may work for the shard already."""


class ShardObserver(ElectionObserver, Protocol):
    """Observes a member; must return at once."""

    def set_shards(self, held: Collection[int], members: int) -> None:
        """Take note of the shards that are held, and of how many members share all of them."""


@dataclass(slots=True)
class ShardMember:
    """One replica of those that share the work. ``run`` it, wait until ``elected``, ``release`` at the end."""

    work: ShardWork
    client: ShardLeaseClient
    election: Election
    """The Lease of the group and the identity of this replica."""
    clock: Clock
    observer: ShardObserver
    on_renewal: Callable[[float], None] | None = None
    """Called with the monotonic time at which this replica must have ended, whenever that changes."""

    membership: Membership = field(init=False)
    _elector: Elector = field(init=False)
    _attempts: Attempts = field(init=False)
    _removals: Attempts = field(init=False)
    """Of Leases of members that have ended; they may fail alone, without the permission to delete."""
    _view: View | None = field(default=None, init=False)
    _working: set[int] = field(default_factory=set, init=False)
    _member_end: float = field(default=math.inf, init=False)
    _told: tuple[object, ...] = field(default=(), init=False)
    _joined: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _is_lost: bool = field(default=False, init=False)
    _is_beaten: bool = field(default=False, init=False)
    """Whether somebody else was quicker to write the Lease of the group."""

    def __post_init__(self) -> None:
        """Prepare the Lease of this replica."""
        names = LeaseNames(self.election.key, self.work.count)
        own = replace(self.election, key=names.member(self.election.identity), is_membership=True)
        self.membership = Membership(self.election, names)
        self._elector = Elector(self.client, own, self.clock, _Renamed(self), self._member_renewed)
        self._attempts, self._removals = (Attempts(self.clock, str(self.election.key)) for _ in range(2))

    @property
    def is_leading(self) -> bool:
        """Return whether this replica is a member, as far as it knows."""
        return self._joined.is_set() and self._elector.is_leading and not self._is_lost

    @property
    def seconds_left(self) -> float:
        """How long this replica may still act as a member; 0 or less if it may not."""
        group_left = self.membership.group_since + self.election.lease_seconds - self.clock.monotonic()
        return min(self._elector.seconds_left, group_left)

    @property
    def may_write(self) -> bool:
        """Return whether no other replica can have taken over while a request that is sent now is on its way."""
        is_in_time = self.clock.monotonic() < self.membership.group_end
        return self._joined.is_set() and is_in_time and not self.membership.is_replaced and self._elector.may_write

    async def elected(self) -> None:
        """Wait until this replica is a member."""
        await self._joined.wait()

    async def run(self) -> None:
        """Become a member and work for shards until cancelled. Raises LeadershipLostError, alone or in a group."""
        logger.info("Waiting to join shard group", lease=str(self.election.key), identity=self.election.identity)
        self.observer.set_leading(self.election.key.name, leading=False)
        try:
            await self._wait_for_group()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._elector.run(), name="Lease of this replica")
                await self._elector.elected()
                while True:
                    is_news = await self._turn(group)
                    await sleep(self.clock, 0 if is_news else self._at_most(self.election.retry_seconds))
        finally:
            self.observer.set_leading(self.election.key.name, leading=False)

    async def release(self) -> None:
        """Free the shards of this replica, and the Lease of the group if no member is left. Call it after ``run``."""
        may_release = not self._joined.is_set() or self.seconds_left > 0
        self._joined.clear()
        if not may_release:
            return
        # Without its member the shards are free; the group Lease must be the last.
        await self._elector.release()
        await self._attempts.within(self.election.retry_seconds, self._free_group())

    async def _free_group(self) -> bool:
        started = self.clock.monotonic()
        view = await self._list()
        self.membership.see(view, started, self.clock.monotonic())
        group = view.group
        if group is None or group.holder != self.membership.names.group_holder:
            return False
        if self.membership.has_members(self.clock.monotonic()):
            return False
        await self.client.replace(free_lease(_whole(group), timestamp(self.clock)))
        logger.info("Released the Lease", lease=str(self.election.key))
        return True

    async def _wait_for_group(self) -> None:
        blocked_by = ""
        while not await self._look() or not self.membership.may_join(self.clock.monotonic()):
            holder = self.membership.group_holder
            if self._view is not None and holder != blocked_by:
                blocked_by = holder
                logger.warning("Waiting for a replica that does not share the work with this one", **self._block())
            await sleep(self.clock, self.election.retry_seconds)

    def _block(self) -> dict[str, object]:
        holder, own = self.membership.group_holder, self.membership.names.group_holder
        is_other_number = holder.startswith("shards/")
        reason = "it has another --shards" if is_other_number else "it runs without --shards"
        return {"lease": str(self.election.key), "holder": holder, "reason": reason, "expected": own}

    async def _turn(self, group: asyncio.TaskGroup) -> bool:
        """Look once and do what follows from it; return whether to look again at once."""
        has_looked = await self._look()
        self._follow(group)
        self._check()
        is_news = await self._write_all() if has_looked else False
        self._follow(group)
        handoff = self.membership.begin_handoff(self.clock.monotonic())
        if handoff is not None:
            self._working.discard(handoff.index)
            group.create_task(self._handoff(handoff), name=f"hand-over of shard {handoff.index}")
        self._tell()
        return is_news

    async def _look(self) -> bool:
        return await self._attempts.within(self._at_most(self._request_seconds), self._see())

    async def _see(self) -> bool:
        started = self.clock.monotonic()
        view = await self._list()
        self._view = view
        self.membership.see(view, started, self.clock.monotonic())
        return True

    async def _list(self) -> View:
        leases: list[RawObject] = []
        async for page, _ in self.client.list_pages(LEASE, self.election.key.namespace):
            leases += page
        return self.membership.names.view(leases)

    async def _write_all(self) -> bool:
        self._is_beaten = False
        ends, is_news = self.clock.monotonic() + self._at_most(self._request_seconds), False
        for write in list(self.membership.decide(self.clock.monotonic())):
            if self.clock.monotonic() >= ends:
                break
            attempts = self._removals if write.purpose is Purpose.REMOVE else self._attempts
            if await attempts.within(self._at_most(self._request_seconds), self._perform(write)):
                is_news = is_news or write.purpose is not Purpose.GROUP
        return is_news or self._is_beaten

    async def _perform(self, write: Write) -> bool:
        started = self.clock.monotonic()
        try:
            await self._send(write)
        except (ConflictError, NotFoundError):
            self._is_beaten |= write.purpose is Purpose.GROUP
            return False
        self.membership.written(write, started)
        if write.purpose is Purpose.GROUP:
            self._joined_group()
        return True

    async def _send(self, write: Write) -> None:
        lease = _empty(write.key) if write.record is None else _whole(write.record)
        now = timestamp(self.clock)
        if write.purpose is Purpose.REMOVE:
            await self.client.delete(LEASE, write.key)
            return
        if write.purpose in (Purpose.FENCE, Purpose.GIVE_UP):
            wanted = free_lease(lease, now)
        else:
            holder = self.election.identity if write.purpose is Purpose.TAKE else self.membership.names.group_holder
            wanted = held_lease(lease, holder, math.ceil(self.election.lease_seconds), now)
        if write.purpose in (Purpose.TAKE, Purpose.GIVE_UP):
            wanted = meant_for(wanted, write.preferred_holder)
        await (self.client.create(wanted) if write.record is None else self.client.replace(wanted))

    def _joined_group(self) -> None:
        self._tell_end()
        if not self._joined.is_set():
            self._joined.set()
            self.observer.set_leading(self.election.key.name, leading=True)
            logger.info("Sharing the work", lease=str(self.election.key), identity=self.election.identity)

    def _follow(self, group: asyncio.TaskGroup) -> None:
        """Work for the shards that are held now, and for no others."""
        self._tell_end()
        held = self.membership.held if self._joined.is_set() else set()
        for index in sorted(held - self._working):
            self.work.take(index)
        for index in sorted(self._working - held):
            logger.error("Another replica has a shard of this one", shard=index)
            group.create_task(self.work.cancel(index), name=f"end of shard {index}")
        self._working = set(held)

    async def _handoff(self, handoff: Handoff) -> None:
        logger.info("Handing over a shard", shard=handoff.index, to=handoff.preferred_holder)
        await self.work.drain(handoff.index)
        handoff.is_idle = True

    def _check(self) -> None:
        why = self.membership.why_lost(self.clock.monotonic())
        if why:
            self._is_lost = True
            trouble = f": {self._attempts.trouble}" if self._attempts.trouble else ""
            error = LeadershipLostError(f"lost the Lease {self.election.key}: {why}{trouble}")
            logger.error("Lost the Lease", lease=str(self.election.key), error=str(error))
            raise error

    def _tell(self) -> None:
        members = len(self.membership.members(self.clock.monotonic()))
        told = (frozenset(self._working), members)
        if told != self._told:
            self._told = told
            self.observer.set_shards(self._working, members)
            logger.info(
                "Shards of this replica",
                held_shards=sorted(self._working),
                shard_count=self.work.count,
                members=members,
            )

    def _member_renewed(self, end: float) -> None:
        self._member_end = end
        self._tell_end()

    def _tell_end(self) -> None:
        if self.on_renewal is not None:
            is_member = self._joined.is_set()
            self.on_renewal(min(self._member_end, self.membership.group_end) if is_member else math.inf)

    def _at_most(self, seconds: float) -> float:
        """Return so many seconds, or those until the deadline if they are fewer."""
        return max(0.0, min(seconds, self.membership.group_deadline - self.clock.monotonic()))

    @property
    def _request_seconds(self) -> float:
        return self.election.renew_deadline_seconds * _REQUEST_SHARE


class _Renamed:
    """Reports the Lease of a member under the name of the election, of which metrics have one series."""

    def __init__(self, member: ShardMember) -> None:
        self._member = member

    def set_leading(self, name: str, *, leading: bool) -> None:
        """Leave it to the member."""

    def count_slow_renewal(self, _name: str) -> None:
        """Count it for the election."""
        self._member.observer.count_slow_renewal(self._member.election.key.name)


def _whole(record: Record) -> RawObject:
    """Return a Lease of a list with what its list leaves out."""
    return {**record.lease, "apiVersion": LEASE.api_version, "kind": LEASE.kind}


def _empty(key: ObjectKey) -> RawObject:
    metadata = {"name": key.name, "namespace": key.namespace}
    return {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata}


HANDED_OVER = "another replica takes the object over"
"""Why a reconcile is cancelled."""


class ShardedKind(Protocol):
    """The objects of one kind; its methods must return at once."""

    def taken(self, index: int) -> None:
        """Request a reconcile of each object of a shard."""

    def dropped(self, index: int) -> None:
        """Drop the requests of a shard."""


class HeldShards:
    """The shards of ``count`` that this replica holds; the reconciles of a shard get ``drain_timeout_seconds`` to end.

    The ``dispatcher`` runs the reconciles of all kinds.
    """

    def __init__(self, count: int, drain_timeout_seconds: float) -> None:
        self.count = count
        self.dispatcher = Dispatcher()
        self.drain_timeout_seconds = drain_timeout_seconds
        self._held: set[int] = set()
        self._kinds: list[ShardedKind] = []

    @property
    def held(self) -> frozenset[int]:
        """The shards that are held now."""
        return frozenset(self._held)

    def add(self, kind: ShardedKind) -> None:
        """Tell a kind about shards from now on."""
        self._kinds.append(kind)

    def shard_of(self, gvk: GVK, key: ObjectKey) -> int:
        """Return the shard of an object, whichever version of its kind is watched."""
        return shard_of(gvk.group, gvk.kind, key, self.count)

    def accepts(self, gvk: GVK) -> Callable[[ObjectKey], bool]:
        """Return a function that says whether an object of a kind is this replica's now."""
        return lambda key: self.shard_of(gvk, key) in self._held

    def take(self, index: int) -> None:
        """Reconcile the objects of a shard from now on, all of them once."""
        self._held.add(index)
        for kind in self._kinds:
            kind.taken(index)

    async def drain(self, index: int) -> None:
        """Start nothing for a shard any more, and return when none of its objects is being reconciled."""
        await self._end(index, self.drain_timeout_seconds)

    async def cancel(self, index: int) -> None:
        """Do the same, but cancel its reconciles at once."""
        await self._end(index, 0.0)

    async def _end(self, index: int, seconds: float) -> None:
        def concerns(controller: Controller, key: ObjectKey) -> bool:
            return shard_of(controller.group, controller.kind, key, self.count) == index

        self._held.discard(index)
        self._drop(index)
        await self.dispatcher.drain(concerns, seconds, HANDED_OVER)
        if index not in self._held:
            self._drop(index)  # what the last reconciles have left behind, such as their failures

    def _drop(self, index: int) -> None:
        for kind in self._kinds:
            kind.dropped(index)
