"""The metrics of controllers and work queues, with the names of controller-runtime.

A controller and its queue report to a ``ControllerMetrics``, which only counts their requests. Durations are measured
with a monotonic clock. Depth, unfinished work and the oldest work are computed when the metrics are read.

The registry of one operator, and the metrics as text.

The text is in the Prometheus format, without the ``_created`` series of OpenMetrics: the series are those of Go
controllers.
"""

import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_WITH_CREATION_TIME = ("counter", "histogram", "summary")


class Registry(CollectorRegistry):
    """All metrics of one operator."""

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics without their ``_created`` series."""
        for metric in super().collect():
            if metric.type in _WITH_CREATION_TIME:
                metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric

    def render(self) -> bytes:
        """Return all metrics as text; safe in any thread."""
        return generate_latest(self)


class ReservedName:
    """Reserve the name of a metric that is rendered outside of the registry."""

    def __init__(self, name: str, description: str) -> None:
        self._metric = Metric(name, description, "unknown")

    def describe(self) -> Iterable[Metric]:
        """Return the metric with the reserved name."""
        return [self._metric]

    def collect(self) -> Iterable[Metric]:
        """Return no metrics."""
        return []


DEFAULT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The default buckets of Prometheus' Go client, in seconds."""

_RECONCILE = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    *(1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0),
    *(50.0, 60.0),
)
_QUEUE = tuple(10.0**exponent for exponent in range(-8, 4))
_PRIORITIES = ("high", "medium", "low")
_OUTCOMES = ("success", "error", "requeue", "requeue_after")
_PANIC = "panic"


class ControllerFamilies:
    """The metrics of all controllers of an operator; ``observer`` creates the series of one controller."""

    def __init__(self, registry: Registry, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self.reconciles = Histogram(
            "ansible_operator_reconciles",
            "Duration of reconciles in seconds, including the play",
            ["GVK"],
            buckets=DEFAULT_BUCKETS,
            registry=registry,
        )
        by = ["controller"]
        prefix = "controller_runtime"
        self.total = Counter(
            f"{prefix}_reconcile_total",
            "Reconciles by result: success, error, requeue (immediately), requeue_after",
            [*by, "result"],
            registry=registry,
        )
        self.errors = Counter(f"{prefix}_reconcile_errors_total", "Reconciles that failed", by, registry=registry)
        self.terminal_errors = Counter(
            f"{prefix}_terminal_reconcile_errors_total",
            "Always 0: every failed reconcile is retried",
            by,
            registry=registry,
        )
        self.panics = Counter(
            f"{prefix}_reconcile_panics_total",
            "Reconciles that crashed because of a bug in rolecall",
            by,
            registry=registry,
        )
        self.seconds = Histogram(
            f"{prefix}_reconcile_time_seconds",
            "Duration of reconciles in seconds",
            by,
            buckets=_RECONCILE,
            registry=registry,
        )
        self.workers = Gauge(f"{prefix}_max_concurrent_reconciles", "Number of workers", by, registry=registry)
        self.active = Gauge(f"{prefix}_active_workers", "Workers that are reconciling", by, registry=registry)
        self.queue = QueueFamilies(registry)

    def observer(self, controller: str, gvk: str, workers: int) -> "ControllerMetrics":
        """Create the series of one controller, all at 0, and return its observer."""
        self.workers.labels(controller).set(workers)
        for outcome in _OUTCOMES:
            self.total.labels(controller, outcome)
        for family in (self.errors, self.terminal_errors, self.panics, self.seconds, self.active):
            family.labels(controller)
        self.reconciles.labels(gvk)
        observer = ControllerMetrics(self, controller, gvk, self._now)
        self.queue.connect(observer)
        return observer


class QueueFamilies:
    """The metrics of all work queues of an operator."""

    def __init__(self, registry: Registry) -> None:
        by = ["name", "controller"]
        self.depth = Gauge(
            "workqueue_depth", "Requests that are waiting for a worker", [*by, "priority"], registry=registry
        )
        self.adds = Counter("workqueue_adds_total", "Requests that were added to the queue", by, registry=registry)
        self.retries = Counter(
            "workqueue_retries_total", "Requests that are retried after a failure", by, registry=registry
        )
        self.waited = Histogram(
            "workqueue_queue_duration_seconds",
            "Seconds that requests wait for a worker",
            by,
            buckets=_QUEUE,
            registry=registry,
        )
        self.worked = Histogram(
            "workqueue_work_duration_seconds",
            "Seconds that workers take for a request",
            by,
            buckets=_QUEUE,
            registry=registry,
        )
        self.unfinished = Gauge(
            "workqueue_unfinished_work_seconds", "Total seconds of work in progress", by, registry=registry
        )
        self.longest = Gauge(
            "workqueue_longest_running_processor_seconds",
            "Seconds of the oldest work in progress",
            by,
            registry=registry,
        )

        by_priority = ["controller", "priority"]
        self.depth_by_priority = Gauge(
            "ansible_operator_workqueue_depth",
            "Requests that are waiting for a worker, by priority: high, medium, low",
            by_priority,
            registry=registry,
        )
        self.waited_by_priority = Histogram(
            "ansible_operator_workqueue_queue_duration_seconds",
            "Seconds that requests wait for a worker, by the priority in which they leave the queue",
            by_priority,
            buckets=_QUEUE,
            registry=registry,
        )

    def connect(self, observer: "ControllerMetrics") -> None:
        """Create the series of one queue; gauges read their values from the observer."""
        labels = (observer.controller, observer.controller)
        self.depth.labels(*labels, "").set_function(lambda: float(len(observer.queued)))
        self.unfinished.labels(*labels).set_function(lambda: sum(observer.ages()))
        self.longest.labels(*labels).set_function(lambda: max(observer.ages(), default=0.0))
        for family in (self.adds, self.retries, self.waited, self.worked):
            family.labels(*labels)
        for priority in _PRIORITIES:
            self.depth_by_priority.labels(observer.controller, priority)
            self.waited_by_priority.labels(observer.controller, priority)


@dataclass(slots=True)
class ControllerMetrics:
    """Observe one controller and its queue."""

    families: ControllerFamilies
    controller: str
    gvk: str
    now: Callable[[], float]
    queued: dict[Hashable, tuple[float, str]] = field(default_factory=dict)
    """Since when each request waits, and its priority."""
    _taken: dict[Hashable, float] = field(default_factory=dict)
    _started: dict[Hashable, float] = field(default_factory=dict)

    def ages(self) -> list[float]:
        """Return the seconds since a worker took each request in progress."""
        now = self.now()
        return [now - taken for taken in list(self._taken.values())]

    def added(self, request: Hashable, priority: str) -> None:
        """Record that a request was added to the queue."""
        self.queued[request] = (self.now(), priority)
        self._depth(priority).inc()
        self.families.queue.adds.labels(self.controller, self.controller).inc()

    def moved(self, request: Hashable, priority: str) -> None:
        """Record that a request in the queue has another priority; it has waited since it was added."""
        since, before = self.queued[request]
        self.queued[request] = (since, priority)
        self._depth(before).dec()
        self._depth(priority).inc()

    def taken(self, request: Hashable) -> None:
        """Record that a worker took a request."""
        now = self._taken[request] = self.now()
        since, priority = self.queued.pop(request)
        self._depth(priority).dec()
        self.families.queue.waited.labels(self.controller, self.controller).observe(now - since)
        self.families.queue.waited_by_priority.labels(self.controller, priority).observe(now - since)

    def dropped(self, request: Hashable) -> None:
        """Record that a request left the queue without a worker."""
        _, priority = self.queued.pop(request)
        self._depth(priority).dec()

    def _depth(self, priority: str) -> Gauge:
        return self.families.queue.depth_by_priority.labels(self.controller, priority)

    def finished(self, request: Hashable) -> None:
        """Record that a worker is done with a request."""
        now = self.now()
        worked = now - self._taken.pop(request, now)
        self.families.queue.worked.labels(self.controller, self.controller).observe(worked)

    def retried(self, _request: Hashable) -> None:
        """Record that a request will be retried after a failure."""
        self.families.queue.retries.labels(self.controller, self.controller).inc()

    def started(self, request: Hashable) -> None:
        """Record the start of a reconcile."""
        self._started[request] = self.now()
        self.families.active.labels(self.controller).inc()

    def ended(self, request: Hashable, outcome: str) -> None:
        """Record the result of a reconcile: success, error, requeue, requeue_after or panic."""
        families, now = self.families, self.now()
        seconds = now - self._started.pop(request, now)
        families.active.labels(self.controller).dec()
        families.seconds.labels(self.controller).observe(seconds)
        families.reconciles.labels(self.gvk).observe(seconds)
        if outcome == _PANIC:
            families.panics.labels(self.controller).inc()
            outcome = "error"
        if outcome == "error":
            families.errors.labels(self.controller).inc()
        families.total.labels(self.controller, outcome).inc()
