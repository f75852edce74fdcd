"""Leader election: of several replicas one works, the one that holds the Lease.

A replica that does not hold the Lease looks at it again and again and takes it when it is free, was given back, or has
not been renewed for as long as its holder promised. Who holds it renews it; one that could not do so until its
deadline, or finds another holder, has lost it and must stop working before others may take it: ``seconds_left`` says
how long that is. Clocks of different machines are never compared: what counts is how long ago this replica saw a
change.
"""

import asyncio
import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NoReturn, Protocol

from rolecall.controller.clock import Clock, sleep
from rolecall.kube.errors import ConflictError, KubeError, NotFoundError
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.logs import get_logger

logger = get_logger("leader")

LEASE = GVK("coordination.k8s.io", "v1", "Lease")
_ATTEMPT_SHARE = 0.5
"""Of the deadline: the longest time for one attempt, so that a request without an answer leaves time for another."""


class LeadershipLostError(KubeError):
    """The Lease could not be renewed in time, or belongs to somebody else."""


class LeaseClient(Protocol):
    """What an election needs of the API server; ``rolecall.kube.client.Client`` is one."""

    async def get(self, gvk: GVK, key: ObjectKey) -> RawObject:
        """Return an object. Raises NotFoundError."""
        ...

    async def create(self, obj: RawObject) -> RawObject:
        """Create an object. Raises ConflictError when it is there."""
        ...

    async def replace(self, obj: RawObject) -> RawObject:
        """Replace an object in the version that was read. Raises ConflictError when it has changed."""
        ...


class ElectionObserver(Protocol):
    """Hears of an election; must return at once."""

    def set_leading(self, name: str, *, leading: bool) -> None:
        """Hear whether this replica is the leader."""

    def count_slow_renewal(self, name: str) -> None:
        """Hear that a renewal had to read the Lease first."""


@dataclass(frozen=True, slots=True)
class Election:
    """Which Lease is fought for, by whom, and how long things take, in seconds.

    A holder may keep the Lease for ``lease_seconds`` after a renewal, gives up trying after ``renew_deadline_seconds``,
    and everybody tries every ``retry_seconds``.
    """

    key: ObjectKey
    identity: str
    lease_seconds: float = 15.0
    renew_deadline_seconds: float = 10.0
    retry_seconds: float = 2.0


@dataclass(slots=True)
class Elector:
    """One replica in an election. ``run`` it, wait until ``elected``, and ``release`` at the end."""

    client: LeaseClient
    election: Election
    clock: Clock
    observer: ElectionObserver
    on_renewal: Callable[[float], None] | None = None
    """Called with the monotonic time at which the Lease ends, whenever it is taken or renewed; infinity at the end."""

    _lease: RawObject | None = field(default=None, init=False)
    _seen: tuple[dict[str, Any], float] | None = field(default=None, init=False)
    _renewed: float = field(default=-math.inf, init=False)
    _trouble: str = field(default="", init=False)
    _elected: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    @property
    def is_leading(self) -> bool:
        """Tell whether this replica holds the Lease, as far as it knows."""
        return self._elected.is_set()

    @property
    def seconds_left(self) -> float:
        """How long this replica may still act as the leader; 0 or less when it may not."""
        return self._renewed + self.election.lease_seconds - self.clock.monotonic()

    async def elected(self) -> None:
        """Wait until this replica is the leader."""
        await self._elected.wait()

    async def run(self) -> None:
        """Take the Lease when it is free, then renew it until cancelled. Raises LeadershipLostError."""
        election = self.election
        self.observer.set_leading(election.key.name, leading=False)
        logger.info("Waiting to become the leader", lease=str(election.key), identity=election.identity)
        while not await self._attempt(election.renew_deadline_seconds * _ATTEMPT_SHARE):
            await sleep(self.clock, election.retry_seconds)
        self._elected.set()
        self.observer.set_leading(election.key.name, leading=True)
        logger.info("Became the leader", lease=str(election.key), identity=election.identity)
        try:
            while True:
                await sleep(self.clock, election.retry_seconds)
                await self._renew()
        finally:
            self.observer.set_leading(election.key.name, leading=False)

    async def release(self) -> None:
        """Give the Lease back if this replica holds it, so that the next one need not wait; call it after ``run``."""
        if not self.is_leading or self.seconds_left <= 0:
            return
        self._elected.clear()
        if await self._within(self.election.retry_seconds, self._give_back()):
            logger.info("Gave the Lease back", lease=str(self.election.key))
        self._tell_end_of_lease(math.inf)

    async def _give_back(self) -> bool:
        lease = self._lease = await self.client.get(LEASE, self.election.key)  # a renewal may have been cut short
        if self._holder != self.election.identity:
            return False
        spec = {**_spec(lease), "leaseDurationSeconds": 1, "renewTime": self._timestamp()}
        del spec["holderIdentity"]
        return await self._put({**lease, "spec": spec})

    async def _renew(self) -> None:
        deadline = self._renewed + self.election.renew_deadline_seconds
        while True:
            left = deadline - self.clock.monotonic()
            if left <= 0:
                self._lose(f"it could not be renewed for {self.election.renew_deadline_seconds:g} s: {self._trouble}")
            if await self._attempt(min(left, self.election.renew_deadline_seconds * _ATTEMPT_SHARE)):
                return
            if (holder := self._holder) != self.election.identity:
                self._lose(f"it is held by {holder!r} now")
            await sleep(self.clock, min(self.election.retry_seconds, deadline - self.clock.monotonic()))

    @property
    def _holder(self) -> str:
        return str(_spec(self._lease or {}).get("holderIdentity") or "")

    def _lose(self, why: str) -> NoReturn:
        self._elected.clear()
        error = LeadershipLostError(f"lost the Lease {self.election.key}: {why}")
        logger.error("Lost the leadership", lease=str(self.election.key), error=str(error))
        raise error

    async def _attempt(self, seconds: float) -> bool:
        """Try once to take or renew the Lease; tell whether this replica holds it for sure."""
        started = self.clock.monotonic()
        if not await self._within(seconds, self._take_or_renew()):
            return False
        self._renewed = started  # others count from when they see the renewal, which is later
        self._tell_end_of_lease(started + self.election.lease_seconds)
        return True

    def _tell_end_of_lease(self, expires: float) -> None:
        if self.on_renewal is not None:
            self.on_renewal(expires)

    async def _within(self, seconds: float, work: Coroutine[Any, Any, bool]) -> bool:
        """Do work for so many seconds at most; trouble is told once, not at every attempt."""
        task = asyncio.create_task(work)
        timer = asyncio.create_task(sleep(self.clock, seconds))
        try:
            await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                self._note_trouble(f"no answer within {seconds:g} s")
                return False
            succeeded = task.result()
        except KubeError as error:
            self._note_trouble(str(error))
            return False
        finally:
            for each in (task, timer):
                each.cancel()
        self._trouble = ""
        return succeeded

    def _note_trouble(self, text: str) -> None:
        if text != self._trouble:
            logger.warning("The Lease could not be written or read", lease=str(self.election.key), error=text)
        self._trouble = text

    async def _take_or_renew(self) -> bool:
        if self.is_leading and self._lease is not None:
            try:
                return await self._put(self._claimed(self._lease))
            except (ConflictError, NotFoundError):
                self.observer.count_slow_renewal(self.election.key.name)
        try:
            self._lease = await self.client.get(LEASE, self.election.key)
        except NotFoundError:
            return await self._create()
        if self._holder != self.election.identity and not self._is_free(self._lease):
            return False
        try:
            return await self._put(self._claimed(self._lease))
        except ConflictError:
            return False  # somebody was quicker; whoever it was is seen at the next attempt

    async def _create(self) -> bool:
        metadata = {"name": self.election.key.name, "namespace": self.election.key.namespace}
        lease = {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata}
        try:
            self._lease = await self.client.create(self._claimed(lease))
        except ConflictError:
            return False
        return True

    async def _put(self, lease: RawObject) -> bool:
        self._lease = await self.client.replace(lease)
        return True

    def _is_free(self, lease: RawObject) -> bool:
        """Tell whether nobody holds a Lease, or its holder has not renewed it for as long as it promised."""
        spec = _spec(lease)
        if not spec.get("holderIdentity"):
            return True
        now = self.clock.monotonic()
        if self._seen is None or self._seen[0] != spec:
            self._seen = (spec, now)
        return now >= self._seen[1] + float(spec.get("leaseDurationSeconds") or self.election.lease_seconds)

    def _claimed(self, lease: RawObject) -> RawObject:
        """Return a Lease as it is when this replica holds it from now on, or goes on to hold it."""
        old, now = _spec(lease), self._timestamp()
        is_ours = old.get("holderIdentity") == self.election.identity
        spec = {
            **old,
            "holderIdentity": self.election.identity,
            "leaseDurationSeconds": math.ceil(self.election.lease_seconds),
            "renewTime": now,
            "acquireTime": old.get("acquireTime", now) if is_ours else now,
            "leaseTransitions": int(old.get("leaseTransitions") or 0) + (0 if is_ours or not old else 1),
        }
        return {**lease, "spec": spec}

    def _timestamp(self) -> str:
        return datetime.fromtimestamp(self.clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _spec(lease: RawObject) -> dict[str, Any]:
    found = lease.get("spec")
    return found if isinstance(found, dict) else {}
