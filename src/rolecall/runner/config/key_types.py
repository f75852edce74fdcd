"""What a key of ``watches.yaml`` is: a name, a type, a default, and a help text.

A key is declared once. The parser of the file and the reference documentation both use the declaration.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rolecall.kube.durations import parse_non_negative_duration

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# Quoted spellings are strings; the Go runner's parser accepts them as booleans.
BOOLEANS = {"y": True, "yes": True, "true": True, "on": True, "n": False, "no": False, "false": False, "off": False}


@dataclass(frozen=True, slots=True)
class Type(Generic[T_co]):
    """A type of values: its name in the documentation, and the conversion from a YAML value.

    Scalars are converted as the Go runner's parser converts them, so a file means the same for both. ``read`` raises
    ValueError with what was expected and what was found.
    """

    name: str
    read: Callable[[object], T_co]


@dataclass(frozen=True, slots=True, eq=False)
class Key(Generic[T]):
    """A key of a mapping; ``default`` is its value if it is absent, null or invalid. A key equals only itself.

    ``default_text`` describes the default if its value does not. ``is_ours`` marks a key that the Go runner ignores.
    If the value is a mapping or a list of mappings, ``keys`` are the keys of these mappings.
    """

    name: str
    type: Type[T]
    help: str
    default: T
    default_text: str = ""
    is_required: bool = False
    is_ours: bool = False
    keys: "tuple[Key[Any], ...]" = ()


def describe_value(value: object) -> str:
    """Return how a value that is not expected, for people."""
    kinds: dict[type, str] = {dict: "a mapping", list: "a list", type(None): "nothing"}
    kind = next((text for kind, text in kinds.items() if isinstance(value, kind)), "")
    return kind or f"{type(value).__name__} {value!r}"


def _expected(what: str, value: object) -> ValueError:
    return ValueError(f"expected {what}, found {describe_value(value)}")


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise _expected("a string", value)


def _boolean(value: object) -> bool:
    found = BOOLEANS.get(value.lower(), value) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise _expected("true or false", found)
    return found


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _expected("a whole number", value)
    return value


def _seconds(value: object) -> float:
    if not isinstance(value, str):
        raise _expected("a duration with a unit such as 15s or 1m30s", value)
    return parse_non_negative_duration(value)


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _expected("a mapping", value)
    return {str(name): item for name, item in value.items()}


def _list(value: object) -> Sequence[Any]:
    if not isinstance(value, list):
        raise _expected("a list", value)
    return value


TEXT = Type("string", _text)
BOOLEAN = Type("boolean", _boolean)
INTEGER = Type("whole number", _integer)
DURATION = Type("duration", _seconds)
"""In seconds."""
PATH = Type("JSONPath", _text)
"""Not parsed yet."""
MAPPING = Type("mapping", _mapping)
"""Its keys keep their spelling."""
LIST = Type("list", _list)
