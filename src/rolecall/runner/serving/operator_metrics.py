"""All metrics of one operator.

An operator creates one ``OperatorMetrics`` and passes it to the parts that report to it: controllers, the API client,
leader election, and the endpoint for the metrics of roles.
"""

from collections.abc import Collection, Mapping

from prometheus_client import Counter, Gauge, ProcessCollector

from rolecall.runner.serving.controller_metrics import ControllerFamilies
from rolecall.runner.serving.read_watch_metrics import ReadWatchMetrics
from rolecall.runner.serving.reconcile_results import ReconcileResults
from rolecall.runner.serving.registry import Registry
from rolecall.runner.serving.resource_created_at import ResourceCreatedAt
from rolecall.runner.serving.shard_metrics import ShardMetrics
from rolecall.runner.serving.user_metrics import UserMetrics


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
