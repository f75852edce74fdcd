from typing import Any

import pytest

from rolecall.app.fields import Fields


def fields(**values: Any) -> Fields:
    """Return the fields of a mapping."""
    return Fields.of(values, "watches.yaml: entry 1")


def test_names_match_in_any_case() -> None:
    assert fields(ReconcilePeriod="5s").seconds("reconcilePERIOD") == 5


def test_an_error_names_the_place_and_the_whole_key() -> None:
    nested = next(fields(list=[{"a": {}}]).entries("list")).nested("a")
    assert nested is not None
    assert str(nested.error("b", "no")) == "watches.yaml: entry 1, key list[0].a.b: no"


def test_what_is_absent_or_null_has_its_default() -> None:
    for found in (fields(), fields(a=None)):
        assert found.text("a", "default") == "default"
        assert found.boolean("a", default=True) is True
        assert found.integer("a", 7) == 7
        assert found.seconds("a") is None
        assert found.mapping("a") == {}
        assert found.nested("a") is None
        assert found.items("a") == []
        assert list(found.entries("a")) == []


@pytest.mark.parametrize(("value", "text"), [(1, "1"), (1.5, "1.5"), (True, "true"), (False, "false"), ("x", "x")])
def test_a_scalar_becomes_a_text(value: object, text: str) -> None:
    assert fields(a=value).text("a") == text


def test_a_mapping_keeps_the_spelling_of_its_keys_and_makes_them_texts() -> None:
    assert fields(a={"Key": 1, 2: "b"}).mapping("a") == {"Key": 1, "2": "b"}


@pytest.mark.parametrize(
    ("method", "value", "message"),
    [
        ("text", [], "expected a text, found a list"),
        ("integer", 1.5, "expected a whole number, found float 1.5"),
        ("integer", True, "expected a whole number, found bool True"),
        ("seconds", 5, "expected a duration with a unit such as 15s or 1m30s, found int 5"),
        ("mapping", "x", "expected a mapping, found str 'x'"),
        ("items", {}, "expected a list, found a mapping"),
    ],
)
def test_a_value_of_another_type_is_shown(method: str, value: object, message: str) -> None:
    arguments = ("a", 0) if method == "integer" else ("a",)
    read = fields(a=value)
    assert getattr(read, method)(*arguments) == getattr(fields(), method)(*arguments)
    assert [str(mistake) for mistake in read.mistakes] == [f"watches.yaml: entry 1, key a: {message}"]


def test_an_entry_that_is_nothing_is_shown_as_nothing() -> None:
    read = fields(list=[None])
    assert list(read.entries("list")) == []
    assert [str(mistake) for mistake in read.mistakes] == [
        "watches.yaml: entry 1, key list[0]: expected a mapping, found nothing"
    ]
