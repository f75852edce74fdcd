import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.runner.controller.work_queue import FairScheduler, Priority, PriorityOrder
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
def test_lower_priority_goes_first_after_eight_turns(waiting: set[Priority], expected: list[Priority]) -> None:
    assert turns_of([waiting] * len(expected)) == expected


@given(WAITING)
def test_waiting_priority_gets_one_of_ten_turns(waiting: list[set[Priority]]) -> None:
    taken = turns_of(waiting)
    assert all(one in each for one, each in zip(taken, waiting, strict=True))
    for start in range(len(waiting) - 9):
        always = set.intersection(*waiting[start : start + 10])
        assert always <= set(taken[start : start + 10])


@given(WAITING)
def test_lower_priority_goes_first_only_if_a_turn_is_owed(waiting: list[set[Priority]]) -> None:
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


def test_item_moves_to_the_end_of_its_last_priority() -> None:
    order: PriorityOrder[str] = PriorityOrder(ManualClock())
    for item, priority in (("a", LOW), ("b", HIGH), ("a", HIGH), ("c", HIGH), ("b", LOW)):
        order.put(item, priority)
    assert list(order) == ["a", "c", "b"]
    assert len(order) == 3
    assert [found and found[0] for found in map(order.find, "abcd")] == [HIGH, LOW, HIGH, None]


def test_take_without_items_is_an_error() -> None:
    order: PriorityOrder[str] = PriorityOrder(ManualClock())
    with pytest.raises(ValueError, match="empty"):
        order.take()


def test_priority_has_a_label_for_metrics() -> None:
    assert [priority.label for priority in Priority] == ["low", "medium", "high"]
