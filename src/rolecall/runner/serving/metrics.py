"""All metrics of one operator, with the names of controller-runtime and the Go runner where these have them.

An operator creates one ``OperatorMetrics`` with its own registry, so several operators in one process don't share
metrics. Each watch gets a ``ControllerMetrics`` from it: its controller, work queue, and reconciler report there.

The text is in the Prometheus format, without the ``_created`` series of OpenMetrics, like that of Go controllers.

Roles create and change metrics with the module ``osdk_metric``. A request names a metric and one operation on it. The
first request creates the metric and fixes its type; histogram and summary requests are interchangeable. Error messages
are those of the Go runner, because roles may look for them. An invalid metric name is logged and doesn't fail the role.
"""

import math
import re
from collections import Counter as CountOf
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    ProcessCollector,
    Summary,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily

from rolecall.kube.references import GVK, ObjectKey
from rolecall.system.clock import SYSTEM_CLOCK
from rolecall.system.logs import get_logger

logger = get_logger("metrics")

# For the whole process, in which only this module has metrics.
disable_created_metrics()  # type: ignore[no-untyped-call]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_RECONCILE_BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    *(1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0),
    *(50.0, 60.0),
)
_QUEUE_BUCKETS = tuple(10.0**exponent for exponent in range(-8, 4))
_PRIORITIES = ("high", "medium", "low")
_OUTCOMES = ("success", "error", "requeue", "requeue_after")
DEFAULT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The default buckets of Prometheus' Go client, in seconds."""

MAX_USER_METRICS = 1000
"""The maximum number of metrics of roles: each stays in memory, and in each scrape, as long as the operator runs."""

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]{,199}")
_MAX_DESCRIPTION = 1000
_OPERATIONS: Mapping[str, Mapping[str, tuple[type, Callable[[Any, float], None]]]] = {
    "counter": {
        "increment": (bool, lambda counter, _: counter.inc()),
        "add": (float, lambda counter, value: counter.inc(value)),
    },
    "gauge": {
        "increment": (bool, lambda gauge, _: gauge.inc()),
        "decrement": (bool, lambda gauge, _: gauge.dec()),
        "add": (float, lambda gauge, value: gauge.inc(value)),
        "subtract": (float, lambda gauge, value: gauge.dec(value)),
        "set": (float, lambda gauge, value: gauge.set(value)),
        "set_to_current_time": (bool, lambda gauge, _: gauge.set_to_current_time()),
    },
    "histogram": {"observe": (float, lambda histogram, value: histogram.observe(value))},
    "summary": {"observe": (float, lambda summary, value: summary.observe(value))},
}
"""The operations on each kind of metric, with the type of their values, in the order in which they take precedence."""

_TYPE_NAMES: Mapping[type, str] = {str: "a string", float: "a number", bool: "true or false"}


class ResourceCreatedAt:
    """The collector of ``resource_created_at_seconds``: one series for each primary, removed with the object.

    There may be thousands of primaries, so their times become series only when the metrics are read.
    """

    def __init__(self) -> None:
        self.times: dict[tuple[str, str, str, str, str], float] = {}

    def describe(self) -> Iterable[Metric]:
        """Return the metric without its series."""
        text = "Creation time of each primary in seconds since the epoch; removed with the object"
        labels = ("name", "namespace", "group", "version", "kind")
        return [GaugeMetricFamily("resource_created_at_seconds", text, labels=labels)]

    def collect(self) -> Iterable[Metric]:
        """Return the metric with its series."""
        (family,) = self.describe()
        for labels, seconds in list(self.times.items()):
            family.add_metric(labels, seconds)  # type: ignore[attr-defined] # describe returns a GaugeMetricFamily
        return [family]


class OperatorMetrics:
    """The metrics of one operator; ``now`` is a monotonic clock in seconds."""

    def __init__(
        self, version: str, kinds: Iterable[GVK] = (), now: Callable[[], float] = SYSTEM_CLOCK.monotonic
    ) -> None:
        self.registry = CollectorRegistry()
        self.now = now
        self._controller_names = controller_names(kinds)
        ProcessCollector(registry=self.registry)
        text = "Always 1; the labels have the version of rolecall"
        self._gauge("ansible_operator_build_info", text, "commit", "version").labels("", version).set(1)
        text = "Requests of the operator itself to the API server, without those of runs"
        self._requests = self._counter("rest_client_requests_total", text, "code", "method", "host")
        text = "1 on the replica that holds the Lease, 0 on all others"
        self._leading = self._gauge("leader_election_master_status", text, "name")
        text = "Renewals that had to read the Lease first"
        self._slow_renewals = self._counter("leader_election_slowpath_total", text, "name")
        text = "1 for each shard that this replica holds"
        self._shard_held = self._gauge("ansible_operator_shard_held", text, "shard")
        text = "Replicas that share the shards, as this replica sees them"
        self._shard_members = self._gauge("ansible_operator_shard_members", text)
        self._shards_shown: set[int] = set()
        text = "Attempts to read the mounted certificate"
        self._reloads = self._counter("certwatcher_read_certificate_total", text)
        text = "Failed attempts to read the mounted certificate"
        self._failed_reloads = self._counter("certwatcher_read_certificate_errors_total", text)
        text = "Fork servers that were replaced, by reason: stale (a file changed), exited, unresponsive, start_timeout"
        self._fork_servers = self._counter("ansible_operator_fork_server_replacements_total", text, "reason")
        for reason in ("stale", "exited", "unresponsive", "start_timeout"):
            self._fork_servers.labels(reason)
        text = "1 if runs use a patch of Ansible, 0 if not; the log has the reason"
        self._patches = self._gauge("ansible_operator_patch_in_use", text, "patch")
        self._define_controllers()
        self._define_queues()
        self.created_at = ResourceCreatedAt()
        self.registry.register(self.created_at)
        text = "Watches of a kind because runs have read it"
        self._read_watches = self._gauge("ansible_operator_read_watches", text, "GVK")
        text = "Active read subscriptions of a kind, counted for each object that has read it"
        self._read_subscriptions = self._gauge("ansible_operator_read_subscriptions", text, "GVK")
        self.user_metrics = UserMetrics(self.registry)

    def _define_controllers(self) -> None:
        text = "Reconciles since the start, by result"
        self.results = self._gauge("ansible_operator_reconcile_result", text, "GVK", "result")
        text = "Statuses of which the API server rejected or dropped a part, or all"
        self.rejections = self._counter("ansible_operator_status_rejections_total", text, "GVK")
        text = "Objects that runs no longer name, by mode: delete (deleted) and report (proposed for deletion)"
        self.prunings = self._counter("ansible_operator_pruned_objects_total", text, "GVK", "kind", "mode")
        text = "Objects whose last reconcile failed"
        self.failing = self._gauge("ansible_operator_failing_objects", text, "GVK")
        text = "Runs that a limit ended, by limit: time, memory, disk"
        self.killed = self._counter("ansible_operator_killed_runs_total", text, "GVK", "limit")
        text = "Duration of reconciles in seconds, including the play"
        self.reconciles = self._histogram("ansible_operator_reconciles", text, DEFAULT_BUCKETS, "GVK")
        prefix = "controller_runtime"
        text = "Reconciles by result: success, error, requeue (immediately), requeue_after"
        self.total = self._counter(f"{prefix}_reconcile_total", text, "controller", "result")
        self.errors = self._counter(f"{prefix}_reconcile_errors_total", "Reconciles that failed", "controller")
        text = "Reconciles that failed because of their object, and aren't retried until it changes"
        self.terminal_errors = self._counter(f"{prefix}_terminal_reconcile_errors_total", text, "controller")
        text = "Reconciles that crashed because of a bug in rolecall"
        self.panics = self._counter(f"{prefix}_reconcile_panics_total", text, "controller")
        text = "Duration of reconciles in seconds"
        self.seconds = self._histogram(f"{prefix}_reconcile_time_seconds", text, _RECONCILE_BUCKETS, "controller")
        self.workers = self._gauge(f"{prefix}_max_concurrent_reconciles", "Number of workers", "controller")
        self.active = self._gauge(f"{prefix}_active_workers", "Workers that are reconciling", "controller")

    def _define_queues(self) -> None:
        by = ("name", "controller")
        text = "Requests that are waiting for a worker, by priority: high, medium, low"
        self.depth = self._gauge("workqueue_depth", text, *by, "priority")
        self.adds = self._counter("workqueue_adds_total", "Requests that were added to the queue", *by)
        text = "Seconds since the oldest waiting request was added, 0 if none waits"
        self.oldest = self._gauge("ansible_operator_oldest_waiting_request_seconds", text, "GVK")
        self.retries = self._counter("workqueue_retries_total", "Requests that are retried after a failure", *by)
        text = "Seconds that requests wait for a worker, by the priority in which they leave the queue"
        self.waited = self._histogram("workqueue_queue_duration_seconds", text, _QUEUE_BUCKETS, *by, "priority")
        text = "Seconds that workers take for a request"
        self.worked = self._histogram("workqueue_work_duration_seconds", text, _QUEUE_BUCKETS, *by)
        self.unfinished = self._gauge("workqueue_unfinished_work_seconds", "Total seconds of work in progress", *by)
        text = "Seconds of the oldest work in progress"
        self.longest = self._gauge("workqueue_longest_running_processor_seconds", text, *by)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

    def render(self) -> bytes:
        """Return the text of all metrics; safe in any thread."""
        return generate_latest(self.registry) + self.user_metrics.render()

    def controller(self, gvk: GVK, workers: int) -> "ControllerMetrics":
        """Return the metrics of the controller of a watched kind, with all series at 0."""
        return ControllerMetrics(self, self._controller_names[gvk], gvk, workers)

    def count_request(self, code: str, method: str, host: str) -> None:
        """Count a request to the API server; the code of a request without a response is ``<error>``."""
        self._requests.labels(code, method, host).inc()

    def count_certificate(self, *, succeeded: bool) -> None:
        """Count an attempt to read the certificate of the metrics endpoint."""
        self._reloads.inc()
        if not succeeded:
            self._failed_reloads.inc()

    def count_fork_server(self, reason: str) -> None:
        """Count a fork server that takes no further runs."""
        self._fork_servers.labels(reason).inc()

    def set_patches(self, patches: Mapping[str, bool]) -> None:
        """Set whether runs use each patch of Ansible."""
        for name, in_use in patches.items():
            self._patches.labels(name).set(in_use)

    def set_leading(self, name: str, *, leading: bool) -> None:
        """Set whether this replica is the leader of an election."""
        self._leading.labels(name).set(leading)
        self._slow_renewals.labels(name)

    def count_slow_renewal(self, name: str) -> None:
        """Count a renewal that had to read the Lease first."""
        self._slow_renewals.labels(name).inc()

    def set_shards(self, held: Collection[int], members: int) -> None:
        """Set which shards this replica holds, and how many replicas share all of them."""
        for index in self._shards_shown - set(held):
            self._shard_held.remove(str(index))
        for index in held:
            self._shard_held.labels(str(index)).set(1)
        self._shards_shown = set(held)
        self._shard_members.set(members)

    def count_read_watches(self, gvk: str, watches: Callable[[], int], subscriptions: Callable[[], int]) -> None:
        """Count the watches and subscriptions of a kind that runs have read, whenever the metrics are read."""
        self._read_watches.labels(gvk).set_function(watches)
        self._read_subscriptions.labels(gvk).set_function(subscriptions)


def controller_names(kinds: Iterable[GVK]) -> dict[GVK, str]:
    """Return the name of each kind's controller: ``<kind>-<version>-controller``, as in the Go runner.

    If two groups have a kind of that name, the name contains the group too.
    """
    gvks = tuple(kinds)
    sharing = CountOf((gvk.kind.lower(), gvk.version) for gvk in gvks)
    names = {}
    for gvk in gvks:
        group = f"{gvk.group}-" if sharing[gvk.kind.lower(), gvk.version] > 1 and gvk.group else ""
        names[gvk] = f"{gvk.kind}-{group}{gvk.version}-controller".lower()
    return names


class ControllerMetrics:
    """The metrics of one controller, its work queue, its objects, and its runs.

    Unfinished work and the oldest work are computed when the metrics are read.
    """

    def __init__(self, metrics: OperatorMetrics, name: str, gvk: GVK, workers: int) -> None:
        self._metrics, self._name, self._gvk, self._kind = metrics, name, gvk, str(gvk)
        self._now = metrics.now
        self._queued: dict[Hashable, float] = {}
        """The time since which each request has been waiting."""
        self._failing: set[Hashable] = set()
        self._taken: dict[Hashable, float] = {}
        metrics.workers.labels(name).set(workers)
        for outcome in _OUTCOMES:
            metrics.total.labels(name, outcome)
        for family in (metrics.errors, metrics.terminal_errors, metrics.panics, metrics.seconds, metrics.active):
            family.labels(name)
        for family in (metrics.reconciles, metrics.rejections):
            family.labels(self._kind)
        for limit in ("time", "memory", "disk"):
            metrics.killed.labels(self._kind, limit)
        metrics.failing.labels(self._kind).set_function(lambda: len(self._failing))
        metrics.oldest.labels(self._kind).set_function(self._oldest_seconds)
        for result in ("succeeded", "failed"):
            metrics.results.labels(self._kind, result)
        metrics.unfinished.labels(name, name).set_function(lambda: sum(self._ages()))
        metrics.longest.labels(name, name).set_function(lambda: max(self._ages(), default=0.0))
        for family in (metrics.adds, metrics.retries, metrics.worked):
            family.labels(name, name)
        for priority in _PRIORITIES:
            metrics.depth.labels(name, name, priority)
            metrics.waited.labels(name, name, priority)

    def _ages(self) -> list[float]:
        """Return the seconds since a worker took each request in progress."""
        now = self._now()
        return [now - taken for taken in list(self._taken.values())]

    def _oldest_seconds(self) -> float:
        """Return the seconds since the oldest waiting request was added."""
        now = self._now()
        return now - min(list(self._queued.values()), default=now)

    def set_depth(self, priority: str, count: Callable[[], int]) -> None:
        """Let ``count`` return the waiting requests of a priority, whenever the metrics are read."""
        self._metrics.depth.labels(self._name, self._name, priority).set_function(count)

    def added(self, request: Hashable) -> None:
        """Record that a request became due."""
        self._queued[request] = self._now()
        self._metrics.adds.labels(self._name, self._name).inc()

    def taken(self, request: Hashable, priority: str) -> None:
        """Record that a worker took a request, which left the queue in a priority."""
        now = self._taken[request] = self._now()
        seconds = now - self._queued.pop(request)
        self._metrics.waited.labels(self._name, self._name, priority).observe(seconds)
        self._metrics.active.labels(self._name).inc()

    def dropped(self, request: Hashable) -> None:
        """Record that a request left the queue without a worker."""
        del self._queued[request]

    def forget(self, belongs: Callable[[Any], bool]) -> None:
        """Drop the failures of requests that another replica takes over."""
        self._failing -= {each for each in self._failing if belongs(each)}

    def retried(self, _request: Hashable) -> None:
        """Record that a request will be retried after a failure."""
        self._metrics.retries.labels(self._name, self._name).inc()

    def ended(self, request: Hashable, outcome: str) -> None:
        """Record the result of a reconcile: success, error, terminal, requeue, requeue_after, or panic."""
        metrics, name = self._metrics, self._name
        seconds = self._now() - self._taken.pop(request)
        metrics.active.labels(name).dec()
        metrics.worked.labels(name, name).observe(seconds)
        metrics.seconds.labels(name).observe(seconds)
        metrics.reconciles.labels(self._kind).observe(seconds)
        families = {"panic": metrics.panics, "terminal": metrics.terminal_errors}
        (self._failing.add if outcome in {"error", *families} else self._failing.discard)(request)
        if outcome in families:
            families[outcome].labels(name).inc()
            outcome = "error"
        if outcome == "error":
            metrics.errors.labels(name).inc()
        metrics.total.labels(name, outcome).inc()

    def run_ended(self, *, succeeded: bool, limit: str = "") -> None:
        """Count a run by its result and the limit that ended it, or a failure before it."""
        if limit:
            self._metrics.killed.labels(self._kind, limit).inc()
        self._metrics.results.labels(self._kind, "succeeded" if succeeded else "failed").inc()

    def status_rejected(self) -> None:
        """Count a status that the API server didn't store as it was sent."""
        self._metrics.rejections.labels(self._kind).inc()

    def pruned(self, kind: str, mode: str) -> None:
        """Count an object of this kind that was deleted, or would have been: the mode is ``delete`` or ``report``."""
        self._metrics.prunings.labels(self._kind, kind, mode).inc()

    def set_created_at(self, key: ObjectKey, timestamp: str | None) -> None:
        """Set the ``creationTimestamp`` of a primary; None, or an invalid one, removes its series."""
        labels = (key.name, key.namespace, self._gvk.group, self._gvk.version, self._gvk.kind)
        try:
            self._metrics.created_at.times[labels] = datetime.fromisoformat(timestamp or "").timestamp()
        except ValueError:
            self._metrics.created_at.times.pop(labels, None)


class RefusedError(Exception):
    """An invalid request; the message is for the role's author."""


@dataclass(slots=True, eq=False)
class PlainCounter:
    """A counter with exactly the given name, with or without ``_total`` at the end.

    The registry can't render such a counter, so it only reserves the name.
    """

    name: str
    description: str
    value: float = 0.0

    def inc(self, amount: float = 1.0) -> None:
        """Increase the counter."""
        self.value += amount

    def describe(self) -> Iterable[Metric]:
        """Return the metric whose name the registry reserves."""
        return [Metric(self.name, self.description, "unknown")]

    def collect(self) -> Iterable[Metric]:
        """Return no metrics."""
        return []

    def text(self) -> str:
        """Return the counter in the text format."""
        description = self.description.replace("\\", r"\\").replace("\n", r"\n")
        head = f"# HELP {self.name} {description}\n# TYPE {self.name} counter\n"
        return f"{head}{self.name} {self.value!r}\n"


UserMetric = PlainCounter | Gauge | Histogram | Summary


class UserMetrics:
    """The metrics of roles; ``render`` returns those that the registry doesn't render itself."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._metrics: dict[str, UserMetric] = {}

    def apply(self, request: object) -> None:
        """Apply a request, decoded from JSON. Raise RefusedError."""
        if not isinstance(request, dict):
            raise RefusedError(f"expected an object, found {type(request).__name__}")
        name = _read(request, "name", str) or ""
        kinds = [kind for kind in _OPERATIONS if request.get(kind) is not None]
        if not kinds:
            raise RefusedError("a request should contain at least one metric")
        if len(kinds) > 1:
            raise RefusedError("only one metric can be processed at a time")
        (kind,) = kinds
        operations = _read_operations(kind, request[kind])
        description = (_read(request, "description", str) or "")[:_MAX_DESCRIPTION]
        metric = self._metrics.get(name)
        if metric is None:
            if len(self._metrics) >= MAX_USER_METRICS:
                raise RefusedError(f"roles already have {MAX_USER_METRICS} metrics, and more would fill the memory")
            try:
                metric = self._metrics[name] = self._create(name, description, kind)
            except ValueError as error:
                logger.error("Failed to export a metric of a role", error=str(error))  # noqa: TRY400
                return
        known = {PlainCounter: "counter", Gauge: "gauge"}.get(type(metric), "histogram or summary")
        if kind not in known.split():
            raise RefusedError(f"cannot change metric type of {name}, which is a {known}")
        _change(metric, kind, operations)

    def render(self) -> bytes:
        """Return the counters as text."""
        metrics = list(self._metrics.values())
        return "".join(metric.text() for metric in metrics if isinstance(metric, PlainCounter)).encode()

    def _create(self, name: str, description: str, kind: str) -> UserMetric:
        """Return a new, registered metric. Raise ValueError for an invalid name or one in use."""
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name[:200]!r} is not a valid metric name")
        if kind == "counter":
            counter = PlainCounter(name, description)
            self._registry.register(counter)
            return counter
        if kind == "histogram":
            return Histogram(name, description, buckets=DEFAULT_BUCKETS, registry=self._registry)
        family = Gauge if kind == "gauge" else Summary
        return family(name, description, registry=self._registry)


def _read_operations(kind: str, raw: object) -> dict[str, Any]:
    """Return the operations of a request with their values. Raise RefusedError for a value of an invalid type."""
    if not isinstance(raw, dict):
        raise RefusedError(f"{kind}: expected an object, found {raw!r}")
    operations = {name: _read(raw, name, wanted, f"{kind}.") for name, (wanted, _) in _OPERATIONS[kind].items()}
    if kind == "counter" and (operations["add"] or 0.0) < 0:
        raise RefusedError("counter metrics cannot decrease in value")
    return {name: value for name, value in operations.items() if value is not None}


def _read(mapping: Mapping[str, Any], name: str, wanted: type, where: str = "") -> Any:
    value = mapping.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if value is None or (is_number if wanted is float else isinstance(value, wanted)):
        return value
    raise RefusedError(f"{where}{name}: expected {_TYPE_NAMES[wanted]}, found {value!r}")


def _change(metric: Any, kind: str, operations: Mapping[str, Any]) -> None:
    """Apply the first operation; false and 0 are no operation, except for an observed 0."""
    known = _OPERATIONS[kind]
    name = next(filter(operations.get, known), "observe")
    if name in known:
        _, apply = known[name]
        apply(metric, operations.get(name, 0.0))
