from collections.abc import Callable

import pytest

from rolecall.runner.serving.controller_metrics import ControllerFamilies, ControllerMetrics, Registry

NAME, KIND = "thing-v1-controller", "example.com/v1, Kind=Thing"
QUEUE = {"name": NAME, "controller": NAME}


class Time:
    """A monotonic clock that the test moves."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        """Give the time."""
        return self.seconds


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def observer(registry: Registry, time: Time) -> ControllerMetrics:
    return ControllerFamilies(registry, time).observer(NAME, KIND, workers=3)


@pytest.fixture
def value(registry: Registry) -> Callable[..., float | None]:
    def read(name: str, /, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    return read


def test_every_series_is_there_from_the_start(observer: ControllerMetrics, value: Callable[..., float | None]) -> None:
    assert value("controller_runtime_max_concurrent_reconciles", controller=NAME) == 3
    for result in ("success", "error", "requeue", "requeue_after"):
        assert value("controller_runtime_reconcile_total", controller=NAME, result=result) == 0
    for name in ("reconcile_errors", "terminal_reconcile_errors", "reconcile_panics"):
        assert value(f"controller_runtime_{name}_total", controller=NAME) == 0
    assert value("workqueue_depth", **QUEUE, priority="") == 0
    assert value("workqueue_adds_total", **QUEUE) == 0
    assert value("ansible_operator_reconciles_count", GVK=KIND) == 0
    for priority in ("high", "medium", "low"):
        labels = {"controller": NAME, "priority": priority}
        assert value("ansible_operator_workqueue_depth", **labels) == 0
        assert value("ansible_operator_workqueue_queue_duration_seconds_count", **labels) == 0
    assert observer.ages() == []


def test_a_request_is_followed_from_due_to_done(
    observer: ControllerMetrics, time: Time, value: Callable[..., float | None]
) -> None:
    observer.added("a", "high")
    observer.added("b", "low")
    assert value("workqueue_depth", **QUEUE, priority="") == 2
    time.seconds += 2
    observer.taken("a")
    observer.started("a")
    assert value("workqueue_depth", **QUEUE, priority="") == 1
    assert value("controller_runtime_active_workers", controller=NAME) == 1
    time.seconds += 5
    observer.taken("b")
    time.seconds += 1
    assert value("workqueue_unfinished_work_seconds", **QUEUE) == 7
    assert value("workqueue_longest_running_processor_seconds", **QUEUE) == 6
    observer.ended("a", "requeue_after")
    observer.finished("a")
    assert value("controller_runtime_active_workers", controller=NAME) == 0
    assert value("workqueue_queue_duration_seconds_sum", **QUEUE) == 2 + 7
    assert value("workqueue_work_duration_seconds_sum", **QUEUE) == 6
    assert value("workqueue_longest_running_processor_seconds", **QUEUE) == 1
    assert value("controller_runtime_reconcile_time_seconds_sum", controller=NAME) == 6
    assert value("ansible_operator_reconciles_sum", GVK=KIND) == 6
    assert value("controller_runtime_reconcile_total", controller=NAME, result="requeue_after") == 1


@pytest.mark.parametrize(("outcome", "panics"), [("error", 0), ("panic", 1)])
def test_failures_and_crashes_are_errors(
    observer: ControllerMetrics, value: Callable[..., float | None], outcome: str, panics: int
) -> None:
    observer.started("a")
    observer.ended("a", outcome)
    observer.retried("a")
    assert value("controller_runtime_reconcile_total", controller=NAME, result="error") == 1
    assert value("controller_runtime_reconcile_errors_total", controller=NAME) == 1
    assert value("controller_runtime_reconcile_panics_total", controller=NAME) == panics
    assert value("workqueue_retries_total", **QUEUE) == 1


def test_what_waits_is_told_by_priority_and_a_request_that_moves_keeps_its_age(
    observer: ControllerMetrics, time: Time, value: Callable[..., float | None]
) -> None:
    def depths() -> list[float | None]:
        name = "ansible_operator_workqueue_depth"
        return [value(name, controller=NAME, priority=priority) for priority in ("high", "medium", "low")]

    observer.added("a", "low")
    observer.added("b", "low")
    observer.added("c", "medium")
    assert depths() == [0, 1, 2]
    time.seconds += 3
    observer.moved("a", "high")
    assert depths() == [1, 1, 1]
    assert value("workqueue_adds_total", **QUEUE) == 3
    time.seconds += 4
    observer.taken("a")
    assert depths() == [0, 1, 1]
    waited = "ansible_operator_workqueue_queue_duration_seconds_sum"
    assert value(waited, controller=NAME, priority="high") == 7
    assert value(waited, controller=NAME, priority="low") == 0
    assert value("workqueue_queue_duration_seconds_sum", **QUEUE) == 7
