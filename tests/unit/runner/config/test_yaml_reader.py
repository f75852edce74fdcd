import json
from typing import Any

import pytest
import yaml

from rolecall.runner.config.watch_keys import DURATION, INTEGER, LIST, MAPPING, TEXT, Key, Type
from rolecall.runner.config.yaml_reader import (
    LocatedMapping,
    MappingReader,
    expand_variables,
    first_document,
)

INNER = Key("b", TEXT, "", default="")
SECTION: Key[Any] = Key("a", MAPPING, "", default=None, keys=(INNER,))
SECTIONS: Key[Any] = Key("list", LIST, "", default=(), keys=(SECTION,))
PERIOD: Key[float | None] = Key("reconcilePeriod", DURATION, "", default=None)


def key(type_: Type[Any], default: Any = None) -> Key[Any]:
    """Return a key ``a``."""
    return Key("a", type_, "", default=default)


def fields(*keys: Key[Any], **values: Any) -> MappingReader:
    """Return the fields of a mapping with these keys."""
    return MappingReader(values, keys, "watches.yaml: entry 1")


def test_error_has_the_place_and_the_whole_key() -> None:
    nested = next(fields(SECTIONS, list=[{"a": {}}]).entries(SECTIONS)).nested(SECTION)
    assert nested is not None
    assert str(nested.error("b", "no")) == "watches.yaml: entry 1, key list[0].a.b: no"


@pytest.mark.parametrize("values", [{}, {"a": None, "list": None}])
def test_absent_or_null_value_has_the_default(values: dict[str, Any]) -> None:
    wanted = key(TEXT, "default")
    assert fields(wanted, **values).read(wanted) == "default"
    assert fields(SECTION, **values).nested(SECTION) is None
    assert list(fields(SECTIONS, **values).entries(SECTIONS)) == []


def test_invalid_value_is_an_error_and_has_the_default() -> None:
    wanted = key(INTEGER, 7)
    read = fields(wanted, a="many")
    assert read.read(wanted) == 7
    assert [str(error) for error in read.errors] == [
        "watches.yaml: entry 1, key a: expected an integer, found str 'many'"
    ]


def test_undeclared_key_cannot_be_read() -> None:
    with pytest.raises(LookupError, match=r"^reconcilePeriod is read and not declared$"):
        fields(SECTION, reconcilePeriod="5s").read(PERIOD)


def test_declared_key_that_is_never_read_is_unknown() -> None:
    read = fields(SECTION, PERIOD, a={"b": "x"}, reconcilePeriod="5s")
    read.nested(SECTION)
    assert [each.key for each in read.unknown_keys()] == ["reconcilePeriod", "a.b"]


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
        ("!!timestamp 2024-01-31", "2024-01-31"),
        ("=", "="),
        ("0o", "0o"),
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
def test_large_integers_keep_each_digit(number: int) -> None:
    assert first_document(str(number)) == number


def test_float_without_a_fraction_is_an_integer() -> None:
    assert json.dumps(first_document("[3.0, 1e21, 2.5]")) == "[3, 1e+21, 2.5]"


@pytest.mark.parametrize("key", ["on", "y", "no", "x", "yes"])
def test_key_is_the_written_text(key: str) -> None:
    assert first_document(f"{key}: 1") == {key: 1}


@pytest.mark.parametrize(("key", "text"), [("1", "1"), ("0x10", "16"), ("1.5", "1.5"), ("~", "~")])
def test_number_as_a_key_becomes_a_string(key: str, text: str) -> None:
    assert first_document(f"{{{key}: 1}}") == {text: 1}


def test_key_other_than_a_string_is_an_error() -> None:
    with pytest.raises(yaml.YAMLError, match="the key of a mapping must be a string"):
        first_document("{[a]: 1}")


def test_mappings_know_their_lines() -> None:
    found = first_document("# comment\na: 1\nb:\n  c: 2\n")
    assert isinstance(found, LocatedMapping)
    assert (found.line, found.lines) == (2, {"a": 2, "b": 3})
    assert found["b"].lines == {"c": 4}


def test_anchors_refer_to_the_same_value() -> None:
    assert first_document("a: &one [1]\nb: *one\n") == {"a": [1], "b": [1]}


ENVIRONMENT = {"NAME": "web", "EMPTY": "", "A_1": "x", "_": "under"}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("a: $NAME", "a: web"),
        ("a: ${NAME}b", "a: webb"),
        ("$NAME$NAME", "webweb"),
        ("# $NAME", "# web"),
        ("[$EMPTY]", "[]"),
        ("$A_1-", "x-"),
        ("$_", "under"),
        ("$NAMES", "${NAMES}"),
        ("$unset", "${unset}"),
        ("${unset}", "${unset}"),
        ("${NAME:-x}", "${NAME:-x}"),
        ("$1 $$ $* $# $@ $! $? $-", "${1} ${$} ${*} ${#} ${@} ${!} ${?} ${-}"),
        ("$10", "${1}0"),
        ("a${}b", "ab"),
        ("a${b", "ab"),
        ("a$", "a$"),
        ("$.spec.x", "$.spec.x"),
        ("$ {NAME}", "$ {NAME}"),
        ("{{ NAME }}", "{{ NAME }}"),
    ],
)
def test_references_expand_as_in_the_go_runner(text: str, expanded: str) -> None:
    assert expand_variables(text, ENVIRONMENT) == expanded


def test_expanded_value_is_not_expanded_again() -> None:
    assert expand_variables("$A", {"A": "$B", "B": "no"}) == "$B"
