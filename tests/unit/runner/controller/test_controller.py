import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable

import pytest
from structlog.contextvars import get_contextvars
from structlog.testing import capture_logs

from rolecall.kube.references import ObjectKey
from rolecall.runner.config.settings import Backoff
from rolecall.runner.controller.controller import Controller, Dispatcher, Result
from rolecall.runner.controller.priorities import Priority
from rolecall.runner.controller.work_queue import Cause, WorkQueue
from tests.unit.manual_clock import ManualClock, settle
from tests.unit.runner.controller.dispatching import dispatching

A, B, C = (ObjectKey("default", name) for name in "abc")
CAUSE = Cause("test")
VERSIONED = Cause("Pod default/web modified", "uid", "7")


class Recorder:
    """A reconcile that tells what it was asked for and waits until the test lets it end."""

    def __init__(self) -> None:
        self.started: list[ObjectKey] = []
        self.ended: list[ObjectKey] = []
        self.contexts: list[dict[str, object]] = []
        self.results: dict[ObjectKey, Result | Exception] = {}
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, request: ObjectKey, _causes: tuple[Cause, ...]) -> Result:
        """Note the request and give what the test laid down for it."""
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
    return Controller(
        "foo-v1-controller", WorkQueue(clock, Backoff(1, 8)), 2, recorder, kind="Foo", group="example.com"
    )


@contextlib.asynccontextmanager
async def running(controller: Controller) -> AsyncIterator[Dispatcher]:
    dispatcher = Dispatcher()
    dispatcher.add(controller)
    async with dispatching(dispatcher):
        yield dispatcher


async def test_each_request_is_reconciled_with_its_names_in_the_log_context(
    controller: Controller, recorder: Recorder
) -> None:
    async with running(controller):
        controller.queue.add(A, CAUSE)
        await settle()
    assert recorder.ended == [A]
    assert recorder.contexts == [{"kind": "Foo", "group": "example.com", "namespace": "default", "name": "a"}]
    assert controller.queue.waiting == 0


@pytest.mark.parametrize(
    ("result", "priority"),
    [
        (Result(failed=True), Priority.MIDDLE),
        (Result(requeue_after_seconds=1), Priority.HIGH),
        (Result(requeue_after_seconds=1, cause=Cause("period", priority=Priority.LOW)), Priority.LOW),
    ],
)
async def test_what_comes_back_has_the_priority_of_why_it_does(
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


async def test_no_more_run_at_once_than_there_are_workers(controller: Controller, recorder: Recorder) -> None:
    recorder.gate.clear()
    async with running(controller):
        for request in (A, B, C):
            controller.queue.add(request, CAUSE)
        await settle()
        assert recorder.started == [A, B]
        assert controller.running == {A, B}
        recorder.gate.set()
        await settle()
        assert recorder.ended == [A, B, C]
        assert controller.running == set()


async def test_a_failure_is_retried_with_growing_delays_and_a_success_ends_that(
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


async def test_a_crash_is_logged_with_its_traceback_and_retried_and_costs_no_worker(
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
async def test_a_requeue_comes_when_it_was_asked_for(
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


async def test_a_requeue_after_nothing_comes_at_once(controller: Controller, recorder: Recorder) -> None:
    recorder.results[A] = Result(requeue_after_seconds=0)
    async with running(controller):
        controller.queue.add(A, CAUSE)
        while len(recorder.ended) < 3:
            await settle()


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_result_refuses_times_that_no_clock_reaches(value: float) -> None:
    with pytest.raises(ValueError, match="requeue_after_seconds of a result: expected a finite number"):
        Result(requeue_after_seconds=value)
    with pytest.raises(ValueError, match="requeue_at of a result: expected a finite number"):
        Result(requeue_at=value)


@pytest.mark.parametrize(
    ("cause", "own", "runs"), [(VERSIONED, False, 2), (VERSIONED, True, 1), (CAUSE, True, 2), (CAUSE, False, 2)]
)
async def test_causes_during_a_reconcile_lead_to_another_unless_they_are_its_own(
    controller: Controller, recorder: Recorder, cause: Cause, *, own: bool, runs: int
) -> None:
    controller.is_self_trigger = lambda _request, _cause: own
    recorder.gate.clear()
    async with running(controller):
        controller.queue.add(A, Cause("first"))
        await settle()
        controller.queue.add(A, cause)
        recorder.gate.set()
        await settle()
    assert len(recorder.ended) == runs


async def test_unless_told_otherwise_every_change_during_a_reconcile_counts(
    controller: Controller, recorder: Recorder
) -> None:
    recorder.gate.clear()
    async with running(controller):
        controller.queue.add(A, CAUSE)
        await settle()
        controller.queue.add(A, VERSIONED)
        recorder.gate.set()
        await settle()
    assert recorder.ended == [A, A]


async def test_whether_a_cause_is_a_self_trigger_is_asked_with_request_and_cause(
    controller: Controller, recorder: Recorder
) -> None:
    asked: list[tuple[ObjectKey, Cause]] = []

    def is_self_trigger(request: ObjectKey, cause: Cause) -> bool:
        asked.append((request, cause))
        return True

    controller.is_self_trigger = is_self_trigger
    recorder.gate.clear()
    async with running(controller):
        controller.queue.add(A, CAUSE)
        await settle()
        controller.queue.add(A, VERSIONED)
        recorder.gate.set()
        await settle()
    assert asked == [(A, VERSIONED)]


async def test_a_cause_counts_when_whether_it_is_a_self_trigger_cannot_be_told(
    controller: Controller, recorder: Recorder
) -> None:
    def is_self_trigger(_request: ObjectKey, _cause: Cause) -> bool:
        raise RuntimeError("broken")

    controller.is_self_trigger = is_self_trigger
    recorder.gate.clear()
    async with running(controller):
        controller.queue.add(A, CAUSE)
        await settle()
        controller.queue.add(A, VERSIONED)
        recorder.gate.set()
        await settle()
    assert recorder.ended == [A, A]


async def test_a_reconcile_that_is_cancelled_gives_its_request_back(controller: Controller, recorder: Recorder) -> None:
    recorder.gate.clear()
    async with running(controller):
        controller.queue.add(A, CAUSE)
        await settle()
    assert recorder.started == [A]
    assert recorder.ended == []
    assert controller.running == set()
    assert controller.queue.processing == 0


class Heard:
    """Notes what a controller and its queue tell an observer."""

    def __init__(self) -> None:
        self.log: list[tuple[object, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Note whatever is told."""
        return lambda *details: self.log.append((name, *details))


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        (Result(), "success"),
        (Result(failed=True), "error"),
        (Result(requeue_after_seconds=5), "requeue_after"),
        (Result(requeue_at=5e9), "requeue_after"),
        (RuntimeError("boom"), "panic"),
    ],
)
async def test_an_observer_hears_of_a_request_from_due_to_done(
    clock: ManualClock, recorder: Recorder, result: Result | Exception, outcome: str
) -> None:
    heard = Heard()
    queue: WorkQueue[ObjectKey] = WorkQueue(clock, Backoff(1, 8), heard)
    recorder.results[A] = result
    async with running(Controller("foo-v1-controller", queue, 1, recorder, observer=heard)):
        queue.add(A, CAUSE)
        await settle()
    retried = [("retried", A)] if outcome in {"error", "panic"} else []
    told = [("added", A, "middle"), ("taken", A), ("started", A), ("ended", A, outcome), *retried, ("finished", A)]
    assert heard.log[: len(told)] == told


async def test_an_observer_hears_of_a_reconcile_that_was_cancelled(clock: ManualClock, recorder: Recorder) -> None:
    heard = Heard()
    controller = Controller("foo-v1-controller", WorkQueue(clock), 1, recorder, observer=heard)
    recorder.gate.clear()
    async with running(controller):
        controller.queue.add(A, CAUSE)
        await settle()
    assert heard.log == [("started", A), ("ended", A, "requeue")]


def test_a_reconcile_that_wants_another_at_once_is_a_requeue() -> None:
    assert Result(requeue_after_seconds=0).outcome == "requeue"
