"""What a replica does about shards, decided from the Leases that it has seen and from its own clock, without any I/O.

A replica *looks* at all Leases, and then decides what to *write*. Each write replaces a Lease in the version that was
seen, so what somebody else has changed meanwhile is refused. Clocks of replicas are never compared: a member is dead
when its Lease has not changed for its duration since this replica saw it. Its Lease is replaced before its shards are
taken, so a renewal that is still on its way is refused, and the member ends.

How many shards each member shall hold: as even as possible, and so that few shards move.

Members that look at the same Leases find the same quotas. Whoever holds most keeps most, so nothing moves back and
forth.

When a replica saw each Lease for the first time, and when it last saw it change, by its own clock.

Which shard an object belongs to: the same on every replica, in every version of Python, for ever.

FNV-1a spreads even names that differ in one digit. An object that is deleted and made anew stays in its shard, so the
replica that may still have a run of the old one is the one that reconciles the new one.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from rolecall.kube.references import ObjectKey
from rolecall.runner.election.elector import Election
from rolecall.runner.election.lease import LeaseNames, Record, View


def quotas(held: Mapping[str, int], count: int) -> dict[str, int]:
    """Return how many of ``count`` shards each member shall hold, given how many each holds."""
    most_first = sorted(held, key=lambda member: (-held[member], member))
    share, rest = divmod(count, len(held))
    return {member: share + (position < rest) for position, member in enumerate(most_first)}


@dataclass(slots=True)
class LeaseObservations:
    """Remembers Leases by name, each with its version."""

    _seen: dict[str, tuple[str, float, float]] = field(default_factory=dict)

    def see(self, versions: Mapping[str, str], now: float) -> None:
        """Take note of all Leases that are there; what is not there any more is forgotten."""
        self._seen = {name: self._updated(name, version, now) for name, version in versions.items()}

    def first(self, name: str, default: float) -> float:
        """Return when a Lease was seen for the first time."""
        return self._seen[name][1] if name in self._seen else default

    def changed(self, name: str, default: float) -> float:
        """Return when a Lease was last seen to be another version."""
        return self._seen[name][2] if name in self._seen else default

    def _updated(self, name: str, version: str, now: float) -> tuple[str, float, float]:
        before, first, changed = self._seen.get(name, (version, now, now))
        return version, first, changed if before == version else now


PREFERENCE_SECONDS = 4.0
"""How long a free shard is left to the member that it is meant for."""

_RENEW_SHARE = 0.5
"""Of the renewal deadline: after so long without a sign of a renewal, every member renews the group Lease."""


class Purpose(Enum):
    """What a write is for."""

    GROUP = auto()
    """Take or renew the Lease of the group."""
    FENCE = auto()
    """Take the Lease of a dead member from it."""
    REMOVE = auto()
    """Remove the Lease of a member that has ended and whose shards have others."""
    TAKE = auto()
    """Become the holder of a shard."""
    GIVE_UP = auto()
    """Make a shard free that nothing works for any more."""


@dataclass(frozen=True, slots=True)
class Write:
    """A Lease to write in the version that was seen; without a ``record`` it is made."""

    purpose: Purpose
    key: ObjectKey
    record: Record | None
    index: int = -1
    preferred_holder: str = ""


@dataclass(slots=True)
class Handoff:
    """The shard that is being handed over; it ``is_idle`` when nothing works for it any more."""

    index: int
    preferred_holder: str
    is_idle: bool = False


class Membership:
    """One replica among those that share the work. ``see`` the Leases, then ``decide`` what to write."""

    def __init__(self, election: Election, names: LeaseNames) -> None:
        self.names = names
        self.held: set[int] = set()
        self.handoff: Handoff | None = None
        self.is_joined = False
        self.is_replaced = False
        self._election = election
        self._own = names.member(election.identity).name
        self._view = View(None, {}, {})
        self._observations = LeaseObservations()
        self._looked_at = -math.inf
        self._group_since = -math.inf
        self._group_seconds = election.lease_seconds

    def see(self, view: View, started: float, now: float) -> None:
        """Take note of what a look showed that was sent at ``started``."""
        self._note_group(view)
        self._view, self._looked_at = view, started
        group = (view.group,) if view.group is not None else ()
        seen = {record.name: record.version for record in (*group, *view.members.values(), *view.shards.values())}
        missing = dict.fromkeys(self._unseen_holders(view), "")
        self._observations.see(seen | missing, now)
        self._note_shards(view)

    @property
    def group_since(self) -> float:
        """When the group Lease was surely still valid for its whole duration; minus infinity if that is not known."""
        return self._group_since

    @property
    def group_deadline(self) -> float:
        """When this replica is lost unless the group Lease is renewed before; infinity while it is no member."""
        return self._group_since + self._election.renew_deadline_seconds if self.is_joined else math.inf

    @property
    def group_end(self) -> float:
        """Until when this replica may work as far as the group Lease is concerned."""
        election = self._election
        margin = election.lease_seconds - election.work_seconds
        return self._group_since + min(self._group_seconds, election.lease_seconds) - margin

    @property
    def group_holder(self) -> str:
        """Who holds the group Lease, empty if nobody does."""
        return "" if self._view.group is None else self._view.group.holder

    def may_join(self, now: float) -> bool:
        """Return whether the group Lease is held by replicas with the same number of shards, or by nobody."""
        group = self._view.group
        return group is None or group.holder in ("", self.names.group_holder) or self._is_over(group, now)

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
        """Return the identities of the members that count: seen for as long as their Lease lasts, and still valid."""
        others = [
            record.holder
            for name, record in self._view.members.items()
            if name != self._own and self._is_alive(record, now) and self._is_established(record, now)
        ]
        return sorted([*others, self._election.identity])

    def has_members(self, now: float) -> bool:
        """Return whether there may be a member, also one that does not count yet."""
        return any(self._is_alive(record, now) for record in self._view.members.values())

    def decide(self, now: float) -> Iterator[Write]:
        """Yield what to write after a look, in this order."""
        if self.may_join(now) and self._should_renew_group(now):
            yield Write(Purpose.GROUP, self.names.group, self._view.group)
        if not self.is_joined:
            return
        fenced = [record for record in self._view.members.values() if self._is_dead(record, now)]
        yield from (Write(Purpose.FENCE, self._key(record), record) for record in fenced)
        if self._is_first(now):
            yield from (Write(Purpose.REMOVE, self._key(record), record) for record in self._unneeded_members())
        handoff = self.handoff
        if handoff is not None and handoff.is_idle and handoff.index in self._view.shards:
            yield self._shard_write(Purpose.GIVE_UP, handoff.index, handoff.preferred_holder)
        yield from (self._shard_write(Purpose.TAKE, index) for index in self._shards_to_take(now))

    def written(self, write: Write, started: float) -> None:
        """Take note that a write, which was sent at ``started``, has succeeded."""
        if write.purpose is Purpose.GROUP:
            self._group_since = max(self._group_since, started)
            self._group_seconds = self._election.lease_seconds
            self.is_joined = True
            self._view = replace(self._view, group=None)  # what was seen is over; the next look shows what is there
        elif write.purpose is Purpose.TAKE:
            self.held.add(write.index)
        elif write.purpose is Purpose.GIVE_UP:
            self.handoff = None

    def begin_handoff(self, now: float) -> Handoff | None:
        """Choose a shard to hand over, which is not held from now on; None if this replica has not too many."""
        if not self.is_joined or self.handoff is not None:
            return None
        counts = self._counts(now)
        quota = quotas(counts, self.names.count)
        lacking = {each: quota[each] - count for each, count in counts.items() if count < quota[each]}
        if len(self.held) <= quota[self._election.identity] or not lacking:
            return None
        preferred_holder = min(lacking, key=lambda each: (-lacking[each], each))
        self.handoff = Handoff(max(self.held), preferred_holder)
        self.held.remove(self.handoff.index)
        return self.handoff

    def _note_group(self, view: View) -> None:
        group, before = view.group, self._view.group
        if group is None:
            return
        is_ours = group.holder == self.names.group_holder
        if is_ours and before is not None and before.version != group.version:
            # It was renewed after the look before this one had been sent.
            self._group_since = max(self._group_since, self._looked_at)
            self._group_seconds = group.seconds or self._election.lease_seconds

    def _note_shards(self, view: View) -> None:
        mine = {index for index, record in view.shards.items() if record.holder == self._election.identity}
        if self.handoff is not None:
            index = self.handoff.index
            if self.handoff.is_idle and index not in mine:
                self.handoff = None
            mine.discard(index)
        self.held = mine

    def _should_renew_group(self, now: float) -> bool:
        if not self.is_joined:
            return True
        age = now - self._group_since
        is_due = age >= self._election.retry_seconds and self._is_first(now)
        return is_due or age >= self._election.renew_deadline_seconds * _RENEW_SHARE

    def _is_first(self, now: float) -> bool:
        return self._election.identity == self.members(now)[0]

    def _is_over(self, record: Record, now: float) -> bool:
        return now >= self._observations.changed(record.name, now) + (record.seconds or self._election.lease_seconds)

    def _is_alive(self, record: Record, now: float) -> bool:
        return bool(record.holder) and not self._is_over(record, now)

    def _is_dead(self, record: Record, now: float) -> bool:
        return record.name != self._own and bool(record.holder) and self._is_over(record, now)

    def _is_established(self, record: Record, now: float) -> bool:
        return now >= self._observations.first(record.name, now) + self._election.lease_seconds

    def _unneeded_members(self) -> list[Record]:
        needed = {self.names.member(record.holder).name for record in self._view.shards.values() if record.holder}
        return [each for name, each in self._view.members.items() if not each.holder and name not in needed]

    def _unseen_holders(self, view: View) -> set[str]:
        """Return the names of the member Leases that holders of shards should have and have not."""
        named = {self.names.member(record.holder).name for record in view.shards.values() if record.holder}
        return named - view.members.keys()

    def _counts(self, now: float) -> dict[str, int]:
        """Return how many shards each member holds."""
        holders = [record.holder for record in self._view.shards.values()]
        counts = {each: holders.count(each) for each in self.members(now)}
        return counts | {self._election.identity: len(self.held)}

    def _shards_to_take(self, now: float) -> list[int]:
        """Return the free shards that this replica takes now: those that are meant for it first."""
        identity, count = self._election.identity, self.names.count
        room = quotas(self._counts(now), count)[identity] - len(self.held)
        handing_over = self.handoff.index if self.handoff else -1
        free = [index for index in range(count) if index != handing_over and self._is_free(index, now)]
        offset = sum(identity.encode()) % count  # members that start together try different shards
        free.sort(key=lambda index: (self._heir_of(index) != identity, (index - offset) % count))
        wanted = [index for index in free if not self._is_left_to_another(index, now)]
        if room > 0:
            return wanted[:room]
        # Whoever should have taken it has not: better one too many than one that nobody works for.
        return [index for index in wanted if self._has_waited(index, 2 * PREFERENCE_SECONDS, now)][:1]

    def _is_free(self, index: int, now: float) -> bool:
        record = self._view.shards.get(index)
        if record is None or not record.holder:
            return True
        name = self.names.member(record.holder).name
        member = self._view.members.get(name)
        if member is None:  # somebody has removed it by hand, and its holder may not know yet
            return now >= self._observations.first(name, now) + self._election.lease_seconds
        return not member.holder

    def _heir_of(self, index: int) -> str:
        record = self._view.shards.get(index)
        return record.preferred_holder if record is not None and not record.holder else ""

    def _is_left_to_another(self, index: int, now: float) -> bool:
        preferred_holder = self._heir_of(index)
        if preferred_holder in ("", self._election.identity):
            return False
        member = self._view.members.get(self.names.member(preferred_holder).name)
        is_there = member is not None and self._is_alive(member, now)
        return is_there and not self._has_waited(index, PREFERENCE_SECONDS, now)

    def _has_waited(self, index: int, seconds: float, now: float) -> bool:
        record = self._view.shards.get(index)
        return record is not None and now >= self._observations.changed(record.name, now) + seconds

    def _shard_write(self, purpose: Purpose, index: int, preferred_holder: str = "") -> Write:
        return Write(purpose, self.names.shard(index), self._view.shards.get(index), index, preferred_holder)

    def _key(self, record: Record) -> ObjectKey:
        return ObjectKey(self.names.group.namespace, record.name)


_OFFSET, _PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1


def fnv1a_64(data: bytes) -> int:
    """Return the 64-bit FNV-1a hash of some bytes."""
    value = _OFFSET
    for byte in data:
        value = (value ^ byte) * _PRIME & _MASK
    return value


def shard_of(group: str, kind: str, key: ObjectKey, count: int) -> int:
    """Return the shard of an object, of ``count`` shards."""
    return fnv1a_64(f"{group}/{kind}/{key.namespace}/{key.name}".encode()) % count
