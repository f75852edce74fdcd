"""Leader election: of several replicas only the one that holds the Lease works.

A replica without the Lease polls it and takes it when it is free, was released, or has not been renewed for its
duration. The holder renews it. A holder that cannot renew it before its deadline, or that finds another holder, has
lost it and must stop working before another replica may take it; ``seconds_left`` says how much time that leaves.
A guard ends what has not stopped a little before, and from then on nothing is written.
Clocks of different machines are never compared: what counts is how long ago this replica saw the Lease change.

Leader election as the settings ask for it: the Lease and its times.
"""

import asyncio
import math
import socket
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, Protocol

from rolecall.kube.errors import ConflictError, KubeError, NotFoundError
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.yaml_reader import ConfigurationError
from rolecall.runner.election.lease import Attempts, free_lease, held_lease, spec_of
from rolecall.system.clock import Clock, sleep
from rolecall.system.logs import get_logger

logger = get_logger("leader")

LEASE = GVK("coordination.k8s.io", "v1", "Lease")
_ATTEMPT_SHARE = 0.5
"""Of the deadline: the longest time for one attempt, so that a request without an answer leaves time for another."""

_GUARD_SHARE = 0.2
"""Of the time between the deadline and the end of the Lease: what is left when a guard ends this replica."""


class LeadershipLostError(KubeError):
    """The Lease could not be renewed in time, or another replica holds it."""


class LeaseClient(Protocol):
    """What an election needs from the API server; ``rolecall.kube.client.Client`` is one."""

    async def get(self, gvk: GVK, key: ObjectKey) -> RawObject:
        """Return an object. Raises NotFoundError."""
        ...

    async def create(self, obj: RawObject) -> RawObject:
        """Create an object. Raises ConflictError if it exists."""
        ...

    async def replace(self, obj: RawObject) -> RawObject:
        """Replace an object in the version that was read. Raises ConflictError if it has changed."""
        ...


class ElectionObserver(Protocol):
    """Observes an election; must return at once."""

    def set_leading(self, name: str, *, leading: bool) -> None:
        """Take note of whether this replica is the leader."""

    def count_slow_renewal(self, name: str) -> None:
        """Take note of a renewal that had to read the Lease first."""


@dataclass(frozen=True, slots=True)
class Election:
    """The Lease of an election, the identity of this replica, and times in seconds.

    A holder keeps the Lease for ``lease_seconds`` after a renewal and gives up after ``renew_deadline_seconds`` without
    one. Every replica tries again after ``retry_seconds``.
    """

    key: ObjectKey
    identity: str
    lease_seconds: float = 15.0
    renew_deadline_seconds: float = 10.0
    retry_seconds: float = 2.0
    is_membership: bool = False
    """Whether the Lease is this replica's alone: it is made once, and never taken again after it was lost."""

    @property
    def work_seconds(self) -> float:
        """How long after a renewal a holder may work; shorter than the Lease, so that all can end before it does."""
        return self.lease_seconds - (self.lease_seconds - self.renew_deadline_seconds) * _GUARD_SHARE


@dataclass(slots=True)
class Elector:
    """One replica in an election. ``run`` it, wait until ``elected``, and ``release`` at the end."""

    client: LeaseClient
    election: Election
    clock: Clock
    observer: ElectionObserver
    on_renewal: Callable[[float], None] | None = None
    """Called with the monotonic time at which this replica must have ended, whenever that changes; infinity after the
    release of the Lease."""

    _lease: RawObject | None = field(default=None, init=False)
    _seen: tuple[dict[str, Any], float] | None = field(default=None, init=False)
    _renewed: float = field(default=-math.inf, init=False)
    _is_replaced: bool = field(default=False, init=False)
    _attempts: Attempts = field(init=False)
    _elected: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def __post_init__(self) -> None:
        """Prepare the attempts."""
        self._attempts = Attempts(self.clock, str(self.election.key))

    @property
    def is_leading(self) -> bool:
        """Return whether this replica holds the Lease, as far as it knows."""
        return self._elected.is_set()

    @property
    def seconds_left(self) -> float:
        """How long this replica may still act as the leader; 0 or less if it may not."""
        return self._renewed + self.election.lease_seconds - self.clock.monotonic()

    @property
    def may_write(self) -> bool:
        """Return whether no other replica can be the leader while a request that is sent now is on its way."""
        return not self._is_replaced and self.clock.monotonic() < self._renewed + self.election.work_seconds

    async def elected(self) -> None:
        """Wait until this replica is the leader."""
        await self._elected.wait()

    async def run(self) -> None:
        """Take the Lease when it is free, then renew it until cancelled. Raises LeadershipLostError."""
        election = self.election
        self.observer.set_leading(election.key.name, leading=False)
        self._log("Waiting to become the leader")
        while not await self._attempt(election.renew_deadline_seconds * _ATTEMPT_SHARE):
            if election.is_membership and self._lease is not None and self._holder != election.identity:
                self._lose(f"it is held by {self._holder!r} now")
            await sleep(self.clock, election.retry_seconds)
        self._elected.set()
        self.observer.set_leading(election.key.name, leading=True)
        self._log("Became the leader")
        try:
            while True:
                await sleep(self.clock, election.retry_seconds)
                await self._renew()
        finally:
            self.observer.set_leading(election.key.name, leading=False)

    def _log(self, message: str) -> None:
        if not self.election.is_membership:
            logger.info(message, lease=str(self.election.key), identity=self.election.identity)

    async def release(self) -> None:
        """Release the Lease if this replica holds it, so that the next one need not wait. Call it after ``run``."""
        if not self.is_leading or self.seconds_left <= 0:
            return
        self._elected.clear()
        self._renewed = -math.inf  # nothing is written from here on
        if await self._attempts.within(self.election.retry_seconds, self._give_back()):
            logger.info("Released the Lease", lease=str(self.election.key))
        self._tell_end(math.inf)

    async def _give_back(self) -> bool:
        lease = self._lease = await self.client.get(LEASE, self.election.key)  # a renewal may have been cut short
        if self._holder != self.election.identity:
            return False
        return await self._put(free_lease(lease, timestamp(self.clock)))

    async def _renew(self) -> None:
        deadline = self._renewed + self.election.renew_deadline_seconds
        while True:
            left = deadline - self.clock.monotonic()
            if left <= 0:
                seconds = self.election.renew_deadline_seconds
                self._lose(f"it could not be renewed for {seconds:g} s: {self._attempts.trouble}")
            if await self._attempt(min(left, self.election.renew_deadline_seconds * _ATTEMPT_SHARE)):
                return
            if (holder := self._holder) != self.election.identity:
                self._is_replaced = True
                self._lose(f"it is held by {holder!r} now")
            await sleep(self.clock, min(self.election.retry_seconds, deadline - self.clock.monotonic()))

    @property
    def _holder(self) -> str:
        return str(spec_of(self._lease or {}).get("holderIdentity") or "")

    def _lose(self, why: str) -> NoReturn:
        self._elected.clear()
        error = LeadershipLostError(f"lost the Lease {self.election.key}: {why}")
        logger.error("Lost the Lease", lease=str(self.election.key), error=str(error))
        raise error

    async def _attempt(self, seconds: float) -> bool:
        """Try once to take or renew the Lease; return whether this replica holds it for sure."""
        started = self.clock.monotonic()
        if not await self._attempts.within(seconds, self._take_or_renew()):
            return False
        self._renewed = started  # other replicas count from when they see the renewal, which is later
        self._tell_end(started + self.election.work_seconds)
        return True

    def _tell_end(self, when: float) -> None:
        if self.on_renewal is not None:
            self.on_renewal(when)

    async def _take_or_renew(self) -> bool:
        if self.is_leading and self._lease is not None:
            try:
                return await self._put(self._claimed(self._lease))
            except (ConflictError, NotFoundError):
                self.observer.count_slow_renewal(self.election.key.name)
        try:
            self._lease = await self.client.get(LEASE, self.election.key)
        except NotFoundError:
            if self.is_leading and self.election.is_membership:
                self._lease = None
                return False
            return await self._create()
        if self._holder != self.election.identity and not self._may_take(self._lease):
            return False
        try:
            return await self._put(self._claimed(self._lease))
        except ConflictError:
            return False  # another replica was quicker; the next attempt shows which one

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

    def _may_take(self, lease: RawObject) -> bool:
        """Return whether a Lease has no holder, or one that has not renewed it for its duration."""
        if self.election.is_membership:
            return False
        spec = spec_of(lease)
        if not spec.get("holderIdentity"):
            return True
        now = self.clock.monotonic()
        if self._seen is None or self._seen[0] != spec:
            self._seen = (spec, now)
        return now >= self._seen[1] + float(spec.get("leaseDurationSeconds") or self.election.lease_seconds)

    def _claimed(self, lease: RawObject) -> RawObject:
        """Return a Lease that this replica takes or renews now."""
        election = self.election
        return held_lease(lease, election.identity, math.ceil(election.lease_seconds), timestamp(self.clock))


def timestamp(clock: Clock) -> str:
    """Return the time of the wall clock as Leases have it."""
    return datetime.fromtimestamp(clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_RETRY_SECONDS = 2.0
_RETRIES_PER_DEADLINE = 4
MAX_SHARDS = 256
"""Each has a Lease, and every replica reads all of them every two seconds."""


def election_of(settings: Settings, namespace_file: Path = NAMESPACE_FILE) -> Election | None:
    """Return the election to take part in, None without one. Raises ConfigurationError when something is missing."""
    _check_shards(settings)
    if not settings.leader_elect:
        return None
    if not settings.leader_election_id:
        raise ConfigurationError("leader election needs a name for its Lease: give --leader-election-id")
    lease, deadline = settings.lease_duration_seconds, settings.renew_deadline_seconds
    if not 0 < deadline < lease:
        raise ConfigurationError(
            f"--leader-elect-renew-deadline must be above 0 and below --leader-elect-lease-duration, "
            f"found {deadline:g} s and {lease:g} s"
        )
    return Election(
        key=ObjectKey(
            settings.leader_election_namespace or _own_namespace(namespace_file), settings.leader_election_id
        ),
        identity=f"{socket.gethostname()}_{uuid.uuid4()}",
        lease_seconds=lease,
        renew_deadline_seconds=deadline,
        retry_seconds=min(_RETRY_SECONDS, deadline / _RETRIES_PER_DEADLINE),
    )


def _check_shards(settings: Settings) -> None:
    if settings.shards and not settings.leader_elect:
        raise ConfigurationError(f"--shards {settings.shards} needs leader election: give --leader-elect")
    if settings.shards > MAX_SHARDS:
        raise ConfigurationError(f"--shards: expected at most {MAX_SHARDS}, found {settings.shards}")


def _own_namespace(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError:
        raise ConfigurationError(
            "leader election outside of a cluster needs a namespace for its Lease: give --leader-election-namespace"
        ) from None
