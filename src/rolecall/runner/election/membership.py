"""The decisions of a replica about shards, from the Leases that it has seen and from its own clock, without any I/O.

A replica *looks* at all Leases, and then decides what to *write*. Each write replaces a Lease in the version that was
seen, so the API server rejects it if another client has changed the Lease in the meantime. Clocks of replicas are never
compared: a member is dead when its Lease hasn't changed for its duration since this replica saw it. Its Lease is
replaced before its shards are taken, so a renewal that is still on its way is rejected, and the member ends.

There are three kinds of Leases. The *group Lease* has the name of the election; ``shards/<N>`` holds it while any
replica with that number of shards works, so that a replica without shards, or with another number, doesn't. Each
replica has a *member Lease*, which it renews. A *shard Lease* is a record: its holder doesn't renew it, and it is valid
while the member Lease of its holder is.

An object belongs to the same shard on every replica and in every version of Python. FNV-1a spreads even names that
differ in one digit. An object that is deleted and created again stays in its shard, so the replica that may still have
a run of the old one is the one that reconciles the new one.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Self

from rolecall.kube.metadata import annotation_of, resource_version_of, spec_of
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.election.elector import LEASE, Election

PREFERRED_HOLDER_ANNOTATION = "rolecall.dev/next-holder"
"""The member that should take a free shard Lease next."""

PREFERENCE_SECONDS = 4.0
"""How long other members leave a free shard to its preferred holder."""

_RENEW_SHARE = 0.5
"""Of the renewal deadline: after so long without a sign of a renewal, every member renews the group Lease."""

_OFFSET, _PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1
"""The parameters of the 64-bit FNV-1a hash."""


def with_preferred_holder(lease: RawObject, holder: str) -> RawObject:
    """Return a Lease that names its preferred next holder; an empty one removes the annotation."""
    metadata = lease["metadata"]
    annotations = {**(metadata.get("annotations") or {}), PREFERRED_HOLDER_ANNOTATION: holder}
    kept = {name: value for name, value in annotations.items() if value or name != PREFERRED_HOLDER_ANNOTATION}
    return {**lease, "metadata": {**metadata, "annotations": kept}}


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """One Lease as it was listed, with its kind, which lists omit.

    ``version`` is its resourceVersion, ``seconds`` its duration (0 if it has none).
    """

    name: str
    holder: str
    version: str
    seconds: float
    preferred_holder: str
    lease: RawObject

    @classmethod
    def of(cls, lease: RawObject) -> Self:
        """Return the record of a Lease."""
        spec = spec_of(lease)
        return cls(
            str(lease["metadata"]["name"]),
            str(spec.get("holderIdentity") or ""),
            resource_version_of(lease),
            float(spec.get("leaseDurationSeconds") or 0),
            annotation_of(lease, PREFERRED_HOLDER_ANNOTATION) or "",
            {**lease, "apiVersion": LEASE.api_version, "kind": LEASE.kind},
        )


@dataclass(frozen=True, slots=True)
class LeaseView:
    """All Leases at one moment: the group Lease, member Leases by name, shard Leases by index."""

    group: LeaseRecord | None
    members: Mapping[str, LeaseRecord]
    shards: Mapping[int, LeaseRecord]


@dataclass(frozen=True, slots=True)
class LeaseNames:
    """The names of the Leases of one election with ``count`` shards; ``group`` is the Lease of the election."""

    group: ObjectKey
    count: int

    @property
    def group_holder(self) -> str:
        """The holder of the group Lease."""
        return f"shards/{self.count}"

    def member(self, identity: str) -> ObjectKey:
        """Return the Lease of a member; the part of an identity behind the last ``_`` is unique."""
        return ObjectKey(self.group.namespace, f"{self._member_prefix}{identity.rpartition('_')[2]}")

    def shard(self, index: int) -> ObjectKey:
        """Return the Lease of a shard."""
        return ObjectKey(self.group.namespace, f"{self.group.name}-shard-{index}-of-{self.count}")

    @property
    def _member_prefix(self) -> str:
        return f"{self.group.name}-member-of-{self.count}-"

    def view(self, leases: Iterable[RawObject]) -> LeaseView:
        """Return the view of a list of Leases; those of other elections are ignored."""
        records = {record.name: record for record in map(LeaseRecord.of, leases)}
        shards = {index: records.get(self.shard(index).name) for index in range(self.count)}
        return LeaseView(
            records.get(self.group.name),
            {name: record for name, record in records.items() if name.startswith(self._member_prefix)},
            {index: record for index, record in shards.items() if record is not None},
        )


def quotas(held: Mapping[str, int], count: int) -> dict[str, int]:
    """Return how many of ``count`` shards each member should hold, given how many each holds.

    The quotas are as even as possible, and few shards move: members that hold most keep most, so nothing moves back and
    forth. Members that see the same Leases compute the same quotas.
    """
    most_first = sorted(held, key=lambda member: (-held[member], member))
    share, rest = divmod(count, len(held))
    return {member: share + (position < rest) for position, member in enumerate(most_first)}


@dataclass(slots=True)
class LeaseObservations:
    """When a replica saw each Lease for the first time, and when it last saw it change, by its own clock."""

    _observed: dict[str, tuple[str, float, float]] = field(default_factory=dict)

    def update(self, versions: Mapping[str, str], now: float) -> None:
        """Record the versions of all existing Leases by name; forget all others."""
        observed = {}
        for name, version in versions.items():
            before, first, changed = self._observed.get(name, (version, now, now))
            observed[name] = (version, first, changed if before == version else now)
        self._observed = observed

    def first(self, name: str, default: float) -> float:
        """Return when a Lease was seen for the first time."""
        return self._observed[name][1] if name in self._observed else default

    def changed(self, name: str, default: float) -> float:
        """Return when a Lease was last seen to change its version."""
        return self._observed[name][2] if name in self._observed else default


class Purpose(Enum):
    """The purpose of a write."""

    GROUP = auto()
    """Take or renew the group Lease."""
    FENCE = auto()
    """Take the Lease of a dead member from it."""
    REMOVE = auto()
    """Remove the Lease of an ended member whose shards have other holders."""
    TAKE = auto()
    """Become the holder of a shard."""
    GIVE_UP = auto()
    """Free a shard for which nothing works any longer."""


@dataclass(frozen=True, slots=True)
class Write:
    """A Lease to write in the version that was seen; without a ``record`` it is created."""

    purpose: Purpose
    key: ObjectKey
    record: LeaseRecord | None
    index: int = -1
    preferred_holder: str = ""


@dataclass(slots=True)
class Handoff:
    """The shard that is being handed over; it ``is_idle`` when nothing works for it any longer."""

    index: int
    preferred_holder: str
    is_idle: bool = False


class Membership:
    """One replica of a group that shares the objects. ``see`` the Leases, then ``decide`` what to write."""

    def __init__(self, election: Election, names: LeaseNames) -> None:
        self.names = names
        self.held: set[int] = set()
        self.handoff: Handoff | None = None
        self.is_joined = False
        self.is_replaced = False
        self.group_since = -math.inf
        """When the group Lease was certainly valid for its whole duration; minus infinity if that is unknown."""
        self._election = election
        self._own = names.member(election.identity).name
        self.view = LeaseView(None, {}, {})
        self._observations = LeaseObservations()
        self._looked_at = -math.inf
        self._group_seconds = election.lease_seconds

    def see(self, view: LeaseView, started: float, now: float) -> None:
        """Record the result of a look that was sent at ``started``."""
        group, group_before = view.group, self.view.group
        is_renewed = group is not None and group_before is not None and group_before.version != group.version
        if group is not None and is_renewed and group.holder == self.names.group_holder:
            # It was renewed after the previous look had been sent.
            self.group_since = max(self.group_since, self._looked_at)
            self._group_seconds = group.seconds or self._election.lease_seconds
        self.view, self._looked_at = view, started
        records = [*([group] if group else []), *view.members.values(), *view.shards.values()]
        holders = {self.names.member(record.holder).name for record in view.shards.values() if record.holder}
        missing = dict.fromkeys(holders - view.members.keys(), "")
        self._observations.update({record.name: record.version for record in records} | missing, now)
        self.held = {index for index, record in view.shards.items() if record.holder == self._election.identity}
        if self.handoff is not None:
            index = self.handoff.index
            if self.handoff.is_idle and index not in self.held:
                self.handoff = None
            self.held.discard(index)

    @property
    def group_deadline(self) -> float:
        """When this replica is lost unless the group Lease is renewed before; infinity until it is a member."""
        return self.group_since + self._election.renew_deadline_seconds if self.is_joined else math.inf

    @property
    def group_end(self) -> float:
        """Until when this replica may work according to the group Lease."""
        election = self._election
        margin = election.lease_seconds - election.work_seconds
        return self.group_since + min(self._group_seconds, election.lease_seconds) - margin

    @property
    def group_holder(self) -> str:
        """The holder of the group Lease, empty if it has none."""
        return "" if self.view.group is None else self.view.group.holder

    def may_join(self, now: float) -> bool:
        """Return whether the group Lease is free, or held by replicas with the same number of shards."""
        group = self.view.group
        return group is None or group.holder in ("", self.names.group_holder) or self._has_expired(group, now)

    def why_lost(self, now: float) -> str:
        """Return why this replica is no longer a member, empty if it is one or has not been one yet."""
        if not self.is_joined:
            return ""
        if self.group_holder not in ("", self.names.group_holder):
            self.is_replaced = True
            return f"it is held by {self.group_holder!r} now"
        seconds = self._election.renew_deadline_seconds
        return f"it could not be read or renewed for {seconds:g} s" if now >= self.group_deadline else ""

    def members(self, now: float) -> list[str]:
        """Return the identities of the members that count: seen for the duration of a Lease, and still valid."""
        duration = self._election.lease_seconds
        others = [
            record.holder
            for name, record in self.view.members.items()
            if name != self._own
            and self._is_alive(record, now)
            and now >= self._observations.first(record.name, now) + duration
        ]
        return sorted([*others, self._election.identity])

    def has_members(self, now: float) -> bool:
        """Return whether there may be a member, also one that doesn't count yet."""
        return any(self._is_alive(record, now) for record in self.view.members.values())

    def decide(self, now: float) -> Iterator[Write]:
        """Yield the writes after a look, in this order."""
        is_first = self._election.identity == self.members(now)[0]
        age = now - self.group_since
        is_due = age >= self._election.retry_seconds and is_first
        is_overdue = age >= self._election.renew_deadline_seconds * _RENEW_SHARE
        if self.may_join(now) and (not self.is_joined or is_due or is_overdue):
            yield Write(Purpose.GROUP, self.names.group, self.view.group)
        if not self.is_joined:
            return
        for record in self.view.members.values():
            if record.name != self._own and record.holder and self._has_expired(record, now):
                yield Write(Purpose.FENCE, self._key(record), record)
        if is_first:
            holders = {record.holder for record in self.view.shards.values() if record.holder}
            needed = {self.names.member(holder).name for holder in holders}
            for record in self.view.members.values():
                if not record.holder and record.name not in needed:
                    yield Write(Purpose.REMOVE, self._key(record), record)
        handoff = self.handoff
        if handoff is not None and handoff.is_idle and handoff.index in self.view.shards:
            yield self._shard_write(Purpose.GIVE_UP, handoff.index, handoff.preferred_holder)
        yield from (self._shard_write(Purpose.TAKE, index) for index in self._shards_to_take(now))

    def written(self, write: Write, started: float) -> None:
        """Record that a write, which was sent at ``started``, has succeeded."""
        if write.purpose is Purpose.GROUP:
            self.group_since = max(self.group_since, started)
            self._group_seconds = self._election.lease_seconds
            self.is_joined = True
            self.view = replace(self.view, group=None)  # the seen Lease is outdated; the next look shows the new one
        elif write.purpose is Purpose.TAKE:
            self.held.add(write.index)
        elif write.purpose is Purpose.GIVE_UP:
            self.handoff = None

    def begin_handoff(self, now: float) -> Handoff | None:
        """Choose a shard to hand over, and stop holding it; None if this replica hasn't too many."""
        if not self.is_joined or self.handoff is not None:
            return None
        counts = self._counts(now)
        quota = quotas(counts, self.names.count)
        lacking = {each: quota[each] - count for each, count in counts.items() if count < quota[each]}
        if len(self.held) <= quota[self._election.identity] or not lacking:
            return None
        self.handoff = Handoff(max(self.held), min(lacking, key=lambda each: (-lacking[each], each)))
        self.held.remove(self.handoff.index)
        return self.handoff

    def _has_expired(self, record: LeaseRecord, now: float) -> bool:
        return now >= self._observations.changed(record.name, now) + (record.seconds or self._election.lease_seconds)

    def _is_alive(self, record: LeaseRecord, now: float) -> bool:
        return bool(record.holder) and not self._has_expired(record, now)

    def _counts(self, now: float) -> dict[str, int]:
        """Return how many shards each member holds."""
        holders = [record.holder for record in self.view.shards.values()]
        counts = {each: holders.count(each) for each in self.members(now)}
        return counts | {self._election.identity: len(self.held)}

    def _shards_to_take(self, now: float) -> list[int]:
        """Return the free shards that this replica takes now: those that prefer it first."""
        identity, count = self._election.identity, self.names.count
        room = quotas(self._counts(now), count)[identity] - len(self.held)
        handing_over = self.handoff.index if self.handoff else -1
        free = [index for index in range(count) if index != handing_over and self._is_free(index, now)]
        offset = sum(identity.encode()) % count  # members that start at the same time try different shards
        free.sort(key=lambda index: (self._preferred_holder(index) != identity, (index - offset) % count))
        wanted = [index for index in free if not self._is_left_to_another(index, now)]
        if room > 0:
            return wanted[:room]
        # Their preferred holders haven't taken them: better one too many than a shard for which no member works.
        return [index for index in wanted if self._has_waited(index, 2 * PREFERENCE_SECONDS, now)][:1]

    def _is_free(self, index: int, now: float) -> bool:
        record = self.view.shards.get(index)
        if record is None or not record.holder:
            return True
        name = self.names.member(record.holder).name
        member = self.view.members.get(name)
        if member is None:  # a person has removed it, and its holder may not know yet
            return now >= self._observations.first(name, now) + self._election.lease_seconds
        return not member.holder

    def _preferred_holder(self, index: int) -> str:
        record = self.view.shards.get(index)
        return record.preferred_holder if record is not None and not record.holder else ""

    def _is_left_to_another(self, index: int, now: float) -> bool:
        preferred = self._preferred_holder(index)
        if preferred in ("", self._election.identity):
            return False
        member = self.view.members.get(self.names.member(preferred).name)
        is_there = member is not None and self._is_alive(member, now)
        return is_there and not self._has_waited(index, PREFERENCE_SECONDS, now)

    def _has_waited(self, index: int, seconds: float, now: float) -> bool:
        record = self.view.shards.get(index)
        return record is not None and now >= self._observations.changed(record.name, now) + seconds

    def _shard_write(self, purpose: Purpose, index: int, preferred_holder: str = "") -> Write:
        return Write(purpose, self.names.shard(index), self.view.shards.get(index), index, preferred_holder)

    def _key(self, record: LeaseRecord) -> ObjectKey:
        return ObjectKey(self.names.group.namespace, record.name)


def fnv1a_64(data: bytes) -> int:
    """Return the 64-bit FNV-1a hash of some bytes."""
    value = _OFFSET
    for byte in data:
        value = (value ^ byte) * _PRIME & _MASK
    return value


def shard_of(group: str, kind: str, key: ObjectKey, count: int) -> int:
    """Return the shard of an object, of ``count`` shards."""
    return fnv1a_64(f"{group}/{kind}/{key.namespace}/{key.name}".encode()) % count
