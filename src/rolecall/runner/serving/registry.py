"""The registry of one operator, and the metrics as text.

The text is in the Prometheus format, without the ``_created`` series of OpenMetrics: the series are those of Go
controllers.
"""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Metric, generate_latest

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
