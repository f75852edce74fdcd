"""The decisions of a replica about the Leases that it sees; the test determines the time of every look."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.election.membership import (
    PREFERRED_HOLDER_ANNOTATION,
    LeaseNames,
    Membership,
    Purpose,
    Write,
    fnv1a_64,
    quotas,
    shard_of,
)
from tests.unit.runner.election.simulated_replicas import GROUP, election

NAMES = LeaseNames(GROUP, 4)


def lease(name: str, holder: str, version: int = 1, preferred_holder: str = "") -> RawObject:
    annotations = {PREFERRED_HOLDER_ANNOTATION: preferred_holder} if preferred_holder else {}
    metadata = {"name": name, "resourceVersion": str(version), "annotations": annotations}
    spec: dict[str, Any] = {"leaseDurationSeconds": 15} | ({"holderIdentity": holder} if holder else {})
    return {"metadata": metadata, "spec": spec}


class Looks:
    """A replica and the Leases that it sees."""

    def __init__(self, identity: str = "me_1") -> None:
        self.membership = Membership(election(identity), NAMES)
        self.leases: dict[str, RawObject] = {}

    def put(self, name: str, holder: str, version: int = 1, preferred_holder: str = "") -> None:
        """Put a Lease."""
        self.leases[name] = lease(name, holder, version, preferred_holder)

    def group(self, holder: str = "shards/4", version: int = 1) -> None:
        """Put the group Lease."""
        self.put("lock", holder, version)

    def member(self, identity: str, version: int = 1, holder: str | None = None) -> None:
        """Put the Lease of a member."""
        name = f"lock-member-of-4-{identity.rpartition('_')[2]}"
        self.put(name, identity if holder is None else holder, version)

    def shard(self, index: int, holder: str, preferred_holder: str = "", version: int = 1) -> None:
        """Put the Lease of a shard."""
        self.put(f"lock-shard-{index}-of-4", holder, version, preferred_holder)

    def look(self, now: float) -> list[Write]:
        """Look, and return the writes."""
        self.membership.see(NAMES.view(self.leases.values()), now, now)
        return list(self.membership.decide(now))

    def join(self, now: float = 0) -> None:
        """Become a member."""
        self.group()
        self.member("me_1")
        (write,) = self.look(now)
        assert write.purpose is Purpose.GROUP
        self.membership.written(write, now)

    def live(self, start: int, end: int, *others: str) -> None:
        """Let seconds pass, in which the Leases of the group and of other members are renewed."""
        for now in range(start, end):
            self.group(version=now)
            for other in others:
                self.member(other, version=now)
            self.look(now)


def taken(writes: list[Write]) -> list[int]:
    return [write.index for write in writes if write.purpose is Purpose.TAKE]


def purposes(writes: list[Write]) -> list[Purpose]:
    return [write.purpose for write in writes]


def test_member_joins_after_the_lease_of_a_leader_without_shards() -> None:
    replica = Looks()
    replica.group("leader_7")
    assert replica.look(0) == []
    assert not replica.membership.may_join(14)
    assert replica.membership.may_join(15)


def test_member_is_lost_when_another_holder_has_the_group_lease() -> None:
    replica = Looks()
    replica.join()
    replica.group("leader_7", version=2)
    replica.look(1)
    assert "leader_7" in replica.membership.why_lost(1)
    assert replica.membership.is_replaced


def test_member_is_not_lost_by_the_previous_holder_of_the_group_lease() -> None:
    replica = Looks()
    replica.group("leader_7")
    replica.look(0)
    (write,) = replica.look(15)
    replica.membership.written(write, 15)
    assert replica.membership.why_lost(15) == ""


def test_renewal_by_another_member_counts_from_the_previous_look() -> None:
    replica = Looks()
    replica.join(now=0)
    replica.group(version=2)
    replica.look(4)
    assert replica.membership.group_since == 0
    replica.look(6)
    replica.group(version=3)
    replica.look(8)
    assert replica.membership.group_since == 6
    assert replica.membership.group_end == 6 + 14


def test_member_is_lost_without_renewals_of_the_group_lease() -> None:
    replica = Looks()
    replica.join(now=0)
    assert replica.membership.why_lost(9.9) == ""
    assert "could not be read or renewed for 10 s" in replica.membership.why_lost(10)


def test_any_member_renews_the_group_lease_if_the_first_one_does_not() -> None:
    replica = Looks("z_1")
    replica.member("z_1")
    replica.group()
    replica.membership.written(replica.look(0)[0], 0)
    replica.member("a_2", 1)
    for now in range(16):
        replica.member("a_2", version=now)
        replica.group(version=now)
        replica.look(now)
    assert Purpose.GROUP not in purposes(replica.look(17))
    assert Purpose.GROUP in purposes(replica.look(20))


def test_dead_member_is_fenced_before_its_shards_are_taken() -> None:
    replica = Looks()
    replica.join()
    replica.member("other_2")
    for index in range(4):
        replica.shard(index, "other_2")
    replica.live(1, 16)  # it is seen for the first time after a second
    assert Purpose.FENCE not in purposes(replica.look(15.9))
    writes = replica.look(16)
    assert Purpose.FENCE in purposes(writes)
    assert taken(writes) == []
    replica.member("other_2", version=9, holder="")
    assert sorted(taken(replica.look(16))) == [0, 1, 2, 3]


def test_shards_of_a_removed_member_lease_are_free_after_its_duration() -> None:
    replica = Looks()
    replica.join()
    for index in range(4):
        replica.shard(index, "other_2")
    replica.live(1, 15)
    assert taken(replica.look(14)) == []
    assert sorted(taken(replica.look(16))) == [0, 1, 2, 3]


def test_new_member_counts_after_the_duration_of_a_lease() -> None:
    replica = Looks()
    replica.join()
    for index in range(4):
        replica.shard(index, "me_1")
    replica.live(1, 15, "new_2")
    assert replica.membership.members(15) == ["me_1"]
    assert replica.membership.begin_handoff(15) is None
    replica.live(15, 18, "new_2")
    assert replica.membership.members(17) == ["me_1", "new_2"]
    handoff = replica.membership.begin_handoff(17)
    assert handoff is not None
    assert (handoff.index, handoff.preferred_holder) == (3, "new_2")


def handing_over() -> Looks:
    replica = Looks()
    replica.join()
    for index in range(4):
        replica.shard(index, "me_1")
    replica.live(1, 18, "new_2")
    assert replica.membership.begin_handoff(17) is not None
    return replica


def test_shards_are_handed_over_one_at_a_time_when_they_are_idle() -> None:
    replica = handing_over()
    assert replica.membership.held == {0, 1, 2}
    assert Purpose.GIVE_UP not in purposes(replica.look(18))
    assert replica.membership.begin_handoff(18) is None
    assert replica.membership.handoff is not None
    replica.membership.handoff.is_idle = True
    writes = [write for write in replica.look(19) if write.purpose is Purpose.GIVE_UP]
    assert [(write.index, write.preferred_holder) for write in writes] == [(3, "new_2")]
    replica.membership.written(writes[0], 19)
    replica.shard(3, "", preferred_holder="new_2", version=2)
    assert taken(replica.look(19)) == []
    assert replica.membership.begin_handoff(19) is not None


def test_handoff_without_a_response_ends_when_the_lease_shows_it() -> None:
    replica = handing_over()
    assert replica.membership.handoff is not None
    replica.membership.handoff.is_idle = True
    replica.shard(3, "new_2", version=2)
    replica.look(19)
    assert replica.membership.handoff is None


def test_shard_taken_without_a_response_is_held() -> None:
    replica = Looks()
    replica.join()
    replica.shard(2, "me_1")
    replica.look(1)
    assert replica.membership.held == {2}


def test_free_shard_is_left_to_its_preferred_holder_for_four_seconds() -> None:
    replica = Looks()
    replica.join()
    replica.shard(0, "", preferred_holder="new_2")
    for index in (1, 2, 3):
        replica.shard(index, "gone_9")
    replica.member("gone_9")
    replica.member("new_2")
    assert taken(replica.look(1)) == []
    assert taken(replica.look(4)) == []
    assert taken(replica.look(5)) == [0]


def test_preferred_holder_takes_its_shard_first() -> None:
    replica = Looks()
    replica.join()
    replica.shard(2, "", preferred_holder="me_1")
    assert taken(replica.look(1))[0] == 2


def test_free_shard_that_waits_is_taken_beyond_the_quota() -> None:
    replica = Looks()
    replica.join()
    for index in (0, 1):
        replica.shard(index, "me_1")
    replica.shard(2, "slow_2")
    replica.shard(3, "")
    replica.live(1, 17, "slow_2")
    replica.shard(3, "", preferred_holder="slow_2", version=2)
    assert taken(replica.look(17)) == []
    assert taken(replica.look(24)) == []
    assert taken(replica.look(25)) == [3]


def test_lease_of_an_ended_member_is_removed_when_no_shard_names_it() -> None:
    replica = Looks()
    replica.join()
    replica.member("gone_9", holder="")
    replica.shard(0, "gone_9")
    assert Purpose.REMOVE not in purposes(replica.look(1))
    replica.shard(0, "me_1", version=2)
    assert [write.key.name for write in replica.look(2) if write.purpose is Purpose.REMOVE] == ["lock-member-of-4-9"]


def test_leases_of_other_elections_are_ignored() -> None:
    replica = Looks()
    replica.join()
    replica.put("lock-member-of-8-5", "other_5")
    replica.put("lock-shard-0-of-8", "other_5")
    replica.put("another-lock", "stranger")
    assert sorted(taken(replica.look(1))) == [0, 1, 2, 3]
    assert replica.membership.members(60) == ["me_1"]


HELD = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(0, 20), min_size=1)


def test_members_with_most_shards_get_the_larger_quotas() -> None:
    assert quotas({"a": 0, "b": 3, "c": 5}, 8) == {"c": 3, "b": 3, "a": 2}


def test_first_of_equal_members_gets_the_larger_quota() -> None:
    assert quotas({"b": 4, "a": 4, "c": 0}, 8) == {"a": 3, "b": 3, "c": 2}


def test_surplus_members_get_no_shard() -> None:
    assert quotas({"a": 0, "b": 1, "c": 1}, 2) == {"a": 0, "b": 1, "c": 1}


@given(HELD, st.integers(1, 64))
def test_quotas_are_even_and_cover_every_shard(held: dict[str, int], count: int) -> None:
    found = quotas(held, count)
    assert sum(found.values()) == count
    assert max(found.values()) - min(found.values()) <= 1


@given(HELD)
def test_members_that_hold_their_quotas_keep_them(held: dict[str, int]) -> None:
    settled = quotas(held, 12)
    assert quotas(settled, 12) == settled


@pytest.mark.parametrize(
    ("text", "expected"), [("", 0xCBF29CE484222325), ("a", 0xAF63DC4C8601EC8C), ("foobar", 0x85944171F73967E8)]
)
def test_hash_is_fnv_1a_with_64_bits(text: str, expected: int) -> None:
    assert fnv1a_64(text.encode()) == expected


def test_shard_of_an_object_never_changes() -> None:
    assert shard_of("example.com", "Thing", ObjectKey("default", "one"), 8) == 4
    assert shard_of("", "Ä", ObjectKey("", "größe"), 8) == 0


@pytest.mark.parametrize("count", [2, 3, 8, 12])
def test_similar_names_spread_evenly(count: int) -> None:
    keys = [ObjectKey("default", f"thing-{number}") for number in range(1000)]
    sizes = Counter(shard_of("example.com", "Thing", key, count) for key in keys)
    assert len(sizes) == count
    assert max(sizes.values()) < 1.3 * 1000 / count
