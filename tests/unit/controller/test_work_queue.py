import asyncio
import math
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rolecall.controller.backoff import Backoff
from rolecall.controller.work_queue import Cause, ShutDown, WorkQueue
from tests.unit.manual_clock import ManualClock, settle

OWN = Cause("own write", "uid", "1")
FOREIGN = Cause("user's write", "uid", "2")
CAUSE = Cause("because")


def take(queue: WorkQueue[str]) -> tuple[str, tuple[Cause, ...]] | None:
    """Take what is due now, None when nothing is."""
    if not queue:
        return None
    try:
        queue.get().send(None)
    except StopIteration as stop:
        taken: tuple[str, tuple[Cause, ...]] = stop.value
        return taken
    raise AssertionError("a request is due, but get() waits")


def fail(queue: WorkQueue[str], request: str, times: int) -> None:
    """Let a request fail that many times; it waits in backoff then."""
    for _ in range(times):
        queue.add(request, CAUSE)
        assert take(queue)
        queue.add_rate_limited(request, CAUSE)
        queue.done(request)


def not_own(cause: Cause) -> bool:
    return cause is not OWN


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(clock: ManualClock) -> WorkQueue[str]:
    return WorkQueue(clock, Backoff(1, 300))


async def test_requests_come_in_the_order_in_which_they_were_added(queue: WorkQueue[str]) -> None:
    for request in "cab":
        queue.add(request, CAUSE)
    assert [(await queue.get())[0] for _ in range(3)] == ["c", "a", "b"]


async def test_a_request_added_twice_is_handed_out_once_with_both_causes(queue: WorkQueue[str]) -> None:
    queue.add("a", OWN)
    queue.add("a", FOREIGN)
    assert len(queue) == 1
    assert await queue.get() == ("a", (OWN, FOREIGN))
    assert take(queue) is None


async def test_at_most_eight_causes_are_told(queue: WorkQueue[str]) -> None:
    for number in range(20):
        queue.add("a", Cause(f"cause {number}"))
    assert len((await queue.get())[1]) == 8


async def test_an_add_while_processing_is_handed_out_only_after_done(queue: WorkQueue[str]) -> None:
    queue.add("a", CAUSE)
    await queue.get()
    assert queue.is_processing("a")
    queue.add("a", FOREIGN)
    assert take(queue) is None
    queue.done("a")
    assert not queue.is_processing("a")
    assert await queue.get() == ("a", (FOREIGN,))


async def test_causes_that_are_not_kept_start_nothing(queue: WorkQueue[str]) -> None:
    queue.add("a", CAUSE)
    await queue.get()
    queue.add("a", OWN)
    queue.done("a", not_own)
    assert take(queue) is None


async def test_one_kept_cause_among_many_own_ones_is_enough(queue: WorkQueue[str]) -> None:
    queue.add("a", CAUSE)
    await queue.get()
    for version in range(1000):
        queue.add("a", Cause("own", "uid", str(version)))
    queue.add("a", FOREIGN)
    queue.done("a", lambda cause: cause == FOREIGN)
    assert await queue.get() == ("a", (FOREIGN,))


async def test_more_causes_than_are_remembered_count_as_a_foreign_one(queue: WorkQueue[str]) -> None:
    queue.add("a", CAUSE)
    await queue.get()
    for version in range(5000):
        queue.add("a", Cause("own", "uid", str(version)))
    queue.done("a", lambda _: False)
    assert take(queue) is not None


async def test_done_without_a_take_is_an_error(queue: WorkQueue[str]) -> None:
    with pytest.raises(KeyError):
        queue.done("a")


async def test_a_delayed_request_comes_when_its_time_has_come(queue: WorkQueue[str], clock: ManualClock) -> None:
    queue.add_after("a", 10, CAUSE)
    clock.advance(9.9)
    assert take(queue) is None
    assert queue.waiting == 1
    clock.advance(0.1)
    assert queue.waiting == 0
    assert take(queue) == ("a", (CAUSE,))


@pytest.mark.parametrize("seconds", [0, -1, -1e9])
async def test_a_delay_that_is_over_means_now(queue: WorkQueue[str], seconds: float) -> None:
    queue.add_after("a", seconds, CAUSE)
    assert take(queue) == ("a", (CAUSE,))


@pytest.mark.parametrize("seconds", [math.inf, math.nan])
async def test_a_delay_must_be_finite(queue: WorkQueue[str], seconds: float) -> None:
    with pytest.raises(ValueError, match="request a: expected a finite number of seconds, got"):
        queue.add_after("a", seconds, CAUSE)


async def test_a_time_of_the_wall_clock_is_met(queue: WorkQueue[str], clock: ManualClock) -> None:
    queue.add_at("a", clock.now() + 5, CAUSE)
    queue.add_at("b", clock.now() - 5, CAUSE)
    assert take(queue) == ("b", (CAUSE,))
    clock.advance(5)
    assert take(queue) == ("a", (CAUSE,))


@pytest.mark.parametrize("delays", [(10, 3), (3, 10)])
async def test_the_earliest_of_two_times_counts_and_the_other_is_forgotten(
    queue: WorkQueue[str], clock: ManualClock, delays: tuple[int, int]
) -> None:
    for delay in delays:
        queue.add_after("a", delay, Cause(f"after {delay}"))
    clock.advance(3)
    assert take(queue) == ("a", (Cause("after 3"),))
    queue.done("a")
    clock.advance(60)
    assert take(queue) is None


async def test_taking_a_request_cancels_its_timer(queue: WorkQueue[str], clock: ManualClock) -> None:
    queue.add_after("a", 10, CAUSE)
    queue.add("a", FOREIGN)
    assert take(queue) == ("a", (FOREIGN,))
    queue.done("a")
    clock.advance(20)
    assert take(queue) is None
    assert clock.handles == 0


async def test_a_timer_started_while_processing_survives_done(queue: WorkQueue[str], clock: ManualClock) -> None:
    queue.add("a", CAUSE)
    take(queue)
    queue.add_after("a", 5, FOREIGN)
    queue.done("a")
    clock.advance(5)
    assert take(queue) == ("a", (FOREIGN,))


async def test_failures_double_the_delay_up_to_the_maximum(queue: WorkQueue[str]) -> None:
    assert [queue.add_rate_limited("a", CAUSE) for _ in range(11)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert queue.failures("a") == 11
    assert Backoff(1, 300).delay_seconds(100_000) == 300


async def test_forget_lets_the_next_failure_start_at_the_minimum(queue: WorkQueue[str]) -> None:
    queue.add_rate_limited("a", CAUSE)
    queue.add_rate_limited("a", CAUSE)
    queue.forget("a")
    assert queue.failures("a") == 0
    assert queue.add_rate_limited("a", CAUSE) == 1


async def test_an_add_makes_a_request_in_back_off_due_now_and_keeps_its_failures(queue: WorkQueue[str]) -> None:
    queue.add_rate_limited("a", CAUSE)
    queue.add("a", FOREIGN)
    assert take(queue) == ("a", (FOREIGN,))
    assert queue.failures("a") == 1


async def test_retry_within_shortens_every_back_off_and_leaves_other_timers(
    queue: WorkQueue[str], clock: ManualClock
) -> None:
    queue.add_after("periodic", 60, CAUSE)
    fail(queue, "a", 3)
    queue.retry_within(1, FOREIGN)
    assert take(queue) is None
    clock.advance(1)
    assert take(queue) == ("a", (FOREIGN,))
    assert take(queue) is None
    assert queue.waiting == 1


async def test_retry_within_delays_no_back_off_that_is_shorter(queue: WorkQueue[str], clock: ManualClock) -> None:
    queue.add_rate_limited("a", CAUSE)
    queue.retry_within(1000, FOREIGN)
    clock.advance(1)
    assert take(queue) == ("a", (CAUSE,))


async def test_retry_within_keeps_the_order_and_the_failures(queue: WorkQueue[str], clock: ManualClock) -> None:
    for name, failures in (("last", 9), ("first", 7), ("between", 8)):
        fail(queue, name, failures)
    queue.retry_within(1)
    clock.advance(1)
    assert list(queue._order) == ["first", "between", "last"]
    assert queue.failures("last") == 9


async def test_retry_within_leaves_alone_what_is_forgotten(queue: WorkQueue[str], clock: ManualClock) -> None:
    queue.add_rate_limited("forgotten", CAUSE)
    queue.add_rate_limited("forgotten", CAUSE)
    queue.forget("forgotten")
    queue.retry_within(0.1)
    clock.advance(0.1)
    assert take(queue) is None
    assert queue.waiting == 1


async def test_retry_within_also_concerns_what_is_being_processed_if_it_fails(queue: WorkQueue[str]) -> None:
    fail(queue, "a", 5)
    queue.add("a", CAUSE)
    take(queue)
    queue.retry_within(1)
    assert queue.add_rate_limited("a", FOREIGN) == 1
    queue.done("a")
    queue.add("a", CAUSE)
    take(queue)
    assert queue.add_rate_limited("a", FOREIGN) == 64


async def test_retry_within_does_not_repeat_what_succeeds(queue: WorkQueue[str]) -> None:
    queue.add("a", CAUSE)
    take(queue)
    queue.retry_within(1)
    queue.done("a")
    assert take(queue) is None
    assert queue.waiting == 0


async def test_many_timers_share_one_handle_of_the_clock(queue: WorkQueue[str], clock: ManualClock) -> None:
    for number in range(10_000):
        queue.add_after(str(number), 100 + number, CAUSE)
    assert queue.waiting == 10_000
    assert clock.handles == 1
    clock.advance(100)
    assert take(queue) == ("0", (CAUSE,))


async def test_timers_that_are_replaced_over_and_over_do_not_pile_up(queue: WorkQueue[str]) -> None:
    for _ in range(1000):
        queue.add_after("a", 36_000, CAUSE)
        queue.add("a", CAUSE)
        take(queue)
        queue.done("a")
    queue.add_after("a", 36_000, CAUSE)
    assert len(queue._timers._heap) < 100


async def test_stopped_timers_behind_an_earlier_one_do_not_pile_up_and_the_order_stays(
    queue: WorkQueue[str], clock: ManualClock
) -> None:
    for number in range(5, 0, -1):
        queue.add_after(str(number), number, CAUSE)
    for _ in range(1000):
        queue.add_after("a", 36_000, CAUSE)
        queue.add("a", CAUSE)
        take(queue)
        queue.done("a")
    assert 5 <= len(queue._timers._heap) < 200
    clock.advance(5)
    assert list(queue._order) == ["1", "2", "3", "4", "5"]


async def test_a_waiting_worker_is_woken_by_an_add(queue: WorkQueue[str]) -> None:
    getter = asyncio.create_task(queue.get())
    await settle()
    queue.add("a", CAUSE)
    assert await getter == ("a", (CAUSE,))


async def test_a_worker_cancelled_while_it_is_woken_passes_the_request_on(queue: WorkQueue[str]) -> None:
    first, second = (asyncio.create_task(queue.get()) for _ in range(2))
    await settle()
    queue.add("a", CAUSE)
    first.cancel()
    assert await second == ("a", (CAUSE,))


async def test_a_worker_cancelled_while_it_waits_takes_nothing(queue: WorkQueue[str]) -> None:
    first = asyncio.create_task(queue.get())
    await settle()
    first.cancel()
    await settle()
    queue.add("a", CAUSE)
    assert take(queue) == ("a", (CAUSE,))


async def test_shut_down_ends_waiting_workers_and_hands_out_nothing(queue: WorkQueue[str], clock: ManualClock) -> None:
    queue.add("processed", CAUSE)
    take(queue)
    queue.add("processed", FOREIGN)
    getters = [asyncio.create_task(queue.get()) for _ in range(3)]
    await settle()
    queue.add_after("b", 5, CAUSE)
    queue.shut_down()
    queue.add("a", CAUSE)
    queue.add_after("a", 5, CAUSE)
    queue.done("processed")
    results: list[Any] = await asyncio.gather(*getters, return_exceptions=True)
    assert [type(result) for result in results] == [ShutDown] * 3
    assert (len(queue), queue.waiting, queue.processing, clock.handles) == (0, 0, 0, 0)
    with pytest.raises(ShutDown):
        await queue.get()


REQUESTS = st.sampled_from(["a", "b", "c"])


class WorkQueueMachine(RuleBasedStateMachine):
    """Compare the queue with a model that a person can check."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.queue: WorkQueue[str] = WorkQueue(self.clock, Backoff(1, 8))
        self.due: list[str] = []
        self.processing: dict[str, bool] = {}
        self.timers: dict[str, float] = {}
        self.failures: dict[str, int] = {}

    def make_due(self, request: str, *, is_own: bool = False) -> None:
        """Note in the model that a request is due, or dirty while it is processed."""
        if request in self.processing:
            self.processing[request] = self.processing[request] or not is_own
        elif request not in self.due:
            self.due.append(request)

    @rule(request=REQUESTS, is_own=st.booleans())
    def add(self, request: str, *, is_own: bool) -> None:
        """Add a request, for an own write or for somebody else's."""
        self.queue.add(request, OWN if is_own else FOREIGN)
        self.make_due(request, is_own=is_own)

    @rule(request=REQUESTS, delay=st.integers(-1, 10))
    def add_after(self, request: str, delay: int) -> None:
        """Add a request for later."""
        self.queue.add_after(request, delay, FOREIGN)
        self.start_timer(request, delay)

    @rule(request=REQUESTS)
    def add_rate_limited(self, request: str) -> None:
        """Add a request after a failure; its delay follows from the failures so far."""
        delay = self.queue.add_rate_limited(request, FOREIGN)
        assert delay == min(2 ** self.failures.get(request, 0), 8)
        self.failures[request] = self.failures.get(request, 0) + 1
        self.start_timer(request, delay)

    def start_timer(self, request: str, delay: float) -> None:
        """Note in the model when a request becomes due."""
        if delay <= 0:
            self.make_due(request)
        else:
            due = self.clock.monotonic() + delay
            self.timers[request] = min(due, self.timers.get(request, due))

    @rule(request=REQUESTS)
    def forget(self, request: str) -> None:
        """Forget the failures of a request."""
        self.queue.forget(request)
        self.failures.pop(request, None)

    @rule(seconds=st.integers(0, 12))
    def advance(self, seconds: int) -> None:
        """Move the clock; what becomes due does so in the order of its times."""
        self.clock.advance(seconds)
        due = {request: when for request, when in self.timers.items() if when <= self.clock.monotonic()}
        appeared = []
        for request in due:
            del self.timers[request]
            if request in self.processing or request in self.due:
                self.make_due(request)
            else:
                appeared.append(request)
        actual = list(self.queue._order)[len(self.due) :]
        assert sorted(actual) == sorted(appeared)
        assert [due[request] for request in actual] == sorted(due[request] for request in actual)
        self.due.extend(actual)

    @rule()
    def get(self) -> None:
        """Take what is due first."""
        taken = take(self.queue)
        if not self.due:
            assert taken is None
            return
        assert taken is not None
        request = self.due.pop(0)
        assert taken[0] == request
        self.timers.pop(request, None)
        self.processing[request] = False

    @precondition(lambda self: self.processing)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        """End one of the requests that are processed."""
        request = data.draw(st.sampled_from(sorted(self.processing)))
        self.queue.done(request, not_own)
        if self.processing.pop(request):
            self.make_due(request)

    @invariant()
    def same_as_the_model(self) -> None:
        """Compare everything that can be seen."""
        assert list(self.queue._order) == self.due
        assert self.queue.waiting == len(self.timers)
        assert self.queue.processing == len(self.processing)
        assert {name: self.queue.failures(name) for name in self.failures} == self.failures
        assert self.clock.handles == (1 if self.timers else 0)


TestWorkQueueMachine = WorkQueueMachine.TestCase
TestWorkQueueMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
