"""When each primary was created: one series for each object, which goes with the object.

Kept as plain numbers and turned into series only when somebody reads them, because there may be many thousands.
"""

from collections.abc import Iterable
from datetime import datetime

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

_LABELS = ("name", "namespace", "group", "version", "kind")
Labels = tuple[str, str, str, str, str]
"""Name, namespace, group, version and kind of an object."""


class ResourceCreatedAt:
    """The metric ``resource_created_at_seconds``; register it as a collector."""

    def __init__(self) -> None:
        self._times: dict[Labels, float] = {}

    def put(self, labels: Labels, timestamp: str) -> None:
        """Note an object's ``creationTimestamp``; one that is no time is left out."""
        try:
            self._times[labels] = datetime.fromisoformat(timestamp).timestamp()
        except ValueError:
            self.drop(labels)

    def drop(self, labels: Labels) -> None:
        """Forget an object that is gone."""
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
        text = "When a primary was created, in seconds since the epoch; it goes with the object"
        return GaugeMetricFamily("resource_created_at_seconds", text, labels=_LABELS)
