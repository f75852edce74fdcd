"""The comparison itself: what differs by chance does not count, and any other difference is found."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rolecall.runner.runs.events import RunEvent
from rolecall.runner.runs.outcome import Counts, Outcome, TaskFailure
from tests.parity.normalization import VARIES, Normalizer, differences
from tests.parity.observation import Observation

ROOT = "/tmp/one"  # noqa: S108 - a name


def raw(number: int, name: str, host: str = "localhost", **result: Any) -> dict[str, Any]:
    """Return an event as ansible-runner writes it."""
    data = {
        "host": host,
        "res": {"changed": False, **result},
        "task_uuid": f"0242ac11-0002-0000-0000-00000000000{number}",
    }
    return {
        "event": name,
        "counter": number,
        "created": f"2031-01-01T00:00:0{number}",
        "event_data": data,
        "stdout": "ok",
    }


def observation(**changed: Any) -> Observation:
    """Return possible effects of a run."""
    fields: dict[str, Any] = {
        "summary": Outcome("failed", 2, (TaskFailure("Say", "localhost", "no"),), counts=Counts(2, 1, 0, 1)),
        "raw_events": [
            raw(1, "runner_on_start"),
            raw(2, "runner_on_ok", msg="hello"),
            raw(3, "runner_on_failed", rc=1),
        ],
        "reported": [RunEvent("runner_on_ok", host="localhost", message="hello")],
        "artifacts": ["rc", "status", "stdout", "job_events: 3"],
        "files": {"note": "100600 text"},
        "processes": [],
        "objects": [{"metadata": {"name": "a"}}],
    }
    return Observation(**(fields | changed))


def compared(one: Observation, other: Observation, *, ordered: bool = True) -> list[str]:
    """Return the differences of two observations."""
    normalizer = Normalizer({ROOT: "<root>"})
    begin = raw(0, "playbook_on_start", "")
    one, other = (replace(seen, raw_events=[begin, *seen.raw_events]) for seen in (one, other))
    return differences(one.comparable(normalizer, ordered=ordered), other.comparable(normalizer, ordered=ordered))


def test_equal_runs_do_not_differ() -> None:
    assert compared(observation(), observation()) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"summary": Outcome("successful", 0)},
        {"summary": Outcome("failed", 4, (TaskFailure("Say", "localhost", "no"),), counts=Counts(2, 1, 0, 1))},
        {"summary": Outcome("failed", 2, (TaskFailure("Say", "localhost", "nay"),), counts=Counts(2, 1, 0, 1))},
        {"summary": Outcome("failed", 2, (TaskFailure("Say", "localhost", "no"),), counts=Counts(2, 0, 0, 1))},
        {"raw_events": [raw(1, "runner_on_start"), raw(2, "runner_on_ok", msg="hello")]},
        {
            "raw_events": [
                raw(1, "runner_on_start"),
                raw(2, "runner_on_failed", rc=1),
                raw(3, "runner_on_ok", msg="hello"),
            ]
        },
        {
            "raw_events": [
                raw(1, "runner_on_start"),
                raw(2, "runner_on_ok", msg="hullo"),
                raw(3, "runner_on_failed", rc=1),
            ]
        },
        {
            "raw_events": [
                raw(1, "runner_on_start"),
                raw(2, "runner_on_ok", msg="hello"),
                raw(3, "runner_on_failed", rc=2),
            ]
        },
        {"raw_events": [raw(1, "runner_on_start"), raw(2, "runner_on_ok"), raw(3, "runner_on_failed", rc=1)]},
        {"reported": [RunEvent("runner_on_ok", host="localhost", message="hello", changed=True)]},
        {"artifacts": ["rc", "status", "job_events: 3"]},
        {"files": {"note": "100644 text"}},
        {"files": {}},
        {"processes": ["sleep"]},
        {"objects": []},
    ],
    ids=str,
)
def test_a_seeded_difference_is_found(changed: dict[str, Any]) -> None:
    assert compared(observation(), observation(**changed)) != []


def test_the_order_within_a_host_counts_and_that_between_hosts_does_not() -> None:
    events = [
        raw(1, "runner_on_start", "a"),
        raw(2, "runner_on_start", "b"),
        raw(3, "runner_on_ok", "a"),
        raw(4, "x", "b"),
    ]
    usual = observation(raw_events=events)
    assert compared(usual, observation(raw_events=[events[1], events[0], events[3], events[2]])) == []
    assert compared(usual, observation(raw_events=[events[2], events[1], events[0], events[3]])) != []


def test_lines_before_the_playbook_are_events_like_all_others() -> None:
    lines = [{**raw(0, "verbose", ""), "stdout": text} for text in ("a", "b")]
    message = {**raw(0, "error", ""), "stdout": "a\nb"}
    assert compared(observation(raw_events=lines), observation(raw_events=[message])) != []


def test_order_of_tasks_counts_unless_it_is_random() -> None:
    events = [raw(1, "task 1", ""), raw(2, "task 2", ""), raw(3, "ok", "a"), raw(4, "ok", "b")]
    usual, other = observation(raw_events=events), observation(raw_events=[events[1], events[0], *events[2:]])
    assert compared(usual, other) != []
    assert compared(usual, other, ordered=False) == []


_INTERRUPTED = "deserialization failed: none: <traceback> KeyboardInterrupt"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{ROOT}/project/site.yml:3", "<root>/project/site.yml:3"),
        ("~/.ansible/tmp/ansible-tmp-1763637000.1-123-456789/x", "~/.ansible/tmp/<task directory>/x"),
        ("started 2031-01-01 10:00:00.123456", "started <time>"),
        ("took 0:00:01.500000", "took <duration>"),
        ("0242ac11-0002-0000-0000-000000000001", "<uuid>"),
        ("<object at 0x7f0012345678>", "<object at <address>>"),
        ("http://127.0.0.1:34567/api", "http://127.0.0.1:<port>/api"),
        ("count is 3 of 12345", "count is 3 of 12345"),
        *(
            (f"deserialization failed: none: {trace} | KeyboardInterrupt", _INTERRUPTED)
            for trace in (
                "File x.py, line 1, in f | g()",
                "g() | ~^^ | KeyboardInterrupt",
                "os.kill(1, 2) | ~~~~~~~^^^",
            )
        ),
    ],
)
def test_only_what_belongs_to_a_run_is_replaced(text: str, expected: str) -> None:
    assert Normalizer({ROOT: "<root>"}).text(text) == expected


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [("start", "2031", VARIES), ("pid", 12, VARIES), ("start", "", ""), ("pid", None, None), ("rc", 12, 12)],
)
def test_meaningful_variation_stays_visible(key: str, value: object, expected: object) -> None:
    assert Normalizer({}).value({key: value}) == {key: expected}


def test_a_set_has_no_order_and_a_list_has() -> None:
    one, other = ({"ansible_virtualization_tech_guest": list(words), "words": ["x"]} for words in ("ab", "ba"))
    assert Normalizer({}).value(one) == Normalizer({}).value(other)
    assert Normalizer({}).value({"words": ["a", "b"]}) != Normalizer({}).value({"words": ["b", "a"]})


@pytest.mark.parametrize("change", [lambda value: {**value, "more": 1}, lambda _: {}, lambda _: [1], lambda _: None])
def test_differences_are_found_in_every_type(change: Callable[[dict[str, int]], object]) -> None:
    value = {"a": 1}
    assert differences(value, change(value)) != []
    assert differences([value], [change(value)]) != []
