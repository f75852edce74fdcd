"""The metrics of reads as triggers: what is watched because runs have read it."""

from prometheus_client import Gauge

from rolecall.runner.serving.registry import Registry


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
