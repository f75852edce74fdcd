from hypothesis import given
from hypothesis import strategies as st

from rolecall.runner.election.membership import quotas

HELD = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(0, 20), min_size=1)


def test_those_who_hold_most_keep_the_larger_quotas() -> None:
    assert quotas({"a": 0, "b": 3, "c": 5}, 8) == {"c": 3, "b": 3, "a": 2}


def test_of_equal_members_the_first_name_gets_the_larger_quota() -> None:
    assert quotas({"b": 4, "a": 4, "c": 0}, 8) == {"a": 3, "b": 3, "c": 2}


def test_more_members_than_shards_leave_some_without() -> None:
    assert quotas({"a": 0, "b": 1, "c": 1}, 2) == {"a": 0, "b": 1, "c": 1}


@given(HELD, st.integers(1, 64))
def test_quotas_are_even_and_give_out_every_shard(held: dict[str, int], count: int) -> None:
    found = quotas(held, count)
    assert sum(found.values()) == count
    assert max(found.values()) - min(found.values()) <= 1


@given(HELD)
def test_members_that_hold_their_quotas_keep_them(held: dict[str, int]) -> None:
    settled = quotas(held, 12)
    assert quotas(settled, 12) == settled
