"""The metric of reconcile results, under the name that the Go runner uses."""

from prometheus_client import Gauge

from rolecall.runner.serving.registry import Registry


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
