"""The tables of the operator's metrics, from its registry; the descriptions are the HELP lines of the metrics."""

# ruff: noqa: SLF001 - prometheus-client exposes the labels of a metric only with its series, and there are none yet

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from prometheus_client.registry import Collector
from tools.docs.markdown import code, marked, table

from rolecall.runner.serving.metrics import OperatorMetrics

_OF_CONTROLLERS = ("controller_runtime_", "workqueue_")
_TABLES = ("operator", "controllers")


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: its served name, its type, its labels, its HELP line."""

    name: str
    type: str
    labels: tuple[str, ...]
    text: str


def families() -> list[Family]:
    """Return every metric of an operator, except for the process metrics of prometheus-client."""
    return [
        family for collector in OperatorMetrics("").registry._collector_to_names for family in _families_of(collector)
    ]


def metrics_block(name: str) -> str:
    """Return the table of the metrics of controllers and queues, or of the others. Raise LookupError."""
    if name not in _TABLES:
        raise LookupError(f"expected one of {', '.join(_TABLES)}")
    rows = [
        (
            code(family.name),
            family.type,
            ", ".join(map(code, family.labels)),
            marked(f"{family.text[0].lower()}{family.text[1:]}"),
        )
        for family in families()
        if family.name.startswith(_OF_CONTROLLERS) == (name == "controllers")
    ]
    return table(("name", "type", "labels", "description"), rows)


def _families_of(collector: Collector) -> Iterator[Family]:
    if not hasattr(collector, "describe"):
        return
    for metric in collector.describe():
        labels: Any = getattr(collector, "_labelnames", None) or getattr(metric, "_labelnames", ())
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        yield Family(name, metric.type, tuple(labels), metric.documentation)
