"""The registry of one operator, and its text.

The text is the format that every Prometheus reads, without the ``_created`` series that only OpenMetrics knows: the
series are those of Go controllers.
"""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Metric, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_WITH_CREATION_TIME = ("counter", "histogram", "summary")


class Registry(CollectorRegistry):
    """All metrics of one operator."""

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics, without the times at which their series were created."""
        for metric in super().collect():
            if metric.type in _WITH_CREATION_TIME:
                metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric

    def render(self) -> bytes:
        """Return the text of all metrics; any thread may ask."""
        return generate_latest(self)


class ReservedName:
    """Keeps a metric's name in a registry for somebody who renders it without the registry."""

    def __init__(self, name: str, description: str) -> None:
        self._metric = Metric(name, description, "unknown")

    def describe(self) -> Iterable[Metric]:
        """Return the metric whose name is taken."""
        return [self._metric]

    def collect(self) -> Iterable[Metric]:
        """Return nothing."""
        return []
