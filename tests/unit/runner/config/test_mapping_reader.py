from typing import Any

import pytest

from rolecall.runner.config.watch_keys import DURATION, INTEGER, LIST, MAPPING, TEXT, Key, Type
from rolecall.runner.config.yaml_reader import MappingReader

INNER = Key("b", TEXT, "", default="")
SECTION: Key[Any] = Key("a", MAPPING, "", default=None, keys=(INNER,))
SECTIONS: Key[Any] = Key("list", LIST, "", default=(), keys=(SECTION,))
PERIOD: Key[float | None] = Key("reconcilePeriod", DURATION, "", default=None)


def key(type_: Type[Any], default: Any = None) -> Key[Any]:
    """Return a key ``a``."""
    return Key("a", type_, "", default=default)


def fields(*keys: Key[Any], **values: Any) -> MappingReader:
    """Return the fields of a mapping with these keys."""
    return MappingReader.of(values, keys, "watches.yaml: entry 1")


def test_names_match_in_any_case() -> None:
    assert fields(PERIOD, ReconcilePERIOD="5s").read(PERIOD) == 5


def test_an_error_names_the_place_and_the_whole_key() -> None:
    nested = next(fields(SECTIONS, list=[{"a": {}}]).entries(SECTIONS)).nested(SECTION)
    assert nested is not None
    assert str(nested.error("b", "no")) == "watches.yaml: entry 1, key list[0].a.b: no"


@pytest.mark.parametrize("values", [{}, {"a": None, "list": None}])
def test_what_is_absent_or_null_has_its_default(values: dict[str, Any]) -> None:
    wanted = key(TEXT, "default")
    assert fields(wanted, **values).read(wanted) == "default"
    assert fields(SECTION, **values).nested(SECTION) is None
    assert list(fields(SECTIONS, **values).entries(SECTIONS)) == []


def test_what_is_wrong_is_told_of_and_has_its_default() -> None:
    wanted = key(INTEGER, 7)
    read = fields(wanted, a="many")
    assert read.read(wanted) == 7
    assert [str(error) for error in read.errors] == [
        "watches.yaml: entry 1, key a: expected a whole number, found str 'many'"
    ]


def test_an_entry_that_is_nothing_is_shown_as_nothing() -> None:
    read = fields(SECTIONS, list=[None])
    assert list(read.entries(SECTIONS)) == []
    assert [str(error) for error in read.errors] == [
        "watches.yaml: entry 1, key list[0]: expected a mapping, found nothing"
    ]


def test_a_key_that_is_not_declared_cannot_be_read() -> None:
    with pytest.raises(LookupError, match=r"^reconcilePeriod is read and not declared$"):
        fields(SECTION, reconcilePeriod="5s").read(PERIOD)


def test_a_declared_key_that_nobody_reads_is_unknown() -> None:
    read = fields(SECTION, PERIOD, a={"b": "x"}, reconcilePeriod="5s")
    read.nested(SECTION)
    assert [each.key for each in read.unknown_keys()] == ["reconcilePeriod", "a.b"]
