from typing import Any

import pytest

from rolecall.runner.config.watch_keys import BOOLEAN, DURATION, INTEGER, LIST, MAPPING, TEXT, Type


@pytest.mark.parametrize(("value", "text"), [(1, "1"), (1.5, "1.5"), (True, "true"), (False, "false"), ("x", "x")])
def test_a_scalar_becomes_a_text(value: object, text: str) -> None:
    assert TEXT.read(value) == text


@pytest.mark.parametrize("text", ["y", "Yes", "TRUE", "on"])
def test_a_quoted_boolean_is_one_in_every_spelling_of_yaml(text: str) -> None:
    assert BOOLEAN.read(text) is True


def test_a_mapping_keeps_the_spelling_of_its_keys_and_makes_them_texts() -> None:
    assert MAPPING.read({"Key": 1, 2: "b"}) == {"Key": 1, "2": "b"}


def test_a_duration_is_in_seconds() -> None:
    assert DURATION.read("1m30s") == 90


@pytest.mark.parametrize(
    ("wanted", "value", "message"),
    [
        (TEXT, [], "expected a string, found a list"),
        (BOOLEAN, 1, "expected true or false, found int 1"),
        (INTEGER, 1.5, "expected a whole number, found float 1.5"),
        (INTEGER, True, "expected a whole number, found bool True"),
        (DURATION, 5, "expected a duration with a unit such as 15s or 1m30s, found int 5"),
        (DURATION, "-5s", "a duration cannot be negative: '-5s'"),
        (MAPPING, "x", "expected a mapping, found str 'x'"),
        (LIST, {}, "expected a list, found a mapping"),
    ],
)
def test_a_value_of_another_type_is_shown(wanted: Type[Any], value: object, message: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the text is compared below
        wanted.read(value)
    assert str(raised.value) == message
