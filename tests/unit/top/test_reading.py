import json
from typing import Any

import pytest

from rolecall.page.views import ListView, ObjectView, RunView, to_json
from rolecall.top.reading import ReadingError, printable, read_view
from tests.unit.top.views import objects, one_object, one_run, row

HOSTILE = "a\x1b]0;owned\x07\x1b[2J\x9b31m\r\u202e\u200b\ud800\x85\x7fz"


@pytest.mark.parametrize("view", [objects(row()), one_object(), one_run()])
def test_a_view_survives_its_json(view: ListView | ObjectView | RunView) -> None:
    assert read_view(type(view), json.loads(json.dumps(to_json(view)))) == view


def test_no_control_character_comes_through() -> None:
    for view in (objects(row(HOSTILE, text=HOSTILE)), one_object(text=HOSTILE), one_run(text=HOSTILE)):
        read = read_view(type(view), json.loads(json.dumps(to_json(view))))
        assert all(text.replace("\n", "").isprintable() for text in texts(to_json(read)))


def texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for each in pair for text in texts(each)]
    if isinstance(value, list):
        return [text for each in value for text in texts(each)]
    return [value] if isinstance(value, str) else []


def test_lines_and_tabs_stay_readable() -> None:
    assert printable("a\tb\r\nc") == "a   b\nc"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("found", "3"),
        ("found", True),
        ("rows", {}),
        ("rows", [1]),
        ("replica", None),
        ("kinds", [{"id": "x"}]),
        ("query", {"kind": 1}),
    ],
)
def test_what_is_not_as_expected_is_said_with_its_place(name: str, value: Any) -> None:
    with pytest.raises(ReadingError, match=rf"expected .*\.?{name}"):
        read_view(ListView, to_json(objects(row())) | {name: value})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300, True, "1"])
def test_a_number_that_is_no_time_is_refused(value: Any) -> None:
    with pytest.raises(ReadingError, match=r"\.seconds"):
        read_view(RunView, to_json(one_run()) | {"seconds": value})


def test_an_unknown_state_is_refused_and_an_unknown_field_is_not() -> None:
    known = to_json(objects(row()))
    assert read_view(ListView, known | {"new": 1}).found == 1
    known["rows"][0]["state"] = "sleeping"
    with pytest.raises(ReadingError, match=r"state, found 'sleeping'"):
        read_view(ListView, known)
