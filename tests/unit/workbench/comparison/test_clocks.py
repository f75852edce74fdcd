"""Times in two runs are the same if their distances from the starts of the runs are."""

from datetime import UTC, datetime

from rolecall.workbench.comparison.clocks import Clocks

CLOCKS = Clocks(datetime(2027, 1, 15, 8, tzinfo=UTC), datetime(2027, 3, 1, 10, tzinfo=UTC), 10.0)


def test_numbers_are_compared_as_times() -> None:
    assert CLOCKS.are_same_numbers(1_800_000_000_000, 1_803_895_200_500)
    assert not CLOCKS.are_same_numbers(3, 4)
