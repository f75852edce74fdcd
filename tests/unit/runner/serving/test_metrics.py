from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.controller.work_queue import Backoff, Cause, Priority, WorkQueue
from rolecall.runner.serving.metrics import (
    MAX_USER_METRICS,
    ControllerMetrics,
    OperatorMetrics,
    RefusedError,
    UserMetrics,
    controller_names,
)
from tests.unit.manual_clock import ManualClock

THING = GVK("example.com", "v1", "Thing")
OTHER = GVK("other.example.com", "v1", "Thing")
SECRET = GVK("", "v1", "Secret")
ONE = ObjectKey("default", "one")
NAME, KIND = "thing-v1-controller", "example.com/v1, Kind=Thing"
QUEUE = {"name": NAME, "controller": NAME}
CREATED = 'resource_created_at_seconds{group="example.com",kind="Thing",name="one",namespace="default",version="v1"}'
PRIORITIES = ("high", "medium", "low")
LIMITS = ("time", "memory", "disk")
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
    metrics.count_read_watches("/v1, Kind=Secret", lambda: 2, lambda: 5)
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
    assert value("workqueue_adds_total", **QUEUE) == 0
    assert value("workqueue_unfinished_work_seconds", **QUEUE) == 0
    assert value("ansible_operator_reconciles_count", GVK=KIND) == 0
    for priority in PRIORITIES:
        assert value("workqueue_depth", **QUEUE, priority=priority) == 0
        assert value("workqueue_queue_duration_seconds_count", **QUEUE, priority=priority) == 0


def test_request_is_measured_from_due_to_done(controller: ControllerMetrics, time: Time, value: Value) -> None:
    controller.added("a")
    controller.added("b")
    time.seconds += 2
    controller.taken("a", "high")
    assert value("controller_runtime_active_workers", controller=NAME) == 1
    time.seconds += 5
    controller.taken("b", "low")
    assert value("controller_runtime_active_workers", controller=NAME) == 2
    time.seconds += 1
    assert value("workqueue_unfinished_work_seconds", **QUEUE) == 7
    assert value("workqueue_longest_running_processor_seconds", **QUEUE) == 6
    controller.ended("a", "requeue_after")
    assert value("controller_runtime_active_workers", controller=NAME) == 1
    assert value("workqueue_adds_total", **QUEUE) == 2
    assert value("workqueue_queue_duration_seconds_sum", **QUEUE, priority="high") == 2
    assert value("workqueue_queue_duration_seconds_sum", **QUEUE, priority="low") == 7
    assert value("workqueue_work_duration_seconds_sum", **QUEUE) == 6
    assert value("workqueue_longest_running_processor_seconds", **QUEUE) == 1
    assert value("controller_runtime_reconcile_time_seconds_sum", controller=NAME) == 6
    assert value("ansible_operator_reconciles_sum", GVK=KIND) == 6
    assert value("controller_runtime_reconcile_total", controller=NAME, result="requeue_after") == 1


@pytest.mark.parametrize(("outcome", "panics"), [("error", 0), ("panic", 1)])
def test_failures_and_crashes_are_errors(
    controller: ControllerMetrics, value: Value, outcome: str, panics: int
) -> None:
    controller.added("a")
    controller.taken("a", "high")
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
        return [value("workqueue_depth", **QUEUE, priority=priority) for priority in PRIORITIES]

    queue: WorkQueue[str] = WorkQueue(ManualClock(), Backoff(1, 300), controller)
    for request, priority in (("a", Priority.LOW), ("b", Priority.LOW), ("c", Priority.MEDIUM), ("d", Priority.LOW)):
        queue.add(request, Cause("test", priority=priority))
    queue.discard(lambda request: request == "d")
    assert depths() == [0, 1, 2]
    time.seconds += 3
    queue.add("a", Cause("test", priority=Priority.HIGH))
    assert depths() == [1, 1, 1]
    assert value("workqueue_adds_total", **QUEUE) == 4
    time.seconds += 4
    queue.take()
    assert depths() == [0, 1, 1]
    waited = "workqueue_queue_duration_seconds_sum"
    assert value(waited, **QUEUE, priority="high") == 7
    assert value(waited, **QUEUE, priority="low") == 0


class Metrics:
    """The metrics of roles, with a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.user = UserMetrics(self.registry)

    def post(self, name: str, **what: Any) -> None:
        """Send a role's request in the form of its module: with null for each omitted option."""
        rest: dict[str, Any] = dict.fromkeys(("counter", "gauge", "histogram", "summary"))
        self.user.apply({"name": name, "description": "what it counts", **rest, **what})

    def lines(self) -> list[str]:
        """Return the lines of the text."""
        return (generate_latest(self.registry) + self.user.render()).decode().splitlines()

    def value(self, name: str) -> float:
        """Return the value of a series without labels."""
        (line,) = [line for line in self.lines() if line.startswith(f"{name} ")]
        return float(line.split()[1])


@pytest.fixture
def role_metrics() -> Metrics:
    return Metrics()


def test_counter_keeps_its_plain_name(role_metrics: Metrics) -> None:
    role_metrics.post("sanity_counter", counter={"increment": None, "add": None})
    assert role_metrics.value("sanity_counter") == 0
    role_metrics.post("sanity_counter", counter={"increment": True, "add": 7})
    role_metrics.post("sanity_counter", counter={"increment": False, "add": 2.5})
    assert role_metrics.value("sanity_counter") == 3.5
    assert "# TYPE sanity_counter counter" in role_metrics.lines()
    assert "# HELP sanity_counter what it counts" in role_metrics.lines()


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, 10),
        ({"set": 0}, 10),
        ({"set": 5}, 5),
        ({"increment": True}, 11),
        ({"decrement": True}, 9),
        ({"add": 7}, 17),
        ({"subtract": 7}, 3),
        ({"add": 0, "subtract": 1}, 9),
        ({"increment": True, "decrement": True, "add": 100, "set": 50}, 11),
        ({"decrement": True, "add": 100}, 9),
        ({"add": 1, "subtract": 5, "set": 50}, 11),
        ({"subtract": 1, "set": 50}, 9),
        ({"set": 50, "set_to_current_time": True}, 50),
    ],
)
def test_gauge_applies_the_first_operation(role_metrics: Metrics, asked: dict[str, Any], expected: float) -> None:
    role_metrics.post("gauge", gauge={"set": 10})
    role_metrics.post("gauge", gauge=asked)
    assert role_metrics.value("gauge") == expected


def test_gauge_is_set_to_current_time(role_metrics: Metrics) -> None:
    role_metrics.post("gauge", gauge={"set_to_current_time": True})
    assert role_metrics.value("gauge") > 1.7e9


def test_observed_zero_counts(role_metrics: Metrics) -> None:
    role_metrics.post("histogram", histogram={"observe": 0})
    role_metrics.post("histogram", histogram={"observe": 2})
    role_metrics.post("summary", summary={"observe": None})
    assert (role_metrics.value("histogram_count"), role_metrics.value("histogram_sum")) == (2, 2)
    assert 'histogram_bucket{le="2.5"} 2.0' in role_metrics.lines()
    assert role_metrics.value("summary_count") == 1
    assert "# TYPE summary summary" in role_metrics.lines()
    assert not [line for line in role_metrics.lines() if "_created" in line]


def test_histogram_and_summary_requests_are_interchangeable(role_metrics: Metrics) -> None:
    role_metrics.post("histogram", histogram={"observe": 1})
    role_metrics.post("histogram", summary={"observe": 1})
    assert role_metrics.value("histogram_sum") == 2


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ([], "expected an object, found list"),
        ({"name": "a"}, "a request should contain at least one metric"),
        ({"name": "a", "gauge": None}, "a request should contain at least one metric"),
        ({"name": "a", "counter": {}, "gauge": {}}, "only one metric can be processed at a time"),
        ({"name": "a", "counter": {"add": -1}}, "counter metrics cannot decrease in value"),
        ({"name": "a", "counter": {"add": "1"}}, "counter.add: expected a number, found '1'"),
        ({"name": "a", "counter": {"add": float("nan")}}, "counter.add: expected a number, found nan"),
        ({"name": "a", "counter": {"add": True}}, "counter.add: expected a number, found True"),
        ({"name": "a", "counter": {"increment": 1}}, "counter.increment: expected true or false, found 1"),
        ({"name": "a", "gauge": 1}, "gauge: expected an object, found 1"),
        ({"name": 1, "gauge": {}}, "name: expected a string, found 1"),
        ({"name": "known", "counter": {}}, "cannot change metric type of known, which is a gauge"),
        ({"name": "known", "summary": {}}, "cannot change metric type of known, which is a gauge"),
    ],
)
def test_invalid_request_is_rejected_and_changes_nothing(role_metrics: Metrics, request_: object, text: str) -> None:
    role_metrics.post("known", gauge={"set": 1})
    before = role_metrics.lines()
    with pytest.raises(RefusedError) as refused:
        role_metrics.user.apply(request_)
    assert str(refused.value) == text
    assert role_metrics.lines() == before


@pytest.mark.parametrize("kind", ["counter", "gauge", "histogram", "summary"])
@pytest.mark.parametrize("name", ["", "with space", "9lives", "dé", "taken_sum", "taken"])
def test_invalid_name_does_not_fail_the_role(role_metrics: Metrics, name: str, kind: str) -> None:
    role_metrics.post("taken", summary={"observe": 1})
    before = role_metrics.lines()
    if name == "taken" and kind in {"counter", "gauge"}:
        with pytest.raises(RefusedError):
            role_metrics.post(name, **{kind: {}})
    elif name != "taken":
        role_metrics.post(name, **{kind: {}})
    assert role_metrics.lines() == before


def test_metrics_of_roles_have_limits(role_metrics: Metrics) -> None:
    """Each name stays in the operator's memory and in each scrape."""
    for number in range(MAX_USER_METRICS):
        role_metrics.user.apply(
            {"name": f"metric_{number}", "description": "d" * 100_000, "counter": {"increment": True}}
        )
    with pytest.raises(RefusedError, match="already have 1000 metrics"):
        role_metrics.post("one_more", counter={"increment": True})
    role_metrics.post("metric_7", counter={"increment": True})
    assert role_metrics.value("metric_7") == 2
    assert max(map(len, role_metrics.lines())) < 1200


def test_long_name_of_a_metric_is_invalid_and_not_logged_whole(role_metrics: Metrics) -> None:
    with capture_logs() as logged:
        role_metrics.post("n" * 1_000_000, gauge={"increment": True})
    assert role_metrics.lines() == []
    assert len(str(logged)) < 1000


@pytest.mark.parametrize("outcome", ["error", "terminal", "panic"])
def test_object_is_failing_from_its_failure_until_its_next_success(
    controller: ControllerMetrics, value: Value, outcome: str
) -> None:
    def reconcile(key: ObjectKey, result: str) -> None:
        controller.added(key)
        controller.taken(key, "high")
        controller.ended(key, result)

    for key in (ONE, ObjectKey("default", "two"), ONE):
        reconcile(key, outcome)
    assert value("ansible_operator_failing_objects", GVK=KIND) == 2
    reconcile(ONE, "requeue_after")
    assert value("ansible_operator_failing_objects", GVK=KIND) == 1
    controller.forget(lambda key: key.name == "two")
    assert value("ansible_operator_failing_objects", GVK=KIND) == 0


def test_oldest_waiting_request_ages_until_a_worker_takes_it(
    controller: ControllerMetrics, value: Value, time: Time
) -> None:
    assert value("ansible_operator_oldest_waiting_request_seconds", GVK=KIND) == 0
    controller.added(ONE)
    time.seconds += 30
    controller.added(ObjectKey("default", "two"))
    time.seconds += 10
    assert value("ansible_operator_oldest_waiting_request_seconds", GVK=KIND) == 40
    controller.taken(ONE, "high")
    assert value("ansible_operator_oldest_waiting_request_seconds", GVK=KIND) == 10


def test_killed_runs_are_counted_by_limit(controller: ControllerMetrics, value: Value) -> None:
    controller.run_ended(succeeded=False, limit="memory")
    controller.run_ended(succeeded=False)
    found = {limit: value("ansible_operator_killed_runs_total", GVK=KIND, limit=limit) for limit in LIMITS}
    assert found == {"time": 0, "memory": 1, "disk": 0}
