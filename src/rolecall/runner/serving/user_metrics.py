"""Metrics that roles create and change with the module ``osdk_metric``.

A request names a metric and one operation on it. The first request creates the metric and fixes its type; histogram
and summary requests are interchangeable. Error messages are those of the Go runner, because roles may look for them. An
invalid metric name is logged and doesn't fail the role.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, Histogram, Metric, Summary

from rolecall.system.logs import get_logger

logger = get_logger("metrics")

DEFAULT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The default buckets of Prometheus' Go client, in seconds."""

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_OPERATIONS: Mapping[str, Mapping[str, type]] = {
    "counter": {"increment": bool, "add": float},
    "gauge": {
        "increment": bool,
        "decrement": bool,
        "add": float,
        "subtract": float,
        "set": float,
        "set_to_current_time": bool,
    },
    "histogram": {"observe": float},
    "summary": {"observe": float},
}
_TYPE_NAMES: Mapping[type, str] = {str: "a string", float: "a number", bool: "true or false"}


class RefusedError(Exception):
    """An invalid request; the message is for the role's author."""


@dataclass(slots=True, eq=False)
class PlainCounter:
    """A counter with exactly the given name, with or without ``_total`` at the end.

    The registry can't render such a counter, so it only reserves the name.
    """

    name: str
    description: str
    value: float = 0.0

    def describe(self) -> Iterable[Metric]:
        """Return the metric whose name the registry reserves."""
        return [Metric(self.name, self.description, "unknown")]

    def collect(self) -> Iterable[Metric]:
        """Return no metrics."""
        return []

    def text(self) -> str:
        """Return the counter in the text format."""
        description = self.description.replace("\\", r"\\").replace("\n", r"\n")
        head = f"# HELP {self.name} {description}\n# TYPE {self.name} counter\n"
        return f"{head}{self.name} {self.value!r}\n"


UserMetric = PlainCounter | Gauge | Histogram | Summary


class UserMetrics:
    """The metrics of roles; ``render`` returns those that the registry doesn't render itself."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._metrics: dict[str, UserMetric] = {}

    def apply(self, request: object) -> None:
        """Apply a request, decoded from JSON. Raise RefusedError."""
        if not isinstance(request, dict):
            raise RefusedError(f"expected an object, found {type(request).__name__}")
        name = _read(request, "name", str) or ""
        kinds = [kind for kind in _OPERATIONS if request.get(kind) is not None]
        if not kinds:
            raise RefusedError("a request should contain at least one metric")
        if len(kinds) > 1:
            raise RefusedError("only one metric can be processed at a time")
        (kind,) = kinds
        operations = _read_operations(kind, request[kind])
        description = _read(request, "description", str) or ""
        metric = self._metrics.get(name)
        if metric is None:
            try:
                metric = self._metrics[name] = self._create(name, description, kind)
            except ValueError as error:
                logger.error("Cannot export a metric of a role", metric=name, error=str(error))  # noqa: TRY400
                return
        known = {PlainCounter: "counter", Gauge: "gauge"}.get(type(metric), "histogram or summary")
        if kind not in known.split():
            raise RefusedError(f"cannot change metric type of {name}, which is a {known}")
        _change(metric, operations)

    def render(self) -> bytes:
        """Return the counters as text."""
        metrics = list(self._metrics.values())
        return "".join(metric.text() for metric in metrics if isinstance(metric, PlainCounter)).encode()

    def _create(self, name: str, description: str, kind: str) -> UserMetric:
        """Return a new, registered metric. Raise ValueError for an invalid name or one in use."""
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a valid metric name")
        match kind:
            case "counter":
                counter = PlainCounter(name, description)
                self._registry.register(counter)
                return counter
            case "gauge":
                return Gauge(name, description, registry=self._registry)
            case "histogram":
                return Histogram(name, description, buckets=DEFAULT_BUCKETS, registry=self._registry)
            case _:
                return Summary(name, description, registry=self._registry)


def _read_operations(kind: str, raw: object) -> dict[str, Any]:
    """Return the operations of a request with their values. Raise RefusedError for a value of an invalid type."""
    if not isinstance(raw, dict):
        raise RefusedError(f"{kind}: expected an object, found {raw!r}")
    operations = {name: _read(raw, name, wanted, f"{kind}.") for name, wanted in _OPERATIONS[kind].items()}
    if kind == "counter" and (operations["add"] or 0.0) < 0:
        raise RefusedError("counter metrics cannot decrease in value")
    return {name: value for name, value in operations.items() if value is not None}


def _read(mapping: Mapping[str, Any], name: str, wanted: type, where: str = "") -> Any:
    value = mapping.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if value is None or (is_number if wanted is float else isinstance(value, wanted)):
        return value
    raise RefusedError(f"{where}{name}: expected {_TYPE_NAMES[wanted]}, found {value!r}")


def _change(metric: UserMetric, operations: Mapping[str, Any]) -> None:
    """Apply the first operation; false and 0 are no operation, except for an observed 0."""
    if isinstance(metric, PlainCounter):
        metric.value += 1.0 if operations.get("increment") else float(operations.get("add", 0.0))
        return
    if not isinstance(metric, Gauge):
        metric.observe(float(operations.get("observe", 0.0)))
        return
    match next((name for name in _OPERATIONS["gauge"] if operations.get(name)), None):
        case "increment":
            metric.inc()
        case "decrement":
            metric.dec()
        case "add":
            metric.inc(operations["add"])
        case "subtract":
            metric.dec(operations["subtract"])
        case "set":
            metric.set(operations["set"])
        case "set_to_current_time":
            metric.set_to_current_time()
