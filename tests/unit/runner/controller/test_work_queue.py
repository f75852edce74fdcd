import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rolecall.runner.controller.work_queue import (
    MAX_CAUSE_LENGTH,
    Backoff,
    Cause,
    FairScheduler,
    Priority,
    PriorityOrder,
    RequestState,
    WorkQueue,
)
from tests.support.metrics import controller_metrics
from tests.unit.manual_clock import ManualClock

OWN = Cause("own write", "uid", "1")
FOREIGN = Cause("user's write", "uid", "2")
CAUSE = Cause("because")
LOW = Cause("period", priority=Priority.LOW)
HIGH = Cause("changed", priority=Priority.HIGH)


def take(queue: WorkQueue[str]) -> tuple[str, tuple[Cause, ...]] | None:
    """Take what is due now, None when nothing is."""
    return queue.take() if queue else None


def fail(queue: WorkQueue[str], request: str, times: int) -> None:
    """Fail a request this number of times; it then waits in backoff."""
    for _ in range(times):
        queue.add(request, CAUSE)
        assert take(queue)
        queue.add_rate_limited(request, CAUSE)
        queue.done(request)


def not_own(cause: Cause) -> bool:
    return cause.text != OWN.text


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(clock: ManualClock) -> WorkQueue[str]:
    return WorkQueue(clock, Backoff(1, 300), controller_metrics())


@given(st.text() | st.text(min_size=MAX_CAUSE_LENGTH, max_size=3 * MAX_CAUSE_LENGTH))
def test_text_of_a_cause_is_one_short_line(text: str) -> None:
    shown = Cause(text).text
    assert len(shown.splitlines()) <= 1
    assert shown.isprintable()
    assert len(shown) <= MAX_CAUSE_LENGTH
    assert Cause(shown).text == shown


def test_long_cause_counts_the_characters_that_it_leaves_out() -> None:
    shown = Cause("a" * 1000).text
    start, _, left = shown.partition("…")
    assert left == f" ({1000 - len(start)} more characters)"


def test_short_cause_keeps_its_spaces() -> None:
    assert Cause("ConfigMap default/a: data.x  y").text == "ConfigMap default/a: data.x  y"


async def test_request_added_twice_is_taken_once_with_both_causes(queue: WorkQueue[str]) -> None:
    queue.add("a", OWN)
    queue.add("a", FOREIGN)
    assert len(queue) == 1
    assert queue.take() == ("a", (OWN, FOREIGN))
    assert take(queue) is None


async def test_at_most_eight_causes_are_handed_out(queue: WorkQueue[str]) -> None:
    for number in range(20):
        queue.add("a", Cause(f"cause {number}"))
    assert len(queue.take()[1]) == 8


async def test_request_added_while_processing_is_taken_only_after_done(queue: WorkQueue[str]) -> None:
    queue.add("a", CAUSE)
    queue.take()
    assert queue.is_processing("a")
    queue.add("a", FOREIGN)
    assert take(queue) is None
    queue.done("a")
    assert not queue.is_processing("a")
    assert queue.take() == ("a", (FOREIGN,))


async def test_causes_that_do_not_count_start_nothing(queue: WorkQueue[str]) -> None:
    queue.add("a", CAUSE)
    queue.take()
    queue.add("a", OWN)
    queue.done("a", not_own)
    assert take(queue) is None


async def test_one_counting_cause_among_many_own_ones_is_enough(queue: WorkQueue[str]) -> None:
    queue.add("a", CAUSE)
    queue.take()
    for version in range(1000):
        queue.add("a", Cause("own", "uid", str(version)))
    queue.add("a", FOREIGN)
    queue.done("a", lambda cause: cause == FOREIGN)
    assert queue.take() == ("a", (FOREIGN,))


async def test_more_causes_than_are_remembered_count(queue: WorkQueue[str]) -> None:
    queue.add("a", CAUSE)
    queue.take()
    for version in range(5000):
        queue.add("a", Cause("own", "uid", str(version)))
    queue.done("a", lambda _: False)
    assert take(queue) is not None


async def test_done_without_take_is_an_error(queue: WorkQueue[str]) -> None:
    with pytest.raises(KeyError):
        queue.done("a")


async def test_delayed_request_becomes_due_at_its_time(queue: WorkQueue[str], clock: ManualClock) -> None:
    queue.add_after("a", 10, CAUSE)
    clock.advance(9.9)
    assert take(queue) is None
    assert queue.waiting == 1
    clock.advance(0.1)
    assert queue.waiting == 0
    assert take(queue) == ("a", (CAUSE,))


@pytest.mark.parametrize("seconds", [0, -1, -1e9])
async def test_delay_of_zero_or_less_means_now(queue: WorkQueue[str], seconds: float) -> None:
    queue.add_after("a", seconds, CAUSE)
    assert take(queue) == ("a", (CAUSE,))


async def test_request_becomes_due_at_a_time_of_the_wall_clock(queue: WorkQueue[str], clock: ManualClock) -> None:
    queue.add_at("a", clock.now() + 5, CAUSE)
    clock.advance(4.9)
    assert len(queue) == 0
    clock.advance(0.1)
    assert take(queue) == ("a", (CAUSE,))


@pytest.mark.parametrize("seconds", [-1e9, -5, 0, 0.5])
async def test_time_in_the_past_is_due_in_a_second(queue: WorkQueue[str], clock: ManualClock, seconds: float) -> None:
    queue.add_at("a", clock.now() + seconds, CAUSE)
    clock.advance(0.9)
    assert len(queue) == 0
    clock.advance(0.1)
    assert take(queue) == ("a", (CAUSE,))


@pytest.mark.parametrize("delays", [(10, 3), (3, 10)])
async def test_earliest_of_two_times_replaces_the_other(
    queue: WorkQueue[str], clock: ManualClock, delays: tuple[int, int]
) -> None:
    for delay in delays:
        queue.add_after("a", delay, Cause(f"after {delay}"))
    clock.advance(3)
    assert take(queue) == ("a", (Cause("after 3"),))
    queue.done("a")
    clock.advance(60)
    assert take(queue) is None


async def test_failures_double_the_delay_up_to_the_maximum(queue: WorkQueue[str]) -> None:
    assert [queue.add_rate_limited("a", CAUSE) for _ in range(11)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert queue.failures("a") == 11
    assert Backoff(1, 300).delay_seconds(100_000) == 300


async def test_forget_resets_the_delay_to_the_minimum(queue: WorkQueue[str]) -> None:
    queue.add_rate_limited("a", CAUSE)
    queue.add_rate_limited("a", CAUSE)
    queue.forget("a")
    assert queue.failures("a") == 0
    assert queue.add_rate_limited("a", CAUSE) == 1


async def test_add_makes_a_request_in_backoff_due_and_keeps_its_failures(queue: WorkQueue[str]) -> None:
    queue.add_rate_limited("a", CAUSE)
    queue.add("a", FOREIGN)
    assert take(queue) == ("a", (FOREIGN,))
    assert queue.failures("a") == 1


async def test_retry_within_shortens_every_backoff_and_keeps_other_timers(
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


async def test_retry_within_keeps_shorter_backoffs(queue: WorkQueue[str], clock: ManualClock) -> None:
    queue.add_rate_limited("a", CAUSE)
    queue.retry_within(1000, FOREIGN)
    clock.advance(1)
    assert take(queue) == ("a", (CAUSE,))


async def test_retry_within_keeps_the_order_and_the_failures(queue: WorkQueue[str], clock: ManualClock) -> None:
    for name, failures in (("last", 9), ("first", 7), ("between", 8)):
        fail(queue, name, failures)
    queue.retry_within(1, FOREIGN)
    clock.advance(1)
    assert list(queue._order) == ["first", "between", "last"]
    assert queue.failures("last") == 9


async def test_retry_within_ignores_forgotten_requests(queue: WorkQueue[str], clock: ManualClock) -> None:
    queue.add_rate_limited("forgotten", CAUSE)
    queue.add_rate_limited("forgotten", CAUSE)
    queue.forget("forgotten")
    queue.retry_within(0.1, FOREIGN)
    clock.advance(0.1)
    assert take(queue) is None
    assert queue.waiting == 1


async def test_retry_within_applies_to_processed_requests_that_fail(queue: WorkQueue[str]) -> None:
    fail(queue, "a", 5)
    queue.add("a", CAUSE)
    take(queue)
    queue.retry_within(1, FOREIGN)
    assert queue.add_rate_limited("a", FOREIGN) == 1
    queue.done("a")
    queue.add("a", CAUSE)
    take(queue)
    assert queue.add_rate_limited("a", FOREIGN) == 64


async def test_retry_within_does_not_repeat_successful_requests(queue: WorkQueue[str]) -> None:
    queue.add("a", CAUSE)
    take(queue)
    queue.retry_within(1, FOREIGN)
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


async def test_replaced_timers_do_not_pile_up(queue: WorkQueue[str]) -> None:
    for _ in range(1000):
        queue.add_after("a", 36_000, CAUSE)
        queue.add("a", CAUSE)
        take(queue)
        queue.done("a")
    queue.add_after("a", 36_000, CAUSE)
    assert len(queue._timers._heap) < 100


async def test_stopped_timers_behind_an_earlier_one_do_not_pile_up(queue: WorkQueue[str], clock: ManualClock) -> None:
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


async def test_subscriber_is_called_for_each_due_request(queue: WorkQueue[str], clock: ManualClock) -> None:
    heard: list[int] = []
    queue.on_due = lambda: heard.append(len(queue))
    queue.add("a", CAUSE)
    queue.add("a", FOREIGN)
    queue.add_after("b", 5, CAUSE)
    assert heard == [1]
    clock.advance(5)
    assert heard == [1, 2]
    queue.take()
    queue.add("a", CAUSE)
    assert heard == [1, 2]
    queue.done("a")
    assert heard == [1, 2, 2]


async def test_raised_request_moves_to_the_end_of_its_new_priority_with_its_causes(
    queue: WorkQueue[str],
) -> None:
    for request, cause in (("first", LOW), ("second", LOW), ("urgent", HIGH)):
        queue.add(request, cause)
    queue.add("second", HIGH)
    assert [queue.take() for _ in range(3)] == [("urgent", (HIGH,)), ("second", (LOW, HIGH)), ("first", (LOW,))]


async def test_ninth_cause_still_raises_the_priority(queue: WorkQueue[str]) -> None:
    queue.add("other", CAUSE)
    for number in range(8):
        queue.add("a", Cause(f"cause {number}", priority=Priority.LOW))
    queue.add("a", HIGH)
    assert queue.take()[0] == "a"


async def test_causes_during_processing_count_with_their_highest_priority(queue: WorkQueue[str]) -> None:
    queue.add("a", LOW)
    queue.take()
    for cause in (LOW, HIGH, CAUSE):
        queue.add("a", cause)
    queue.add("b", CAUSE)
    queue.done("a")
    assert queue.take() == ("a", (LOW, HIGH, CAUSE))


async def test_cause_that_does_not_count_raises_no_priority(queue: WorkQueue[str]) -> None:
    own = Cause("own write", "uid", "3", priority=Priority.HIGH)
    queue.add("a", LOW)
    queue.take()
    queue.add("a", own)
    queue.add("a", LOW)
    queue.add("b", CAUSE)
    queue.done("a", lambda cause: cause is not own)
    assert [queue.take() for _ in range(2)] == [("b", (CAUSE,)), ("a", (LOW,))]


async def test_priority_of_a_forgotten_cause_counts(queue: WorkQueue[str]) -> None:
    queue.add("a", LOW)
    queue.take()
    for version in range(4096):
        queue.add("a", Cause("own", "uid", str(version)))
    queue.add("a", HIGH)
    queue.add("b", HIGH)
    queue.done("a", lambda _: False)
    assert [queue.take()[0] for _ in range(2)] == ["b", "a"]
    assert queue.head is None


async def test_head_has_the_highest_priority_and_the_time_of_its_first_request(
    queue: WorkQueue[str], clock: ManualClock
) -> None:
    assert queue.head is None
    queue.add("a", LOW)
    clock.advance(1)
    queue.add("b", LOW)
    assert queue.head == (Priority.LOW, 0)
    clock.advance(1)
    queue.add("a", HIGH)
    assert queue.head == (Priority.HIGH, 2)
    queue.take()
    assert queue.head == (Priority.LOW, 1)


REQUESTS = st.sampled_from(["a", "b", "c", "d"])
PRIORITIES = st.sampled_from(Priority)


class WorkQueueMachine(RuleBasedStateMachine):
    """Compare the queue with a model that a person can check."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.queue: WorkQueue[str] = WorkQueue(self.clock, Backoff(1, 8), controller_metrics())
        self.due: dict[Priority, list[str]] = {priority: [] for priority in sorted(Priority, reverse=True)}
        self.turns_without = dict.fromkeys(Priority, 0)
        self.processing: dict[str, list[Priority]] = {}
        self.timers: dict[str, tuple[float, Priority]] = {}
        self.failures: dict[str, int] = {}

    def make_due(self, request: str, priority: Priority) -> None:
        """Note in the model that a request is due, or dirty while it is processed."""
        if request in self.processing:
            self.processing[request].append(priority)
            return
        present = next((each for each, line in self.due.items() if request in line), None)
        if present is None or present < priority:
            for line in self.due.values():
                if request in line:
                    line.remove(request)
            self.due[priority].append(request)

    @rule(request=REQUESTS, priority=PRIORITIES)
    def add(self, request: str, priority: Priority) -> None:
        """Add a request."""
        self.queue.add(request, Cause("user's write", "uid", "2", priority=priority))
        self.make_due(request, priority)

    @rule(request=REQUESTS, priority=PRIORITIES)
    def add_own(self, request: str, priority: Priority) -> None:
        """Add a request for an own write, which counts unless the request is processed."""
        self.queue.add(request, Cause(OWN.text, "uid", "1", priority=priority))
        if request not in self.processing:
            self.make_due(request, priority)

    @rule(request=REQUESTS, delay=st.integers(-1, 10), priority=PRIORITIES)
    def add_after(self, request: str, delay: int, priority: Priority) -> None:
        """Add a request for later."""
        self.queue.add_after(request, delay, Cause("timer", priority=priority))
        self.start_timer(request, delay, priority)

    @rule(request=REQUESTS)
    def add_rate_limited(self, request: str) -> None:
        """Add a request after a failure; its delay follows from the failures so far."""
        delay = self.queue.add_rate_limited(request, FOREIGN)
        assert delay == min(2 ** self.failures.get(request, 0), 8)
        self.failures[request] = self.failures.get(request, 0) + 1
        self.start_timer(request, delay, FOREIGN.priority)

    def start_timer(self, request: str, delay: float, priority: Priority) -> None:
        """Note in the model when a request becomes due."""
        if delay <= 0:
            self.make_due(request, priority)
            return
        due = self.clock.monotonic() + delay
        if request not in self.timers or due < self.timers[request][0]:
            self.timers[request] = (due, priority)

    @rule(request=REQUESTS)
    def forget(self, request: str) -> None:
        """Forget the failures of a request."""
        self.queue.forget(request)
        self.failures.pop(request, None)

    @rule(request=REQUESTS, priority=PRIORITIES)
    def lower(self, request: str, priority: Priority) -> None:
        """Move a request to a lower priority."""
        self.queue.lower(request, priority)
        for present, line in self.due.items():
            if request in line and present > priority:
                line.remove(request)
                self.due[priority].append(request)
                return

    @rule(seconds=st.integers(0, 12))
    def advance(self, seconds: int) -> None:
        """Move the clock second by second; what becomes due in one second does so in any order."""
        for _ in range(seconds):
            self.clock.advance(1)
            now = self.clock.monotonic()
            became_due = {request: timer[1] for request, timer in self.timers.items() if timer[0] <= now}
            actual = list(self.queue._order)
            for request in sorted(became_due, key=lambda one: actual.index(one) if one in actual else -1):
                del self.timers[request]
                self.make_due(request, became_due[request])

    @rule()
    def take(self) -> None:
        """Take the first request of the highest priority, or of a lower one that has waited for its turn."""
        waiting = [priority for priority, line in self.due.items() if line]
        taken = take(self.queue)
        if not waiting:
            assert taken is None
            return
        assert taken is not None
        request = taken[0]
        priority = next(each for each in waiting if self.due[each][0] == request)
        for each in waiting:
            self.turns_without[each] += 1
        is_owed = self.turns_without[priority] > 8
        assert priority == max(waiting) or is_owed
        self.turns_without[priority] = 0
        assert all(self.turns_without[each] < 10 for each in (Priority.LOW, Priority.MEDIUM))
        self.due[priority].pop(0)
        self.timers.pop(request, None)
        self.processing[request] = []

    @precondition(lambda self: self.processing)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        """End one of the requests that are processed."""
        request = data.draw(st.sampled_from(sorted(self.processing)))
        self.queue.done(request, not_own)
        meanwhile = self.processing.pop(request)
        if meanwhile:
            self.make_due(request, max(meanwhile))

    @invariant()
    def same_as_the_model(self) -> None:
        """Compare everything that can be seen."""
        assert list(self.queue._order) == [request for line in self.due.values() for request in line]
        head = self.queue.head
        assert (head and head[0]) == next((priority for priority, line in self.due.items() if line), None)
        assert self.queue.waiting == len(self.timers)
        assert self.queue.processing == len(self.processing)
        assert {name: self.queue.failures(name) for name in self.failures} == self.failures
        assert self.clock.handles == (1 if self.timers else 0)


TestWorkQueueMachine = WorkQueueMachine.TestCase
TestWorkQueueMachine.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)


async def test_rejected_request_is_dropped_however_it_was_added(clock: ManualClock) -> None:
    accepted = {"ours"}
    queue: WorkQueue[str] = WorkQueue(clock, Backoff(1, 300), controller_metrics(), accepted.__contains__)
    queue.add("ours", CAUSE)
    queue.add("theirs", CAUSE)
    queue.add_after("theirs", 1, CAUSE)
    clock.advance(2)
    assert take(queue) == ("ours", (CAUSE,))
    queue.add("ours", CAUSE)
    accepted.clear()
    queue.add_rate_limited("ours", CAUSE)
    queue.done("ours")
    clock.advance(1000)
    assert take(queue) is None


async def test_discarded_requests_are_forgotten_with_their_timers_and_failures(
    queue: WorkQueue[str], clock: ManualClock
) -> None:
    fail(queue, "a failed", 3)
    queue.add("a due", CAUSE)
    queue.add_after("a later", 5, CAUSE)
    queue.add("b due", CAUSE)
    queue.discard(lambda request: request.startswith("a"))
    clock.advance(1000)
    assert take(queue) == ("b due", (CAUSE,))
    assert take(queue) is None
    assert queue.failures("a failed") == 0


async def test_look_up_returns_the_state_of_a_request(queue: WorkQueue[str], clock: ManualClock) -> None:
    assert queue.look_up("a") == RequestState()
    clock.advance(5)
    queue.add("a", HIGH)
    assert queue.look_up("a") == RequestState(priority=Priority.HIGH, causes=("changed",))
    queue.take()
    assert queue.look_up("a") == RequestState()
    queue.done("a")
    queue.add_after("a", 60, LOW)
    assert queue.look_up("a") == RequestState(due=65.0, causes=("period",))


async def test_look_up_returns_backoff_and_failures(queue: WorkQueue[str]) -> None:
    fail(queue, "a", 2)
    state = queue.look_up("a")
    assert (state.failures, state.is_backing_off, state.due, state.causes) == (2, True, 2.0, ("because",))
    queue.forget("a")
    assert not queue.look_up("a").is_backing_off


async def test_look_up_changes_nothing(queue: WorkQueue[str]) -> None:
    queue.add("b", CAUSE)
    for request in "ab":
        queue.look_up(request)
    assert (len(queue), queue.waiting, queue.processing) == (1, 0, 0)
    assert queue.take() == ("b", (CAUSE,))


WAITING = st.lists(st.sets(st.sampled_from(Priority), min_size=1), min_size=1, max_size=200)


def turns_of(waiting: list[set[Priority]]) -> list[Priority]:
    """Return the priority of each turn, given those that wait."""
    scheduler = FairScheduler()
    return [scheduler.next(each) for each in waiting]


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        ({Priority.LOW, Priority.HIGH}, [Priority.HIGH] * 8 + [Priority.LOW]),
        ({Priority.MEDIUM, Priority.HIGH}, [Priority.HIGH] * 8 + [Priority.MEDIUM]),
        ({Priority.LOW, Priority.MEDIUM}, [Priority.MEDIUM] * 8 + [Priority.LOW]),
        ({Priority.LOW, Priority.MEDIUM, Priority.HIGH}, [Priority.HIGH] * 8 + [Priority.MEDIUM, Priority.LOW]),
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
        order.put(item, Priority.LOW)
    order.put("x", Priority.HIGH)
    assert list(order) == ["x", "c", "a", "b"]
    assert [order.take()[0] for _ in range(4)] == ["x", "c", "a", "b"]
    assert not order


def test_item_moves_to_the_end_of_its_last_priority() -> None:
    order: PriorityOrder[str] = PriorityOrder(ManualClock())
    for item, priority in (
        ("a", Priority.LOW),
        ("b", Priority.HIGH),
        ("a", Priority.HIGH),
        ("c", Priority.HIGH),
        ("b", Priority.LOW),
    ):
        order.put(item, priority)
    assert list(order) == ["a", "c", "b"]
    assert len(order) == 3
    assert [found and found[0] for found in map(order.find, "abcd")] == [
        Priority.HIGH,
        Priority.LOW,
        Priority.HIGH,
        None,
    ]


def test_take_without_items_is_an_error() -> None:
    order: PriorityOrder[str] = PriorityOrder(ManualClock())
    with pytest.raises(ValueError, match="empty"):
        order.take()


def test_priority_has_a_label_for_metrics() -> None:
    assert [priority.label for priority in Priority] == ["low", "medium", "high"]
