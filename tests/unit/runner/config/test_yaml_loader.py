import json
from typing import Any

import pytest
import yaml

from rolecall.runner.config.yaml_reader import LocatedMapping, duplicate_keys, first_document


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("y", True),
        ("N", False),
        ("on", True),
        ("Off", False),
        ("'y'", "y"),
        ("yy", "yy"),
        ("12:30", "12:30"),
        ("1:30.5", "1:30.5"),
        ("1e3", 1000),
        ("0644", 420),
        ("0x1F", 31),
        ("08", 8),
        ("1_000", 1000),
        ("1.0", 1),
        ("1.5", 1.5),
        ("-.5", -0.5),
        ("1.25e2", 125),
        ("2024-01-31", "2024-01-31"),
        ("v1", "v1"),
        ("1.2.3", "1.2.3"),
        ("-", "-"),
        ("!vault abc", "abc"),
        ("!unsafe {a: [1]}", {"a": [1]}),
        ("!custom [1, {b: y}]", [1, {"b": True}]),
        ("~", None),
        ("", None),
    ],
)
def test_values_are_those_of_the_go_runners_parser(text: str, value: Any) -> None:
    [found] = first_document(f"- {text}") if text != "-" else first_document("- '-'")
    assert (found, type(found) is bool) == (value, type(value) is bool)


@pytest.mark.parametrize("number", [9007199254740993, -9223372036854775808])
def test_large_whole_numbers_keep_every_digit(number: int) -> None:
    assert first_document(str(number)) == number


def test_a_float_without_a_fraction_is_written_as_a_whole_number() -> None:
    assert json.dumps(first_document("[3.0, 1e21, 2.5]")) == "[3, 1e+21, 2.5]"


@pytest.mark.parametrize("key", ["on", "y", "no", "x", "yes"])
def test_a_key_is_the_text_that_is_written(key: str) -> None:
    assert first_document(f"{key}: 1") == {key: 1}


@pytest.mark.parametrize(("key", "text"), [("1", "1"), ("0x10", "16"), ("1.5", "1.5"), ("~", "~")])
def test_a_key_that_is_a_number_becomes_a_text(key: str, text: str) -> None:
    assert first_document(f"{{{key}: 1}}") == {text: 1}


def test_a_key_that_is_no_text_is_an_error() -> None:
    with pytest.raises(yaml.YAMLError, match="the key of a mapping must be a string"):
        first_document("{[a]: 1}")


def test_mappings_know_their_lines() -> None:
    found = first_document("# comment\na: 1\nb:\n  c: 2\n")
    assert isinstance(found, LocatedMapping)
    assert (found.line, found.lines) == (2, {"a": 2, "b": 3})
    assert found["b"].lines == {"c": 4}


def test_keys_that_are_there_twice_are_found_at_every_depth() -> None:
    text = "a: 1\nb: [{c: 1}, {c: 1, c: 2}]\na: 2\n"
    assert list(duplicate_keys(first_document(text))) == [("a", 1, 3), ("b[1].c", 2, 2)]


def test_merged_keys_are_no_duplicates() -> None:
    found = first_document("base: &base {a: 1, b: 2}\nmore: {<<: *base, b: 3}\n")
    assert found["more"] == {"a": 1, "b": 3}
    assert list(duplicate_keys(found)) == []


def test_anchors_refer_to_the_same_value() -> None:
    assert first_document("a: &one [1]\nb: *one\n") == {"a": [1], "b": [1]}
