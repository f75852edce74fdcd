from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.runner.controller.priorities import FairScheduler, Priority, PriorityOrder
from tests.unit.manual_clock import ManualClock

LOW, MEDIUM, HIGH = Priority.LOW, Priority.MEDIUM, Priority.HIGH
WAITING = st.lists(st.sets(st.sampled_from(Priority), min_size=1), min_size=1, max_size=200)


def turns_of(waiting: list[set[Priority]]) -> list[Priority]:
    """Return the priority of each turn, given those that wait."""
    scheduler = FairScheduler()
    return [scheduler.next(each) for each in waiting]


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        ({LOW, HIGH}, [HIGH] * 8 + [LOW]),
        ({MEDIUM, HIGH}, [HIGH] * 8 + [MEDIUM]),
        ({LOW, MEDIUM}, [MEDIUM] * 8 + [LOW]),
        ({LOW, MEDIUM, HIGH}, [HIGH] * 8 + [MEDIUM, LOW]),
    ],
)
def test_the_highest_goes_first_and_a_lower_one_after_eight_turns(
    waiting: set[Priority], expected: list[Priority]
) -> None:
    assert turns_of([waiting] * len(expected)) == expected


def test_when_all_wait_for_long_each_lower_one_gets_a_tenth_at_least_and_the_highest_most() -> None:
    counts = Counter(turns_of([{LOW, MEDIUM, HIGH}] * 1000))
    assert 100 <= counts[LOW] <= 125
    assert 100 <= counts[MEDIUM] <= 125


@given(WAITING)
def test_what_waits_for_ten_turns_gets_one_of_them(waiting: list[set[Priority]]) -> None:
    taken = turns_of(waiting)
    assert all(one in each for one, each in zip(taken, waiting, strict=True))
    for start in range(len(waiting) - 9):
        always = set.intersection(*waiting[start : start + 10])
        assert always <= set(taken[start : start + 10])


@given(WAITING)
def test_a_turn_is_passed_over_only_in_favour_of_one_that_is_owed(waiting: list[set[Priority]]) -> None:
    taken = turns_of(waiting)
    for number, (one, each) in enumerate(zip(taken, waiting, strict=True)):
        if one != max(each):
            since = max((before for before in range(number) if taken[before] == one), default=-1)
            assert sum(one in waiting[between] for between in range(since + 1, number)) >= 8


def test_items_keep_their_order_within_a_priority() -> None:
    order: PriorityOrder[str] = PriorityOrder(ManualClock())
    for item in "cab":
        order.put(item, LOW)
    order.put("x", HIGH)
    assert list(order) == ["x", "c", "a", "b"]
    assert [order.take() for _ in range(4)] == ["x", "c", "a", "b"]
    assert not order


def test_an_item_is_there_once_and_at_the_end_of_the_last_priority_it_was_put_in() -> None:
    order: PriorityOrder[str] = PriorityOrder(ManualClock())
    for item, priority in (("a", LOW), ("b", HIGH), ("a", HIGH), ("c", HIGH), ("b", LOW)):
        order.put(item, priority)
    assert list(order) == ["a", "c", "b"]
    assert len(order) == 3
    assert [found and found[0] for found in map(order.find, "abcd")] == [HIGH, LOW, HIGH, None]


def test_nothing_can_be_taken_when_nothing_waits() -> None:
    order: PriorityOrder[str] = PriorityOrder(ManualClock())
    with pytest.raises(ValueError, match="empty"):
        order.take()


def test_a_priority_has_a_word_for_metrics() -> None:
    assert [priority.label for priority in Priority] == ["low", "medium", "high"]
