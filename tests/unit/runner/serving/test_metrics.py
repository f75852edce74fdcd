from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.serving.metrics import ControllerMetrics, OperatorMetrics, controller_names

THING = GVK("example.com", "v1", "Thing")
OTHER = GVK("other.example.com", "v1", "Thing")
SECRET = GVK("", "v1", "Secret")
ONE = ObjectKey("default", "one")
NAME, KIND = "thing-v1-controller", "example.com/v1, Kind=Thing"
QUEUE = {"name": NAME, "controller": NAME}
CREATED = 'resource_created_at_seconds{group="example.com",kind="Thing",name="one",namespace="default",version="v1"}'
PRIORITIES = ("high", "medium", "low")
Value = Callable[..., float | None]


class Time:
    """A monotonic clock that the test moves."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.seconds


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def metrics(time: Time) -> OperatorMetrics:
    return OperatorMetrics("1.2.3", [THING], time)


@pytest.fixture
def controller(metrics: OperatorMetrics) -> ControllerMetrics:
    return metrics.controller(THING, workers=3)


@pytest.fixture
def value(metrics: OperatorMetrics) -> Value:
    def read(name: str, /, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, labels)

    return read


def lines(metrics: OperatorMetrics, start: str = "") -> list[str]:
    return [line for line in metrics.render().decode().splitlines() if line.startswith(start)]


def test_text_can_be_parsed_and_has_build_info(metrics: OperatorMetrics) -> None:
    metrics.user_metrics.apply({"name": "mine", "description": "a \\ and\nmore", "counter": {"add": 2}})
    families = {family.name: family for family in text_string_to_metric_families(metrics.render().decode())}
    (build,) = families["ansible_operator_build_info"].samples
    assert build.labels == {"commit": "", "version": "1.2.3"}
    assert families["mine"].documentation == "a \\ and\nmore"
    assert "process_resident_memory_bytes" in families


def test_two_operators_in_one_process_count_separately(metrics: OperatorMetrics, controller: ControllerMetrics) -> None:
    controller.run_ended(succeeded=False)
    series = f'ansible_operator_reconcile_result{{GVK="{KIND}",result='
    assert lines(metrics, series) == [f'{series}"succeeded"}} 0.0', f'{series}"failed"}} 1.0']
    assert lines(OperatorMetrics("1"), series) == []


@pytest.mark.parametrize("end", [None, "yesterday"])
def test_creation_time_is_removed_with_the_object(
    metrics: OperatorMetrics, controller: ControllerMetrics, end: str | None
) -> None:
    controller.set_created_at(ONE, "2026-01-02T03:04:05Z")
    assert lines(metrics, CREATED) == [f"{CREATED} 1.767323045e+09"]
    for _ in range(2):
        controller.set_created_at(ONE, end)
        assert lines(metrics, CREATED) == []


def test_requests_leaders_and_certificates_are_counted(metrics: OperatorMetrics) -> None:
    metrics.count_request("200", "GET", "localhost:6443")
    metrics.count_request("<error>", "PUT", "localhost:6443")
    metrics.set_leading("lock", leading=True)
    metrics.count_slow_renewal("lock")
    metrics.count_certificate(succeeded=False)
    found = lines(metrics)
    assert 'rest_client_requests_total{code="200",host="localhost:6443",method="GET"} 1.0' in found
    assert 'rest_client_requests_total{code="<error>",host="localhost:6443",method="PUT"} 1.0' in found
    assert 'leader_election_master_status{name="lock"} 1.0' in found
    assert 'leader_election_slowpath_total{name="lock"} 1.0' in found
    assert "certwatcher_read_certificate_total 1.0" in found
    assert "certwatcher_read_certificate_errors_total 1.0" in found
    assert not [line for line in found if "_created" in line and not line.startswith(("#", "resource_created"))]


def test_replaced_fork_servers_are_counted_by_reason(metrics: OperatorMetrics) -> None:
    metrics.count_fork_server("unresponsive")
    family = "ansible_operator_fork_server_replacements_total"
    assert set(lines(metrics, family)) == {
        f'{family}{{reason="stale"}} 0.0',
        f'{family}{{reason="exited"}} 0.0',
        f'{family}{{reason="unresponsive"}} 1.0',
        f'{family}{{reason="start_timeout"}} 0.0',
    }


def test_read_watches_are_reported_by_kind(metrics: OperatorMetrics, value: Value) -> None:
    metrics.set_read_watches("/v1, Kind=Secret", 2, 5)
    assert value("ansible_operator_read_watches", GVK="/v1, Kind=Secret") == 2
    assert value("ansible_operator_read_subscriptions", GVK="/v1, Kind=Secret") == 5


def test_only_held_shards_have_series(metrics: OperatorMetrics) -> None:
    metrics.set_shards({0, 3}, 2)
    metrics.set_shards({3, 4}, 3)
    assert lines(metrics, "ansible_operator_shard") == [
        'ansible_operator_shard_held{shard="3"} 1.0',
        'ansible_operator_shard_held{shard="4"} 1.0',
        "ansible_operator_shard_members 3.0",
    ]


def test_controller_is_named_after_kind_and_version_and_group_only_if_ambiguous() -> None:
    assert controller_names([THING, SECRET]) == {THING: NAME, SECRET: "secret-v1-controller"}
    assert controller_names([THING, OTHER]) == {
        THING: "thing-example.com-v1-controller",
        OTHER: "thing-other.example.com-v1-controller",
    }


@pytest.mark.usefixtures("controller")
def test_every_series_of_a_controller_starts_at_zero(value: Value) -> None:
    assert value("controller_runtime_max_concurrent_reconciles", controller=NAME) == 3
    for result in ("success", "error", "requeue", "requeue_after"):
        assert value("controller_runtime_reconcile_total", controller=NAME, result=result) == 0
    for name in ("reconcile_errors", "terminal_reconcile_errors", "reconcile_panics"):
        assert value(f"controller_runtime_{name}_total", controller=NAME) == 0
    assert value("workqueue_depth", **QUEUE, priority="") == 0
    assert value("workqueue_adds_total", **QUEUE) == 0
    assert value("workqueue_unfinished_work_seconds", **QUEUE) == 0
    assert value("ansible_operator_reconciles_count", GVK=KIND) == 0
    for priority in PRIORITIES:
        labels = {"controller": NAME, "priority": priority}
        assert value("ansible_operator_workqueue_depth", **labels) == 0
        assert value("ansible_operator_workqueue_queue_duration_seconds_count", **labels) == 0


def test_request_is_measured_from_due_to_done(controller: ControllerMetrics, time: Time, value: Value) -> None:
    controller.added("a", "high")
    controller.added("b", "low")
    assert value("workqueue_depth", **QUEUE, priority="") == 2
    time.seconds += 2
    controller.taken("a")
    controller.started("a")
    assert value("workqueue_depth", **QUEUE, priority="") == 1
    assert value("controller_runtime_active_workers", controller=NAME) == 1
    time.seconds += 5
    controller.taken("b")
    time.seconds += 1
    assert value("workqueue_unfinished_work_seconds", **QUEUE) == 7
    assert value("workqueue_longest_running_processor_seconds", **QUEUE) == 6
    controller.ended("a", "requeue_after")
    controller.finished("a")
    assert value("controller_runtime_active_workers", controller=NAME) == 0
    assert value("workqueue_queue_duration_seconds_sum", **QUEUE) == 2 + 7
    assert value("workqueue_work_duration_seconds_sum", **QUEUE) == 6
    assert value("workqueue_longest_running_processor_seconds", **QUEUE) == 1
    assert value("controller_runtime_reconcile_time_seconds_sum", controller=NAME) == 6
    assert value("ansible_operator_reconciles_sum", GVK=KIND) == 6
    assert value("controller_runtime_reconcile_total", controller=NAME, result="requeue_after") == 1


@pytest.mark.parametrize(("outcome", "panics"), [("error", 0), ("panic", 1)])
def test_failures_and_crashes_are_errors(
    controller: ControllerMetrics, value: Value, outcome: str, panics: int
) -> None:
    controller.started("a")
    controller.ended("a", outcome)
    controller.retried("a")
    assert value("controller_runtime_reconcile_total", controller=NAME, result="error") == 1
    assert value("controller_runtime_reconcile_errors_total", controller=NAME) == 1
    assert value("controller_runtime_reconcile_panics_total", controller=NAME) == panics
    assert value("workqueue_retries_total", **QUEUE) == 1


def test_depth_is_counted_by_priority_and_a_moved_request_keeps_its_age(
    controller: ControllerMetrics, time: Time, value: Value
) -> None:
    def depths() -> list[float | None]:
        name = "ansible_operator_workqueue_depth"
        return [value(name, controller=NAME, priority=priority) for priority in PRIORITIES]

    for request, priority in (("a", "low"), ("b", "low"), ("c", "medium"), ("d", "low")):
        controller.added(request, priority)
    controller.dropped("d")
    assert depths() == [0, 1, 2]
    time.seconds += 3
    controller.moved("a", "high")
    assert depths() == [1, 1, 1]
    assert value("workqueue_adds_total", **QUEUE) == 4
    time.seconds += 4
    controller.taken("a")
    assert depths() == [0, 1, 1]
    waited = "ansible_operator_workqueue_queue_duration_seconds_sum"
    assert value(waited, controller=NAME, priority="high") == 7
    assert value(waited, controller=NAME, priority="low") == 0
    assert value("workqueue_queue_duration_seconds_sum", **QUEUE) == 7
