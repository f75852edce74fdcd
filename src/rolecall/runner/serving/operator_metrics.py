"""All metrics of one operator.

An operator creates one ``OperatorMetrics`` and passes it to the parts that report to it: controllers, the API client,
leader election, and the endpoint for the metrics of roles.

The metrics of reads as triggers: what is watched because runs have read it.

The metric of reconcile results, under the name that the Go runner uses.

The metric ``resource_created_at_seconds``: one series for each primary, removed with the object.

The times are stored as plain numbers and become series only when the metrics are read, because there may be thousands.

The metrics of shards: which of them this replica holds, and how many replicas share all of them.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from prometheus_client import Counter, Gauge, Metric, ProcessCollector
from prometheus_client.core import GaugeMetricFamily

from rolecall.runner.serving.controller_metrics import ControllerFamilies, Registry
from rolecall.runner.serving.user_metrics import UserMetrics


class ReadWatchMetrics:
    """Shows for each kind that runs have read how many watches that takes, and how many reads are waited on."""

    def __init__(self, registry: Registry) -> None:
        self._watches = Gauge(
            "ansible_operator_read_watches",
            "Watches of a kind because runs have read it, up to a minute old",
            ["GVK"],
            registry=registry,
        )
        self._subscriptions = Gauge(
            "ansible_operator_read_subscriptions",
            "Reads of a kind that wake an object when they change, counted for each object that has read",
            ["GVK"],
            registry=registry,
        )

    def set(self, gvk: str, watches: int, subscriptions: int) -> None:
        """Set the numbers of a kind."""
        self._watches.labels(gvk).set(watches)
        self._subscriptions.labels(gvk).set(subscriptions)


class ReconcileResults:
    """Counts for each kind how many reconciles succeeded and how many failed."""

    def __init__(self, registry: Registry) -> None:
        self._results = Gauge(
            "ansible_operator_reconcile_result",
            "Reconciles since the start, by result",
            ["GVK", "result"],
            registry=registry,
        )

    def add_kind(self, gvk: str) -> None:
        """Start counting the results of a kind, at 0."""
        for result in ("succeeded", "failed"):
            self._results.labels(gvk, result)

    def count(self, gvk: str, *, succeeded: bool) -> None:
        """Count the result of a reconcile."""
        self._results.labels(gvk, "succeeded" if succeeded else "failed").inc()


_LABELS = ("name", "namespace", "group", "version", "kind")
Labels = tuple[str, str, str, str, str]
"""Name, namespace, group, version and kind of an object."""


class ResourceCreatedAt:
    """The collector of the metric ``resource_created_at_seconds``."""

    def __init__(self) -> None:
        self._times: dict[Labels, float] = {}

    def set(self, labels: Labels, timestamp: str) -> None:
        """Set the ``creationTimestamp`` of an object; remove the object if the timestamp is invalid."""
        try:
            self._times[labels] = datetime.fromisoformat(timestamp).timestamp()
        except ValueError:
            self.remove(labels)

    def remove(self, labels: Labels) -> None:
        """Remove an object."""
        self._times.pop(labels, None)

    def describe(self) -> Iterable[Metric]:
        """Return the metric without its series."""
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
        """Return the metric with its series."""
        family = self._family()
        for labels, seconds in list(self._times.items()):
            family.add_metric(labels, seconds)
        return [family]

    @staticmethod
    def _family() -> GaugeMetricFamily:
        text = "Creation time of each primary in seconds since the epoch; removed with the object"
        return GaugeMetricFamily("resource_created_at_seconds", text, labels=_LABELS)


class ShardMetrics:
    """The metrics of shards; without ``--shards`` the families are there, but no series of a shard."""

    def __init__(self, registry: Registry) -> None:
        self._held = Gauge(
            "ansible_operator_shard_held",
            "1 for each shard that this replica holds",
            ["shard"],
            registry=registry,
        )
        self._members = Gauge(
            "ansible_operator_shard_members",
            "Replicas that share the shards, as this replica sees them",
            registry=registry,
        )
        self._shown: set[int] = set()

    def set(self, held: Collection[int], members: int) -> None:
        """Show the shards that are held, and the number of members."""
        for index in self._shown - set(held):
            self._held.remove(str(index))
        for index in held:
            self._held.labels(str(index)).set(1)
        self._shown = set(held)
        self._members.set(members)


class OperatorMetrics:
    """The metrics of one operator, none of them global."""

    def __init__(self, version: str) -> None:
        registry = self._registry = Registry()
        ProcessCollector(registry=registry)
        build = Gauge(
            "ansible_operator_build_info",
            "Always 1; the labels have the version of rolecall",
            ["commit", "version"],
            registry=registry,
        )
        build.labels("", version).set(1)
        self._requests = Counter(
            "rest_client_requests_total",
            "Requests of the operator itself to the API server, without those of runs",
            ["code", "method", "host"],
            registry=registry,
        )
        self._leading = Gauge(
            "leader_election_master_status",
            "1 on the replica that holds the Lease, 0 on all others",
            ["name"],
            registry=registry,
        )
        self._slow_renewals = Counter(
            "leader_election_slowpath_total", "Renewals that had to read the Lease first", ["name"], registry=registry
        )
        self.shards = ShardMetrics(registry)
        self._reloads = Counter(
            "certwatcher_read_certificate_total", "Attempts to read the mounted certificate", registry=registry
        )
        self._failed_reloads = Counter(
            "certwatcher_read_certificate_errors_total",
            "Failed attempts to read the mounted certificate",
            registry=registry,
        )
        self._fork_servers = Counter(
            "ansible_operator_fork_server_replacements_total",
            "Fork servers that were replaced, by reason: stale (a file changed), died, hanging, not-ready",
            ["reason"],
            registry=registry,
        )
        for reason in ("stale", "died", "hanging", "not-ready"):
            self._fork_servers.labels(reason)
        self._patches = Gauge(
            "ansible_operator_patch_in_use",
            "1 if runs use a patch of Ansible, 0 if not; the log has the reason",
            ["patch"],
            registry=registry,
        )
        self.reconcile_results = ReconcileResults(registry)
        self.controllers = ControllerFamilies(registry)
        self.resource_created_at = ResourceCreatedAt()
        registry.register(self.resource_created_at)
        self.read_watches = ReadWatchMetrics(registry)
        self.user_metrics = UserMetrics(registry)

    def render(self) -> bytes:
        """Return the text of all metrics; any thread may ask."""
        return self._registry.render() + self.user_metrics.render()

    def count_request(self, code: str, method: str, host: str) -> None:
        """Count a request to the API server; the code of a request without an answer is ``<error>``."""
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

    def set_shards(self, held: Collection[int], members: int) -> None:
        """Set which shards this replica holds, and how many replicas share all of them."""
        self.shards.set(held, members)

    def count_slow_renewal(self, name: str) -> None:
        """Count a renewal that had to read the Lease first."""
        self._slow_renewals.labels(name).inc()
