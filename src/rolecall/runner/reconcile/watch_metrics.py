"""The metrics of each watch, and the names of its controller.

A controller is named ``<kind>-<version>-controller``, as in the Go runner. If two groups have a kind of that name, the
name contains the group too, so that no two controllers share one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import GVK
from rolecall.runner.controller.changes import Change
from rolecall.runner.runs.events import RunSummary
from rolecall.runner.serving.controller_metrics import ControllerMetrics
from rolecall.runner.serving.operator_metrics import OperatorMetrics


def controller_names(kinds: Iterable[GVK]) -> dict[GVK, str]:
    """Return the name of each kind's controller, in lower case."""
    gvks = tuple(kinds)
    sharing = Counter((gvk.kind.lower(), gvk.version) for gvk in gvks)
    names = {}
    for gvk in gvks:
        group = f"{gvk.group}-" if sharing[gvk.kind.lower(), gvk.version] > 1 and gvk.group else ""
        names[gvk] = f"{gvk.kind}-{group}{gvk.version}-controller".lower()
    return names


@dataclass(frozen=True, slots=True)
class WatchMetrics:
    """Measures one watch: its controller and queue through ``observer``, its objects, and its runs."""

    metrics: OperatorMetrics
    gvk: GVK
    observer: ControllerMetrics

    def primary_changed(self, change: Change, *, selected: bool) -> None:
        """Record when a primary was created; drop the series of one that is gone or no longer selected."""
        key, gvk = change.key, self.gvk
        labels = (key.name, key.namespace, gvk.group, gvk.version, gvk.kind)
        if selected:
            self.metrics.resource_created_at.set(labels, str(metadata_of(change.obj).get("creationTimestamp") or ""))
        else:
            self.metrics.resource_created_at.remove(labels)

    def run_ended(self, summary: RunSummary) -> None:
        """Count a run by how it ended."""
        self.metrics.reconcile_results.count(str(self.gvk), succeeded=summary.is_successful)


@dataclass(frozen=True, slots=True)
class WatchMetricsFactory:
    """Makes the metrics of each watch of an operator."""

    metrics: OperatorMetrics
    names: Mapping[GVK, str]

    @classmethod
    def of_kinds(cls, metrics: OperatorMetrics, kinds: Iterable[GVK]) -> Self:
        """Return a factory for the kinds of ``watches.yaml``."""
        return cls(metrics, controller_names(kinds))

    def of(self, gvk: GVK, workers: int) -> WatchMetrics:
        """Return the metrics of one watch, with all series at 0."""
        self.metrics.reconcile_results.add_kind(str(gvk))
        observer = self.metrics.controllers.observer(self.names[gvk], str(gvk), workers)
        return WatchMetrics(self.metrics, gvk, observer)
