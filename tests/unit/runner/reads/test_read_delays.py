import pytest

from rolecall.kube.references import ObjectKey
from rolecall.runner.controller.work_queue import Cause
from rolecall.runner.reads.read_sets import ReadBackoff, ReadCause
from tests.unit.manual_clock import ManualClock

ONE = ObjectKey("default", "one")
READ = ReadCause("read ConfigMap default/shared changed", may_be_in_loop=True)
EDIT = ReadCause("read ConfigMap default/shared changed")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def delays(clock: ManualClock) -> ReadBackoff:
    return ReadBackoff(clock)


def test_the_first_wake_by_a_read_does_not_wait(delays: ReadBackoff) -> None:
    delays.run_ended(ONE, [Cause("period")], changed=True)
    assert delays.seconds(ONE) == 0


def test_each_further_one_waits_twice_as_long_up_to_five_minutes(delays: ReadBackoff) -> None:
    waits = []
    for _ in range(12):
        delays.run_ended(ONE, [READ], changed=True)
        waits.append(delays.seconds(ONE))
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


def test_the_time_counts_from_the_end_of_the_run(delays: ReadBackoff, clock: ManualClock) -> None:
    for _ in range(4):
        delays.run_ended(ONE, [READ], changed=True)
    clock.advance(5)
    assert delays.seconds(ONE) == 3
    clock.advance(5)
    assert delays.seconds(ONE) == 0


@pytest.mark.parametrize(
    ("causes", "changed"),
    [([READ], False), ([READ, EDIT], True), ([READ, Cause("Thing default/one: spec.size")], True), ([], True)],
)
def test_a_run_that_changes_nothing_and_any_other_cause_end_it(
    delays: ReadBackoff, causes: list[Cause], *, changed: bool
) -> None:
    delays.run_ended(ONE, [READ], changed=True)
    delays.run_ended(ONE, causes, changed=changed)
    assert delays.seconds(ONE) == 0
