"""The metric ``resource_created_at_seconds``: one series for each primary, removed with the object.

The times are stored as plain numbers and become series only when the metrics are read, because there may be thousands.
"""

from collections.abc import Iterable
from datetime import datetime

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

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
