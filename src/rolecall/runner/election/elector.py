"""Leader election: of several replicas only the one that holds the Lease works.

A replica without the Lease polls it and takes it when it is free, was released, or has not been renewed for its
duration. The holder renews it. A holder that can't renew it before its deadline, or that finds another holder, has lost
it and must stop working before another replica may take it; ``seconds_left`` is the time until then. The guard kills
a replica that hasn't stopped shortly before, and from then on nothing is written.
Clocks of different machines are never compared: only the time since this replica saw the Lease change counts.
"""

import asyncio
import math
import random
import socket
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never, NoReturn

from rolecall.kube.client import Client
from rolecall.kube.errors import ConflictError, KubeError, NotFoundError
from rolecall.kube.metadata import spec_of
from rolecall.kube.quantities import time_text
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.yaml_reader import ConfigurationError
from rolecall.system.clock import Clock, sleep
from rolecall.system.logs import get_logger

if TYPE_CHECKING:  # tools without metrics use LeadershipLostError too
    from rolecall.runner.serving.metrics import OperatorMetrics

LEASE = GVK("coordination.k8s.io", "v1", "Lease")

logger = get_logger("leader")

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
MAX_SHARDS = 256
"""Each has a Lease, and every replica reads all of them every two seconds."""

_RETRY_SECONDS = 2.0
_RETRIES_PER_DEADLINE = 4
_ATTEMPT_SHARE = 0.5
"""Of the deadline: the longest time for one attempt, so that a request without a response leaves time for another."""

_GUARD_SHARE = 0.2
"""Of the time between the deadline and the end of the Lease: the rest when the guard kills this replica."""


class LeadershipLostError(KubeError):
    """The Lease couldn't be renewed in time, or another replica holds it."""


@dataclass(frozen=True, slots=True)
class Election:
    """The Lease of an election, the identity of this replica, and times in seconds.

    A holder keeps the Lease for ``lease_seconds`` after a renewal and gives up after ``renew_deadline_seconds`` without
    one. Every replica tries again after ``retry_seconds``.
    """

    key: ObjectKey
    identity: str
    lease_seconds: float
    renew_deadline_seconds: float
    retry_seconds: float
    member_of: str = ""
    """The election whose member Lease this is: only its member creates it, and never takes it again after a loss."""

    @property
    def name(self) -> str:
        """The name of the election in metrics."""
        return self.member_of or self.key.name

    @property
    def work_seconds(self) -> float:
        """How long after a renewal a holder may work; shorter than the Lease, so that all can end before it does."""
        return self.lease_seconds - (self.lease_seconds - self.renew_deadline_seconds) * _GUARD_SHARE


def election_of(settings: Settings, namespace_file: Path = NAMESPACE_FILE) -> Election | None:
    """Return the election to take part in, None without one. Raises ConfigurationError if a setting is missing."""
    if settings.shards and not settings.leader_elect:
        raise ConfigurationError(f"--shards {settings.shards} needs leader election: give --leader-elect")
    if settings.shards > MAX_SHARDS:
        raise ConfigurationError(f"--shards: expected at most {MAX_SHARDS}, found {settings.shards}")
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
    namespace = settings.leader_election_namespace
    if not namespace:
        try:
            namespace = namespace_file.read_text(encoding="utf-8").strip()
        except OSError:
            raise ConfigurationError(
                "leader election outside a cluster needs a namespace for its Lease: give --leader-election-namespace"
            ) from None
    return Election(
        key=ObjectKey(namespace, settings.leader_election_id),
        identity=f"{socket.gethostname()}_{uuid.UUID(int=random.getrandbits(128), version=4)}",
        lease_seconds=lease,
        renew_deadline_seconds=deadline,
        retry_seconds=min(_RETRY_SECONDS, deadline / _RETRIES_PER_DEADLINE),
    )


def leadership_lost(election: Election, why: str) -> LeadershipLostError:
    """Log that a Lease was lost, and return the error."""
    error = LeadershipLostError(f"lost the Lease {election.key}: {why}")
    logger.error("Lost the Lease", lease=str(election.key), error=str(error))
    return error


@dataclass(slots=True)
class Attempts:
    """Attempts to read or write a Lease, each limited in time; a repeated error is logged once."""

    clock: Clock
    lease: str
    last_error: str = field(default="", init=False)
    """Why the last attempt failed, empty if it succeeded."""

    async def within(self, seconds: float, work: Coroutine[Any, Any, bool]) -> bool:
        """Return the result of the work; False if it raises a KubeError or hasn't ended after so many seconds."""
        task = asyncio.create_task(work)
        timer = asyncio.create_task(sleep(self.clock, seconds))
        succeeded, error_text = False, ""
        try:
            await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                succeeded = task.result()
            else:
                error_text = f"no answer within {seconds:g} s"
        except KubeError as error:
            error_text = str(error)
        finally:
            for each in (task, timer):
                each.cancel()
        if error_text and error_text != self.last_error:
            logger.warning("Failed to read or write the Lease", lease=self.lease, error=error_text)
        self.last_error = error_text
        return succeeded


@dataclass(slots=True)
class Elector:
    """One replica in an election. ``run`` it, wait until ``elected``, and ``release`` at the end."""

    client: Client
    election: Election
    clock: Clock
    metrics: "OperatorMetrics"
    on_renewal: Callable[[float], None] = lambda _end: None
    """Called with the monotonic time at which this replica must have ended, whenever that changes; infinity after the
    release of the Lease."""

    _lease: RawObject | None = field(default=None, init=False)
    _seen: tuple[dict[str, Any], float] | None = field(default=None, init=False)
    _renewed: float = field(default=-math.inf, init=False)
    _is_replaced: bool = field(default=False, init=False)
    _attempts: Attempts = field(init=False)
    elected: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set while this replica holds the Lease, as far as it knows."""

    def __post_init__(self) -> None:
        """Prepare the attempts."""
        self._attempts = Attempts(self.clock, str(self.election.key))

    @property
    def is_leading(self) -> bool:
        """Return whether this replica holds the Lease, as far as it knows."""
        return self.elected.is_set()

    @property
    def seconds_left(self) -> float:
        """How long this replica may still act as the leader; 0 or less if it isn't permitted to."""
        return self._renewed + self.election.lease_seconds - self.clock.monotonic()

    @property
    def may_write(self) -> bool:
        """Return whether no other replica can be the leader while a request that is sent now is on its way."""
        return not self._is_replaced and self.clock.monotonic() < self._renewed + self.election.work_seconds

    async def run(self) -> Never:
        """Take the Lease when it is free, then renew it until cancelled. Raises LeadershipLostError."""
        election = self.election
        self._report(leading=False)
        while not await self._attempt(election.renew_deadline_seconds * _ATTEMPT_SHARE):
            if election.member_of and self._lease is not None and self.holder != election.identity:
                self._lose(f"it is held by {self.holder!r} now")
            await sleep(self.clock, election.retry_seconds)
        self.elected.set()
        self._report(leading=True)
        try:
            while True:
                await sleep(self.clock, election.retry_seconds)
                await self._renew()
        finally:
            if not election.member_of:
                self.metrics.set_leading(election.name, leading=False)

    async def release(self) -> None:
        """Release the Lease if this replica holds it, so that the next one takes it soon. Call it after ``run``."""
        if not self.is_leading or self.seconds_left <= 0:
            return
        self.elected.clear()
        self._renewed = -math.inf  # nothing is written from here on
        if await self._attempts.within(self.election.retry_seconds, self._free()):
            logger.info("Released the Lease", lease=str(self.election.key))
        self.on_renewal(math.inf)

    def _report(self, *, leading: bool) -> None:
        """Log and count the state of the election; members report it for their group."""
        election = self.election
        if election.member_of:
            return
        self.metrics.set_leading(election.name, leading=leading)
        message = "Became the leader" if leading else "Waiting to become the leader"
        logger.info(message, lease=str(election.key), identity=election.identity)

    async def _free(self) -> bool:
        self._lease = await self.client.get(LEASE, self.election.key)  # a renewal may have been interrupted
        if self.holder != self.election.identity:
            return False
        await self.client.replace(free_lease(self._lease, timestamp(self.clock)))
        return True

    async def _renew(self) -> None:
        """Renew the Lease before its deadline. Raises LeadershipLostError."""
        election = self.election
        deadline = self._renewed + election.renew_deadline_seconds
        while True:
            left = deadline - self.clock.monotonic()
            if left <= 0:
                seconds, error = election.renew_deadline_seconds, self._attempts.last_error
                self._lose(f"it could not be renewed for {seconds:g} s: {error}")
            if await self._attempt(min(left, election.renew_deadline_seconds * _ATTEMPT_SHARE)):
                return
            if (holder := self.holder) != election.identity:
                self._is_replaced = True
                self._lose(f"it is held by {holder!r} now")
            await sleep(self.clock, min(election.retry_seconds, deadline - self.clock.monotonic()))

    @property
    def holder(self) -> str:
        """The identity of the replica that held the Lease when this one read it last, empty if none did."""
        return str(spec_of(self._lease or {}).get("holderIdentity") or "")

    def _lose(self, why: str) -> NoReturn:
        self.elected.clear()
        raise leadership_lost(self.election, why)

    async def _attempt(self, seconds: float) -> bool:
        """Try once to take or renew the Lease; return whether this replica certainly holds it."""
        started = self.clock.monotonic()
        if not await self._attempts.within(seconds, self._take_or_renew()):
            return False
        self._renewed = started  # other replicas count from the time at which they see the renewal, which is later
        self.on_renewal(started + self.election.work_seconds)
        return True

    async def _take_or_renew(self) -> bool:
        election, held = self.election, self._lease if self.is_leading else None
        if held is not None:
            try:
                self._lease = await self.client.replace(self._claimed(held))
            except (ConflictError, NotFoundError):
                self.metrics.count_slow_renewal(election.name)
            else:
                return True
        try:
            self._lease = await self.client.get(LEASE, election.key)
        except NotFoundError:
            if held is not None and election.member_of:
                self._lease = None
                return False
            write = self.client.create(self._claimed(new_lease(election.key)))
        else:
            if self.holder != election.identity and not self._may_take(self._lease):
                return False
            write = self.client.replace(self._claimed(self._lease))
        try:
            self._lease = await write
        except ConflictError:
            return False  # another replica was faster; the next attempt shows which one
        return True

    def _may_take(self, lease: RawObject) -> bool:
        """Return whether a Lease has no holder, or one that hasn't renewed it for its duration."""
        if self.election.member_of:
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
    """Return the time of the wall clock in the format of Leases."""
    return time_text(clock.now(), "microseconds")


def new_lease(key: ObjectKey) -> RawObject:
    """Return a Lease without a spec."""
    metadata = {"name": key.name, "namespace": key.namespace}
    return {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata}


def held_lease(lease: RawObject, holder: str, seconds: int, now: str) -> RawObject:
    """Return a Lease that its holder takes or renews."""
    old = spec_of(lease)
    is_renewed = old.get("holderIdentity") == holder
    spec = {
        **old,
        "holderIdentity": holder,
        "leaseDurationSeconds": seconds,
        "renewTime": now,
        "acquireTime": old.get("acquireTime", now) if is_renewed else now,
        "leaseTransitions": int(old.get("leaseTransitions") or 0) + (0 if is_renewed or not old else 1),
    }
    return {**lease, "spec": spec}


def free_lease(lease: RawObject, now: str) -> RawObject:
    """Return a Lease without a holder."""
    spec = {**spec_of(lease), "leaseDurationSeconds": 1, "renewTime": now}
    spec.pop("holderIdentity", None)
    return {**lease, "spec": spec}
