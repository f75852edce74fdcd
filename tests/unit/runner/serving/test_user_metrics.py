from typing import Any

import pytest
from prometheus_client import generate_latest

from rolecall.runner.serving.metrics import RefusedError, Registry, UserMetrics


class Metrics:
    """The metrics of roles, with a registry of their own."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.user = UserMetrics(self.registry)

    def post(self, name: str, **what: Any) -> None:
        """Do what a role asks for, in the form that its module sends: with a null for each option not given."""
        rest: dict[str, Any] = dict.fromkeys(("counter", "gauge", "histogram", "summary"))
        self.user.apply({"name": name, "description": "what it counts", **rest, **what})

    def lines(self) -> list[str]:
        """Return the lines of the text."""
        return (generate_latest(self.registry) + self.user.render()).decode().splitlines()

    def value(self, name: str) -> float:
        """Return the value of a series without labels."""
        (line,) = [line for line in self.lines() if line.startswith(f"{name} ")]
        return float(line.split()[1])


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def test_counter_keeps_its_plain_name(metrics: Metrics) -> None:
    metrics.post("sanity_counter", counter={"increment": None, "add": None})
    assert metrics.value("sanity_counter") == 0
    metrics.post("sanity_counter", counter={"increment": True, "add": 7})
    metrics.post("sanity_counter", counter={"increment": False, "add": 2.5})
    assert metrics.value("sanity_counter") == 3.5
    assert "# TYPE sanity_counter counter" in metrics.lines()
    assert "# HELP sanity_counter what it counts" in metrics.lines()


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, 10),
        ({"set": 0}, 10),
        ({"set": 5}, 5),
        ({"increment": True}, 11),
        ({"decrement": True}, 9),
        ({"add": 7}, 17),
        ({"subtract": 7}, 3),
        ({"add": 0, "subtract": 1}, 9),
        ({"increment": True, "decrement": True, "add": 100, "set": 50}, 11),
        ({"decrement": True, "add": 100}, 9),
        ({"add": 1, "subtract": 5, "set": 50}, 11),
        ({"subtract": 1, "set": 50}, 9),
        ({"set": 50, "set_to_current_time": True}, 50),
    ],
)
def test_gauge_applies_the_first_operation(metrics: Metrics, asked: dict[str, Any], expected: float) -> None:
    metrics.post("gauge", gauge={"set": 10})
    metrics.post("gauge", gauge=asked)
    assert metrics.value("gauge") == expected


def test_gauge_is_set_to_current_time(metrics: Metrics) -> None:
    metrics.post("gauge", gauge={"set_to_current_time": True})
    assert metrics.value("gauge") > 1.7e9


def test_observed_zero_counts(metrics: Metrics) -> None:
    metrics.post("histogram", histogram={"observe": 0})
    metrics.post("histogram", histogram={"observe": 2})
    metrics.post("summary", summary={"observe": None})
    assert (metrics.value("histogram_count"), metrics.value("histogram_sum")) == (2, 2)
    assert 'histogram_bucket{le="2.5"} 2.0' in metrics.lines()
    assert metrics.value("summary_count") == 1
    assert "# TYPE summary summary" in metrics.lines()
    assert not [line for line in metrics.lines() if "_created" in line]


def test_histogram_and_summary_requests_are_interchangeable(metrics: Metrics) -> None:
    metrics.post("histogram", histogram={"observe": 1})
    metrics.post("histogram", summary={"observe": 1})
    assert metrics.value("histogram_sum") == 2


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ([], "expected an object, found list"),
        ({"name": "a"}, "a request should contain at least one metric"),
        ({"name": "a", "gauge": None}, "a request should contain at least one metric"),
        ({"name": "a", "counter": {}, "gauge": {}}, "only one metric can be processed at a time"),
        ({"name": "a", "counter": {"add": -1}}, "counter metrics cannot decrease in value"),
        ({"name": "a", "counter": {"add": "1"}}, "counter.add: expected a number, found '1'"),
        ({"name": "a", "counter": {"add": float("nan")}}, "counter.add: expected a number, found nan"),
        ({"name": "a", "counter": {"add": True}}, "counter.add: expected a number, found True"),
        ({"name": "a", "counter": {"increment": 1}}, "counter.increment: expected true or false, found 1"),
        ({"name": "a", "gauge": 1}, "gauge: expected an object, found 1"),
        ({"name": 1, "gauge": {}}, "name: expected a string, found 1"),
        ({"name": "known", "counter": {}}, "cannot change metric type of known, which is a gauge"),
        ({"name": "known", "summary": {}}, "cannot change metric type of known, which is a gauge"),
    ],
)
def test_invalid_request_is_rejected_and_changes_nothing(metrics: Metrics, request_: object, text: str) -> None:
    metrics.post("known", gauge={"set": 1})
    before = metrics.lines()
    with pytest.raises(RefusedError) as refused:
        metrics.user.apply(request_)
    assert str(refused.value) == text
    assert metrics.lines() == before


@pytest.mark.parametrize("kind", ["counter", "gauge", "histogram", "summary"])
@pytest.mark.parametrize("name", ["", "with space", "9lives", "dé", "taken_sum", "taken"])
def test_invalid_name_does_not_fail_the_role(metrics: Metrics, name: str, kind: str) -> None:
    metrics.post("taken", summary={"observe": 1})
    before = metrics.lines()
    if name == "taken" and kind in {"counter", "gauge"}:
        with pytest.raises(RefusedError):
            metrics.post(name, **{kind: {}})
    elif name != "taken":
        metrics.post(name, **{kind: {}})
    assert metrics.lines() == before
