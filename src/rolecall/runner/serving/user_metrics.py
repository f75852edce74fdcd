"""Metrics that roles create and change with the module ``osdk_metric``.

A request names a metric and one operation on it. The first request creates the metric and fixes its type; histogram
and summary requests are interchangeable. Error messages are those of the Go runner, because roles may look for them. An
invalid metric name is logged and does not fail the role.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import Gauge, Histogram, Summary

from rolecall.runner.serving.controller_metrics import DEFAULT_BUCKETS, Registry, ReservedName
from rolecall.system.logs import get_logger

logger = get_logger("metrics")

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


@dataclass(slots=True)
class PlainCounter:
    """A counter with exactly the given name, with or without ``_total`` at the end."""

    name: str
    description: str
    value: float = 0.0

    def text(self) -> str:
        """Return the counter in the text format."""
        description = self.description.replace("\\", r"\\").replace("\n", r"\n")
        head = f"# HELP {self.name} {description}\n# TYPE {self.name} counter\n"
        return f"{head}{self.name} {self.value!r}\n"


UserMetric = PlainCounter | Gauge | Histogram | Summary


class UserMetrics:
    """The metrics of roles; ``render`` returns those that the registry does not render itself."""

    def __init__(self, registry: Registry) -> None:
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
        operations = _read_operations(kinds[0], request[kinds[0]])
        metric = self._metric(name, _read(request, "description", str) or "", kinds[0])
        if metric is not None:
            _change(metric, operations)

    def render(self) -> bytes:
        """Return the counters as text."""
        metrics = list(self._metrics.values())
        return "".join(metric.text() for metric in metrics if isinstance(metric, PlainCounter)).encode()

    def _metric(self, name: str, description: str, kind: str) -> UserMetric | None:
        known = self._metrics.get(name)
        if known is None:
            made = self._make(name, description, kind)
            if made is not None:
                self._metrics[name] = made
            return made
        if _family(type(known)) != _family(_TYPES[kind]):
            raise RefusedError(f"cannot change metric type of {name}, which is a {_family(type(known))}")
        return known

    def _make(self, name: str, description: str, kind: str) -> UserMetric | None:
        try:
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a valid metric name")  # noqa: TRY301 - as the registry does
            if kind == "counter":
                self._registry.register(ReservedName(name, description))
                return PlainCounter(name, description)
            return _CONSTRUCTORS[kind](name, description, self._registry)
        except ValueError as error:
            logger.error("Cannot export a metric of a role", metric=name, error=str(error))  # noqa: TRY400
            return None


def _histogram(name: str, description: str, registry: Registry) -> Histogram:
    return Histogram(name, description, buckets=DEFAULT_BUCKETS, registry=registry)


def _gauge(name: str, description: str, registry: Registry) -> Gauge:
    return Gauge(name, description, registry=registry)


def _summary(name: str, description: str, registry: Registry) -> Summary:
    return Summary(name, description, registry=registry)


_CONSTRUCTORS: Mapping[str, Callable[[str, str, Registry], UserMetric]] = {
    "gauge": _gauge,
    "histogram": _histogram,
    "summary": _summary,
}
_TYPES: Mapping[str, type] = {"counter": PlainCounter, "gauge": Gauge, "histogram": Histogram, "summary": Summary}


def _family(metric_type: type) -> str:
    """Return the name of the types that the same requests may change."""
    return {PlainCounter: "counter", Gauge: "gauge"}.get(metric_type, "histogram or summary")


def _read_operations(kind: str, raw: object) -> dict[str, Any]:
    """Return the operations of a request with their values. Raise RefusedError for a value of the wrong type."""
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
    match metric:
        case PlainCounter():
            metric.value += 1.0 if operations.get("increment") else float(operations.get("add", 0.0))
        case Gauge():
            _change_gauge(metric, operations)
        case _:
            metric.observe(float(operations.get("observe", 0.0)))


def _change_gauge(gauge: Gauge, operations: Mapping[str, Any]) -> None:
    first = next((name for name in _OPERATIONS["gauge"] if operations.get(name)), None)
    match first:
        case "increment":
            gauge.inc()
        case "decrement":
            gauge.dec()
        case "add":
            gauge.inc(operations["add"])
        case "subtract":
            gauge.dec(operations["subtract"])
        case "set":
            gauge.set(operations["set"])
        case "set_to_current_time":
            gauge.set_to_current_time()
