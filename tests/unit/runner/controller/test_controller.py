import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.contextvars import get_contextvars
from structlog.testing import capture_logs

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.controller.controller import Controller, Dispatcher, Result
from rolecall.runner.controller.work_queue import Backoff, Cause, Priority, WorkQueue
from rolecall.runner.serving.metrics import OperatorMetrics
from tests.support.metrics import controller_metrics
from tests.unit.manual_clock import ManualClock, settle

A, B, C = (ObjectKey("default", name) for name in "abc")
CAUSE = Cause("test")
VERSIONED = Cause("Pod default/web modified", "uid", "7")
FOO = GVK("example.com", "v1", "Foo")


def is_own(request: ObjectKey, cause: Cause) -> bool:
    return (request, cause) == (A, VERSIONED)


class Recorder:
    """A reconcile that records its requests and waits until the test lets it end."""

    def __init__(self) -> None:
        self.started: list[ObjectKey] = []
        self.ended: list[ObjectKey] = []
        self.contexts: list[dict[str, object]] = []
        self.results: dict[ObjectKey, Result | Exception] = {}
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, request: ObjectKey, _causes: tuple[Cause, ...]) -> Result:
        """Record the request and return its result."""
        self.started.append(request)
        self.contexts.append(get_contextvars())
        await self.gate.wait()
        self.ended.append(request)
        result = self.results.get(request, Result())
        if isinstance(result, Exception):
            raise result
        return result


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def controller(clock: ManualClock, recorder: Recorder) -> Controller:
    return Controller(FOO, WorkQueue(clock, Backoff(1, 8), controller_metrics()), 2, recorder, is_own)


@contextlib.asynccontextmanager
async def dispatching(dispatcher: Dispatcher) -> AsyncIterator[asyncio.Task[None]]:
    """Run a dispatcher, and cancel it at the end."""
    task = asyncio.create_task(dispatcher.run())
    await settle()
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def running(controller: Controller) -> AsyncIterator[Dispatcher]:
    dispatcher = Dispatcher()
    dispatcher.add(controller)
    async with dispatching(dispatcher):
        yield dispatcher


async def test_reconcile_has_its_object_in_the_log_context(controller: Controller, recorder: Recorder) -> None:
    async with running(controller):
        controller.queue.add(A, CAUSE)
        await settle()
    assert recorder.ended == [A]
    assert recorder.contexts == [
        {"kind": "Foo", "group": "example.com", "version": "v1", "namespace": "default", "name": "a"}
    ]
    assert controller.queue.waiting == 0


@pytest.mark.parametrize(
    ("result", "priority"),
    [
        (Result(failed=True), Priority.MEDIUM),
        (Result(requeue_after_seconds=1), Priority.HIGH),
        (Result(requeue_after_seconds=1, cause=Cause("period", priority=Priority.LOW)), Priority.LOW),
    ],
)
async def test_next_request_has_the_priority_of_its_cause(
    controller: Controller, recorder: Recorder, clock: ManualClock, result: Result, priority: Priority
) -> None:
    recorder.results[A] = result
    async with running(controller):
        controller.queue.add(A, CAUSE)
        await settle()
        clock.advance(1)
        head = controller.queue.head
        assert head is not None
        assert head[0] == priority


async def test_workers_limit_concurrent_reconciles(controller: Controller, recorder: Recorder) -> None:
    recorder.gate.clear()
    async with running(controller):
        for request in (A, B, C):
            controller.queue.add(request, CAUSE)
        await settle()
        assert recorder.started == [A, B]
        assert controller.queue.processing == 2
        recorder.gate.set()
        await settle()
        assert recorder.ended == [A, B, C]
        assert controller.queue.processing == 0


async def test_final_failure_is_not_retried(controller: Controller, recorder: Recorder, clock: ManualClock) -> None:
    recorder.results[A] = Result(failed=True)
    async with running(controller):
        controller.queue.add(A, CAUSE)
        await settle()
        recorder.results[A] = Result(failed=True, is_final=True)
        await clock.advance_and_settle(1)
        assert controller.queue.failures(A) == 0
        await clock.advance_and_settle(1000)
        assert len(recorder.ended) == 2


async def test_failures_are_retried_with_backoff_until_a_success(
    controller: Controller, recorder: Recorder, clock: ManualClock
) -> None:
    recorder.results[A] = Result(failed=True)
    async with running(controller):
        controller.queue.add(A, CAUSE)
        await settle()
        for delay in (1, 2, 4):
            await clock.advance_and_settle(delay - 0.01)
            runs = len(recorder.ended)
            await clock.advance_and_settle(0.01)
            assert len(recorder.ended) == runs + 1
        recorder.results[A] = Result()
        await clock.advance_and_settle(8)
        assert controller.queue.failures(A) == 0
        await clock.advance_and_settle(1000)
        assert len(recorder.ended) == 5


async def test_crash_is_logged_with_a_traceback_and_retried(
    controller: Controller, recorder: Recorder, clock: ManualClock
) -> None:
    recorder.results[A] = recorder.results[B] = ValueError("broken")
    with capture_logs() as logs:
        async with running(controller):
            controller.queue.add(A, CAUSE)
            controller.queue.add(B, CAUSE)
            await settle()
            recorder.results.clear()
            controller.queue.add(C, CAUSE)
            await clock.advance_and_settle(1)
    assert sorted(recorder.ended) == [A, A, B, B, C]
    crashes = [line for line in logs if line["event"] == "Reconcile crashed"]
    assert [line["log_level"] for line in crashes] == ["error", "error"]
    assert all(line["exc_info"] for line in crashes)


@pytest.mark.parametrize("by_time", [True, False])
async def test_requeue_comes_at_its_time(
    controller: Controller, recorder: Recorder, clock: ManualClock, *, by_time: bool
) -> None:
    recorder.results[A] = Result(requeue_at=clock.now() + 15) if by_time else Result(requeue_after_seconds=15)
    async with running(controller):
        controller.queue.add(A, CAUSE)
        await settle()
        recorder.results.clear()
        await clock.advance_and_settle(14.9)
        assert recorder.ended == [A]
        await clock.advance_and_settle(0.1)
        assert recorder.ended == [A, A]


async def test_requeue_after_zero_seconds_comes_immediately(controller: Controller, recorder: Recorder) -> None:
    recorder.results[A] = Result(requeue_after_seconds=0)
    async with running(controller):
        controller.queue.add(A, CAUSE)
        while len(recorder.ended) < 3:
            await settle()


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_infinite_requeue_is_rejected(value: float) -> None:
    with pytest.raises(ValueError, match="requeue_after_seconds of a result: expected a finite number"):
        Result(requeue_after_seconds=value)
    with pytest.raises(ValueError, match="requeue_at of a result: expected a finite number"):
        Result(requeue_at=value)


def fail(_request: ObjectKey, _cause: Cause) -> bool:
    raise RuntimeError("broken")


@pytest.mark.parametrize(
    ("cause", "is_self_trigger", "runs"),
    [
        (VERSIONED, is_own, 1),
        (replace(VERSIONED, resource_version="8"), is_own, 2),
        (VERSIONED, fail, 2),
    ],
)
async def test_cause_during_a_reconcile_counts_unless_it_is_a_self_trigger(
    controller: Controller,
    recorder: Recorder,
    cause: Cause,
    is_self_trigger: Callable[[ObjectKey, Cause], bool],
    runs: int,
) -> None:
    controller.is_self_trigger = is_self_trigger
    recorder.gate.clear()
    async with running(controller):
        controller.queue.add(A, Cause("first"))
        await settle()
        controller.queue.add(A, cause)
        recorder.gate.set()
        await settle()
    assert len(recorder.ended) == runs


async def test_cancelled_reconcile_gives_its_request_back(controller: Controller, recorder: Recorder) -> None:
    recorder.gate.clear()
    async with running(controller):
        controller.queue.add(A, CAUSE)
        await settle()
    assert recorder.started == [A]
    assert recorder.ended == []
    assert controller.queue.processing == 0


@pytest.fixture
def operator_metrics() -> OperatorMetrics:
    return OperatorMetrics("test", [FOO])


def counted(metrics: OperatorMetrics) -> dict[str, float]:
    """Return the counters of the controller and its queue that are not 0, each by its name or its result."""
    families = [family for family in metrics.registry.collect() if not family.name.startswith("process_")]
    samples = [sample for family in families for sample in family.samples]
    counters = [each for each in samples if each.name.endswith(("_total", "_active_workers", "workqueue_depth"))]
    return {each.labels.get("result", each.name): each.value for each in counters if each.value}


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (Result(), {"success": 1}),
        (Result(failed=True), {"error": 1, "controller_runtime_reconcile_errors_total": 1}),
        (
            Result(failed=True, is_final=True),
            {
                "error": 1,
                "controller_runtime_reconcile_errors_total": 1,
                "controller_runtime_terminal_reconcile_errors_total": 1,
            },
        ),
        (Result(requeue_after_seconds=5), {"requeue_after": 1}),
        (Result(requeue_at=5e9), {"requeue_after": 1}),
        (
            RuntimeError("boom"),
            {
                "error": 1,
                "controller_runtime_reconcile_errors_total": 1,
                "controller_runtime_reconcile_panics_total": 1,
            },
        ),
    ],
)
async def test_reconcile_is_counted_by_its_result(
    clock: ManualClock,
    recorder: Recorder,
    operator_metrics: OperatorMetrics,
    result: Result | Exception,
    expected: dict[str, float],
) -> None:
    metrics = operator_metrics.controller(FOO, workers=1)
    queue: WorkQueue[ObjectKey] = WorkQueue(clock, Backoff(1, 8), metrics)
    recorder.results[A] = result
    recorder.gate.clear()
    async with running(Controller(FOO, queue, 1, recorder, is_own)):
        queue.add(A, CAUSE)
        queue.add(B, CAUSE)
        await settle()
        in_progress = {"workqueue_adds_total": 2, "controller_runtime_active_workers": 1, "workqueue_depth": 1}
        assert counted(operator_metrics) == in_progress
        queue.discard(lambda request: request == B)
        recorder.gate.set()
        await settle()
    is_retried = "error" in expected and not (isinstance(result, Result) and result.is_final)
    retries = {"workqueue_retries_total": 1} if is_retried else {}
    assert counted(operator_metrics) == {"workqueue_adds_total": 2} | expected | retries


async def test_cancelled_reconcile_is_counted_as_requeue(
    clock: ManualClock, recorder: Recorder, operator_metrics: OperatorMetrics
) -> None:
    metrics = operator_metrics.controller(FOO, workers=1)
    controller = Controller(FOO, WorkQueue(clock, Backoff(1, 8), metrics), 1, recorder, is_own)
    recorder.gate.clear()
    async with running(controller):
        controller.queue.add(A, CAUSE)
        await settle()
    assert counted(operator_metrics) == {"workqueue_adds_total": 1, "requeue": 1}


def test_immediate_requeue_has_its_own_outcome() -> None:
    assert Result(requeue_after_seconds=0).outcome == "requeue"


LOW, MEDIUM, HIGH = (Cause(priority.label, priority=priority) for priority in Priority)
Started = tuple[str, str]


class Kinds:
    """Controllers of a dispatcher, named by letters, whose reconciles end when the test says so."""

    def __init__(self, workers: dict[str, int], limit: int | None = None) -> None:
        self.clock = ManualClock()
        self.dispatcher = Dispatcher(limit)
        self.started: list[Started] = []
        self.running: dict[Started, asyncio.Event] = {}
        self.streams: set[Started] = set()
        self.controllers = {kind: self._controller(kind, count) for kind, count in workers.items()}

    def _controller(self, kind: str, workers: int) -> Controller:
        async def reconcile(request: ObjectKey, _causes: tuple[Cause, ...]) -> Result:
            started = (kind, request.name)
            self.started.append(started)
            gate = self.running[started] = asyncio.Event()
            if started in self.streams:
                self.add(kind, request.name, HIGH)
            try:
                await gate.wait()
            finally:
                del self.running[started]
            return Result()

        queue: WorkQueue[ObjectKey] = WorkQueue(self.clock, Backoff(1, 8), controller_metrics())
        controller = Controller(GVK("", "v1", kind), queue, workers, reconcile, is_own)
        self.dispatcher.add(controller)
        return controller

    def add(self, kind: str, name: str, cause: Cause) -> None:
        """Make a request due; none is due at the same time as another."""
        self.clock.advance(0.001)
        self.controllers[kind].queue.add(ObjectKey("default", name), cause)

    def waiting(self, kind: str) -> int:
        """Count the requests in the queue of a kind."""
        return len(self.controllers[kind].queue)

    async def end(self, *which: Started) -> None:
        """Let reconciles end (by default all running ones) and others start."""
        for each in which or tuple(self.running):
            self.running[each].set()
        await settle()

    async def turns(self, count: int) -> list[Started]:
        """End all running reconciles so many times, and return those started since then."""
        before = len(self.started)
        for _ in range(count):
            await self.end()
        return self.started[before:]


async def test_request_that_becomes_urgent_while_it_waits_goes_first() -> None:
    kinds = Kinds({"a": 2, "b": 2}, limit=1)
    async with dispatching(kinds.dispatcher):
        kinds.add("a", "running", LOW)
        await settle()
        for kind, name in (("a", "one"), ("a", "two"), ("b", "three")):
            kinds.add(kind, name, LOW)
        kinds.add("b", "three", HIGH)
        kinds.add("a", "two", MEDIUM)
        assert await kinds.turns(3) == [("b", "three"), ("a", "two"), ("a", "one")]


async def test_stopped_dispatcher_lets_reconciles_end_and_starts_none() -> None:
    kinds = Kinds({"a": 2, "b": 1}, limit=2)
    async with dispatching(kinds.dispatcher) as task:
        for name in ("one", "two", "three"):
            kinds.add("a", name, HIGH)
        kinds.add("b", "four", HIGH)
        await settle()
        assert kinds.dispatcher.running == ["/v1, Kind=a default/one", "/v1, Kind=a default/two"]
        kinds.add("a", "one", HIGH)
        kinds.dispatcher.stop()
        await settle()
        assert not task.done()
        await kinds.end()
        await asyncio.wait_for(task, 60)
    assert kinds.started == [("a", "one"), ("a", "two")]
    assert kinds.dispatcher.running == []


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from("ab"), min_size=40, max_size=80), st.integers(1, 2))
def test_less_urgent_requests_get_a_turn_in_ten_of_each_kind(ends: list[str], limit: int) -> None:
    started = asyncio.run(_play_streams(ends, limit))
    for kind in "ab":
        turns = [name for each, name in started if each == kind]
        windows = [turns[start : start + 10] for start in range(len(turns) - 9)]
        assert all(any(name.startswith("low") for name in window) for window in windows)


async def _play_streams(ends: Sequence[str], limit: int) -> list[Started]:
    """Let two kinds with endless urgent and other requests end their reconciles in this order; return the starts."""
    kinds = Kinds({"a": 1, "b": 1}, limit)
    kinds.streams = {("a", "stream 1"), ("a", "stream 2"), ("b", "stream 1"), ("b", "stream 2")}
    for kind, name in sorted(kinds.streams):
        kinds.add(kind, name, HIGH)
    for number in range(len(ends)):
        kinds.add("a", f"low {number}", LOW)
        kinds.add("b", f"low {number}", LOW)
    async with dispatching(kinds.dispatcher):
        for kind in ends:
            await kinds.end(*[each for each in kinds.running if each[0] == kind] or list(kinds.running)[:1])
    return kinds.started


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from("ab"), st.sampled_from("uvwxyz"), st.sampled_from([LOW, MEDIUM, HIGH])),
        st.integers(0, 5),
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(EVENTS, st.integers(1, 4), st.integers(1, 3))
def test_limits_hold_no_free_run_is_idle_and_no_request_is_lost(
    events: list[tuple[str, str, Cause] | int], limit: int, workers: int
) -> None:
    asyncio.run(_play(events, limit, workers))


async def _play(events: Sequence[tuple[str, str, Cause] | int], limit: int, workers: int) -> None:
    """Add requests and end reconciles according to the events; then let everything end."""
    kinds = Kinds({"a": workers, "b": 1}, limit)
    started_before_the_last_add: dict[Started, int] = {}
    async with dispatching(kinds.dispatcher):
        for event in events:
            if isinstance(event, tuple):
                started_before_the_last_add[event[:2]] = len(kinds.started)
                kinds.add(*event)
                await settle(5)
            elif kinds.running:
                await kinds.end(list(kinds.running)[event % len(kinds.running)])
            _check(kinds, limit, workers)
        while kinds.running:
            await kinds.end()
            _check(kinds, limit, workers)
    for request, before in started_before_the_last_add.items():
        assert request in kinds.started[before:]


def _check(kinds: Kinds, limit: int, workers: int) -> None:
    busy = {kind: sum(each == kind for each, _ in kinds.running) for kind in "ab"}
    assert sum(busy.values()) <= limit
    assert busy["a"] <= workers
    assert busy["b"] <= 1
    if sum(busy.values()) < limit:
        assert not kinds.waiting("a") or busy["a"] == workers
        assert not kinds.waiting("b") or busy["b"] == 1


@pytest.mark.parametrize("limit", [None, 5])
async def test_requests_of_different_kinds_start_in_the_order_of_their_adds(limit: int | None) -> None:
    kinds = Kinds({"a": 2, "b": 2}, limit)
    for kind, name in (("b", "one"), ("a", "two"), ("b", "three"), ("a", "four")):
        kinds.add(kind, name, MEDIUM)
    async with dispatching(kinds.dispatcher):
        assert kinds.started == [("b", "one"), ("a", "two"), ("b", "three"), ("a", "four")]


async def test_drain_cancels_slow_reconciles_and_keeps_others() -> None:
    kinds = Kinds({"a": 3})
    for name in ("quick", "slow", "other"):
        kinds.add("a", name, MEDIUM)
    async with dispatching(kinds.dispatcher):
        drain = partial(kinds.dispatcher.drain, lambda _, request: request.name != "other", reason="handed over")
        patient = asyncio.create_task(drain(seconds=3600))
        await settle()
        await kinds.end(("a", "quick"))
        assert not patient.done()
        assert list(kinds.running) == [("a", "slow"), ("a", "other")]
        patient.cancel()
        await drain(seconds=0.01)
        assert list(kinds.running) == [("a", "other")]
