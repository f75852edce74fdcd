"""The JSON of the live page as views.

Everything is checked, and every text is made printable here, at the only way in: no control character, escape sequence
or change of the direction of writing reaches a terminal, whoever wrote the object that the text comes from.
"""

import math
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import NoneType
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

from rolecall.page.views import in_json

View = TypeVar("View")
_LARGEST: Final = 1e11
"""The year 5138 in seconds since the epoch: no time is later and no duration longer."""

_SUBSTITUTE: Final = "\N{REPLACEMENT CHARACTER}"


class ReadingError(ValueError):
    """A value is not what this version expects; the message says where and what was found."""


def printable(text: str) -> str:
    """Return a text whose only control character is the end of a line."""
    return "".join(map(_printable, text.replace("\r\n", "\n").expandtabs(4)))


def _printable(character: str) -> str:
    if character == "\n" or character.isprintable():
        return character
    return " " if character.isspace() else _SUBSTITUTE


def read_view(expected: type[View], value: Any) -> View:
    """Return a view from its JSON; fields that are not known are left out. Raise ReadingError."""
    view: View = _read(expected, value, "")
    return view


def _read(expected: Any, value: Any, place: str) -> Any:
    if is_dataclass(expected):
        return _dataclass(expected, value, place)
    if origin := get_origin(expected):
        return _collection(origin, get_args(expected), value, place)
    return _plain(expected, value, place)


def _dataclass(expected: Any, value: Any, place: str) -> Any:
    if not isinstance(value, dict):
        raise _error(place, "an object", value)
    types, found = _types(expected), {}
    for each in fields(expected):
        name = in_json(each.name)
        if name not in value:
            raise ReadingError(f"expected {place}.{name}, found nothing")
        found[each.name] = _read(types[each.name], value[name], f"{place}.{name}")
    return expected(**found)


@cache
def _types(expected: Any) -> dict[str, Any]:
    return get_type_hints(expected)


def _collection(origin: Any, parts: tuple[Any, ...], value: Any, place: str) -> Any:
    if origin is dict and isinstance(value, dict):
        return {printable(name): _read(parts[1], each, f"{place}.{name}") for name, each in value.items()}
    if origin is tuple and isinstance(value, list):
        return _tuple(parts, value, place)
    if NoneType in parts:
        return None if value is None else _read(parts[0], value, place)
    raise _error(place, "an object" if origin is dict else "a list", value)


def _tuple(parts: tuple[Any, ...], value: list[Any], place: str) -> tuple[Any, ...]:
    types = [parts[0]] * len(value) if parts[-1] is Ellipsis else list(parts)
    if len(types) != len(value):
        raise _error(place, f"a list of {len(types)}", value)
    return tuple(_read(each, entry, f"{place}[]") for each, entry in zip(types, value, strict=True))


def _plain(expected: Any, value: Any, place: str) -> Any:
    if expected is float and isinstance(value, int | float) and not isinstance(value, bool):
        if math.isfinite(value) and abs(value) < _LARGEST:
            return float(value)
    elif issubclass(expected, StrEnum):
        if value in list(expected):
            return expected(value)
    elif type(value) is expected:
        return printable(value) if expected is str else value
    raise _error(place, f"a {expected.__name__}", value)


def _error(place: str, expected: str, found: Any) -> ReadingError:
    return ReadingError(f"expected {expected} at {place or 'the top'}, found {printable(repr(found)[:40])}")
