"""A replica that shares the objects with others: reads the Leases of all shards and does what ``membership`` decides.

It takes part in the group as an ``Elector`` takes part in an election, and its work ends in the same way. It has one
deadline for two Leases: the member Lease, which it renews, and the group Lease, whose renewals by others it sees.
Shards come and go in the meantime. Informers see every object, but a request is accepted only if its object belongs to
a held shard. When a shard is taken, all its objects are reconciled once; before it is handed over, its requests are
dropped and its reconciles end.
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Never

from rolecall.kube.client import Client
from rolecall.kube.errors import ConflictError, NotFoundError
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.controller import Controller, Dispatcher
from rolecall.runner.controller.store import Change
from rolecall.runner.controller.work_queue import Cause, Priority, WorkQueue
from rolecall.runner.election.elector import (
    LEASE,
    Attempts,
    Election,
    Elector,
    free_lease,
    held_lease,
    leadership_lost,
    new_lease,
    timestamp,
)
from rolecall.runner.election.membership import (
    Handoff,
    LeaseNames,
    Membership,
    Purpose,
    Write,
    shard_of,
    with_preferred_holder,
)
from rolecall.runner.serving.metrics import OperatorMetrics
from rolecall.system.clock import Clock, sleep
from rolecall.system.logs import get_logger

logger = get_logger("shards")

HANDED_OVER = "another replica takes the object over"
"""Why a reconcile is cancelled."""

_REQUEST_SHARE = 0.5
"""Of the renewal deadline: the longest time for a request, and for all writes after one look."""


@dataclass(slots=True)
class ShardMember:
    """One replica of a group that shares the objects. ``run`` it, wait until ``elected``, ``release`` at the end."""

    work: "HeldShards"
    client: Client
    election: Election
    """The group Lease and the identity of this replica."""
    clock: Clock
    metrics: OperatorMetrics
    on_renewal: Callable[[float], None] = lambda _end: None
    """Called with the monotonic time at which this replica must have ended, whenever that changes."""

    membership: Membership = field(init=False)
    _elector: Elector = field(init=False)
    _attempts: Attempts = field(init=False)
    _removals: Attempts = field(init=False)
    """Of the Leases of ended members; only they fail without the permission to delete."""
    _working: set[int] = field(default_factory=set, init=False)
    _member_end: float = field(default=math.inf, init=False)
    _reported: tuple[object, ...] = field(default=(), init=False)
    elected: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set while this replica is a member."""
    _is_lost: bool = field(default=False, init=False)
    _is_beaten: bool = field(default=False, init=False)
    """Whether another replica was faster to write the group Lease."""

    def __post_init__(self) -> None:
        """Prepare the Lease of this replica."""
        group = self.election
        names = LeaseNames(group.key, self.work.count)
        self.membership = Membership(group, names)
        own = replace(group, key=names.member(group.identity), member_of=group.name)
        self._elector = Elector(self.client, own, self.clock, self.metrics, self._member_renewed)
        self._attempts, self._removals = (Attempts(self.clock, str(group.key)) for _ in range(2))

    @property
    def is_leading(self) -> bool:
        """Return whether this replica is a member, as far as it knows."""
        return self.elected.is_set() and self._elector.is_leading and not self._is_lost

    @property
    def holder(self) -> str:
        """No replica: all of them work."""
        return ""

    @property
    def seconds_left(self) -> float:
        """How long this replica may still act as a member; 0 or less if it isn't permitted to."""
        group_left = self.membership.group_since + self.election.lease_seconds - self.clock.monotonic()
        return min(self._elector.seconds_left, group_left)

    @property
    def may_write(self) -> bool:
        """Return whether no other replica can have taken over while a request that is sent now is on its way."""
        is_in_time = self.clock.monotonic() < self.membership.group_end
        return self.elected.is_set() and is_in_time and not self.membership.is_replaced and self._elector.may_write

    async def run(self) -> Never:
        """Become a member and work for shards until cancelled. Raises LeadershipLostError, alone or in a group."""
        self._report_membership("Waiting to join shard group", leading=False)
        try:
            await self._wait_for_group()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._elector.run(), name="Lease of this replica")
                await self._elector.elected.wait()
                while True:
                    has_changed = await self._turn(group)
                    await sleep(self.clock, 0 if has_changed else self._at_most(self.election.retry_seconds))
        finally:
            self.metrics.set_leading(self.election.name, leading=False)

    async def release(self) -> None:
        """Free the shards of this replica, and the group Lease if no member is left. Call it after ``run``."""
        may_release = not self.elected.is_set() or self.seconds_left > 0
        self.elected.clear()
        if not may_release:
            return
        # Without its member the shards are free; the group Lease must be the last.
        await self._elector.release()
        await self._attempts.within(self.election.retry_seconds, self._free_group())

    async def _free_group(self) -> bool:
        await self._look()
        group = self.membership.view.group
        if group is None or group.holder != self.membership.names.group_holder:
            return False
        if self.membership.has_members(self.clock.monotonic()):
            return False
        await self.client.replace(free_lease(group.lease, timestamp(self.clock)))
        logger.info("Released the Lease", lease=str(self.election.key))
        return True

    async def _wait_for_group(self) -> None:
        blocked_by, own = "", self.membership.names.group_holder
        while not await self._try_to_look() or not self.membership.may_join(self.clock.monotonic()):
            holder = self.membership.group_holder
            if holder != blocked_by:
                blocked_by = holder
                has_shards = holder.startswith("shards/")
                logger.warning(
                    "Waiting for a replica with a different shard configuration",
                    lease=str(self.election.key),
                    holder=holder,
                    reason="it has another --shards" if has_shards else "it runs without --shards",
                    expected=own,
                )
            await sleep(self.clock, self.election.retry_seconds)

    async def _turn(self, group: asyncio.TaskGroup) -> bool:
        """Look once and act on it; return whether to look again immediately. Raises LeadershipLostError."""
        has_looked = await self._try_to_look()
        self._follow(group)
        if why := self.membership.why_lost(self.clock.monotonic()):
            self._is_lost = True
            reason = f": {self._attempts.last_error}" if self._attempts.last_error else ""
            raise leadership_lost(self.election, f"{why}{reason}")
        has_changed = await self._write_all() if has_looked else False
        self._follow(group)
        handoff = self.membership.begin_handoff(self.clock.monotonic())
        if handoff is not None:
            self._working.discard(handoff.index)
            group.create_task(self._hand_over(handoff), name=f"handoff of shard {handoff.index}")
        members = len(self.membership.members(self.clock.monotonic()))
        if (state := (frozenset(self._working), members)) != self._reported:
            self._reported = state
            self.metrics.set_shards(self._working, members)
            held, count = sorted(self._working), self.work.count
            logger.info("Shards held", held_shards=held, shard_count=count, members=members)
        return has_changed

    async def _try_to_look(self) -> bool:
        return await self._attempts.within(self._at_most(self._request_seconds), self._look())

    async def _look(self) -> bool:
        started = self.clock.monotonic()
        leases: list[RawObject] = []
        async for page, _ in self.client.list_pages(LEASE, self.election.key.namespace):
            leases += page
        self.membership.see(self.membership.names.view(leases), started, self.clock.monotonic())
        return True

    async def _write_all(self) -> bool:
        self._is_beaten = False
        end, has_changed = self.clock.monotonic() + self._at_most(self._request_seconds), False
        for write in list(self.membership.decide(self.clock.monotonic())):
            if self.clock.monotonic() >= end:
                break
            attempts = self._removals if write.purpose is Purpose.REMOVE else self._attempts
            if await attempts.within(self._at_most(self._request_seconds), self._perform(write)):
                has_changed = has_changed or write.purpose is not Purpose.GROUP
        return has_changed or self._is_beaten

    async def _perform(self, write: Write) -> bool:
        started = self.clock.monotonic()
        try:
            await self._send(write)
        except (ConflictError, NotFoundError):
            self._is_beaten |= write.purpose is Purpose.GROUP
            return False
        self.membership.written(write, started)
        if write.purpose is Purpose.GROUP:
            self._update_end()
            if not self.elected.is_set():
                self.elected.set()
                self._report_membership("Sharing the work", leading=True)
        return True

    async def _send(self, write: Write) -> None:
        if write.purpose is Purpose.REMOVE:
            await self.client.delete(LEASE, write.key)
            return
        lease = new_lease(write.key) if write.record is None else write.record.lease
        now = timestamp(self.clock)
        if write.purpose in (Purpose.FENCE, Purpose.GIVE_UP):
            wanted = free_lease(lease, now)
        else:
            holder = self.election.identity if write.purpose is Purpose.TAKE else self.membership.names.group_holder
            wanted = held_lease(lease, holder, math.ceil(self.election.lease_seconds), now)
        if write.purpose in (Purpose.TAKE, Purpose.GIVE_UP):
            wanted = with_preferred_holder(wanted, write.preferred_holder)
        await (self.client.create(wanted) if write.record is None else self.client.replace(wanted))

    def _follow(self, group: asyncio.TaskGroup) -> None:
        """Work for the held shards, and for no others."""
        self._update_end()
        held = self.membership.held if self.elected.is_set() else set()
        for index in sorted(held - self._working):
            self.work.take(index)
        for index in sorted(self._working - held):
            logger.error("Another replica holds a shard that this replica holds", shard=index)
            group.create_task(self.work.drain(index, is_lost=True), name=f"end of shard {index}")
        self._working = set(held)

    async def _hand_over(self, handoff: Handoff) -> None:
        logger.info("Handing off a shard", shard=handoff.index, to=handoff.preferred_holder)
        await self.work.drain(handoff.index)
        handoff.is_idle = True

    def _report_membership(self, message: str, *, leading: bool) -> None:
        self.metrics.set_leading(self.election.name, leading=leading)
        logger.info(message, lease=str(self.election.key), identity=self.election.identity)

    def _member_renewed(self, end: float) -> None:
        self._member_end = end
        self._update_end()

    def _update_end(self) -> None:
        is_member = self.elected.is_set()
        self.on_renewal(min(self._member_end, self.membership.group_end) if is_member else math.inf)

    def _at_most(self, seconds: float) -> float:
        """Return so many seconds, or those until the deadline if they are fewer."""
        return max(0.0, min(seconds, self.membership.group_deadline - self.clock.monotonic()))

    @property
    def _request_seconds(self) -> float:
        return self.election.renew_deadline_seconds * _REQUEST_SHARE


@dataclass(slots=True)
class ShardedPrimaries:
    """The selected objects of a watch by shard.

    ``priority_of`` returns the priority of an object whose shard is taken. ``request_scan`` is called when an object
    may have been deleted that no reconcile of this replica will find missing, ``forget`` for each object that this
    replica no longer reconciles.
    """

    watch: Watch
    shards: "HeldShards"
    queue: WorkQueue[ObjectKey]
    priority_of: Callable[[RawObject], Priority]
    request_scan: Callable[[], None]
    forget: Callable[[ObjectKey], None]
    _priorities: defaultdict[int, dict[ObjectKey, Priority]] = field(default_factory=lambda: defaultdict(dict))

    def on_change(self, change: Change) -> None:
        """Record an object of any shard."""
        key = change.key
        index = self.shards.shard_of(self.watch.gvk, key)
        priorities = self._priorities[index]
        if change.new is None or not self.watch.selector.matches(change.new.labels):
            priorities.pop(key, None)
            if change.new is None and index not in self.shards.held:
                self.request_scan()
        else:
            priorities[key] = self.priority_of(change.obj)

    def taken(self, index: int) -> None:
        """Request a reconcile of each object of a shard."""
        for key, priority in self._priorities[index].items():
            self.queue.add(key, Cause("shard taken", priority=priority))

    def dropped(self, index: int) -> None:
        """Drop the requests of a shard."""
        self.queue.discard(lambda key: self.shards.shard_of(self.watch.gvk, key) == index)
        for key in self._priorities[index]:
            self.forget(key)
        self.request_scan()  # one of the dropped requests may be that of a deleted object


class HeldShards:
    """The held shards of ``count``; the reconciles of a shard have ``drain_timeout_seconds`` to end by themselves.

    The ``dispatcher`` runs the reconciles of all kinds.
    """

    def __init__(self, count: int, drain_timeout_seconds: float, dispatcher: Dispatcher) -> None:
        self.count = count
        self._drain_timeout_seconds = drain_timeout_seconds
        self._dispatcher = dispatcher
        self.held: set[int] = set()
        """The shards that are held now."""
        self.kinds: list[ShardedPrimaries] = []
        """The kinds that hear of taken and dropped shards."""

    def shard_of(self, gvk: GVK, key: ObjectKey) -> int:
        """Return the shard of an object, regardless of the watched version of its kind."""
        return shard_of(gvk.group, gvk.kind, key, self.count)

    def accepts(self, gvk: GVK) -> Callable[[ObjectKey], bool]:
        """Return a function that returns whether an object of a kind belongs to this replica now."""
        return lambda key: self.shard_of(gvk, key) in self.held

    def take(self, index: int) -> None:
        """Reconcile the objects of a shard, all of them once now and then when they change. Don't block."""
        self.held.add(index)
        for kind in self.kinds:
            kind.taken(index)

    async def drain(self, index: int, *, is_lost: bool = False) -> None:
        """Start nothing more for a shard, and return when none of its objects is being reconciled.

        Running reconciles may end by themselves, unless the shard ``is_lost``: another replica may already work for it.
        """

        def belongs(controller: Controller, key: ObjectKey) -> bool:
            return self.shard_of(controller.gvk, key) == index

        self.held.discard(index)
        self._drop(index)
        await self._dispatcher.drain(belongs, 0.0 if is_lost else self._drain_timeout_seconds, HANDED_OVER)
        if index not in self.held:
            self._drop(index)  # the failures and other state that the last reconciles have left

    def _drop(self, index: int) -> None:
        for kind in self.kinds:
            kind.dropped(index)
