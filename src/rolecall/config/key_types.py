"""What a key of ``watches.yaml`` is: its name, the type of its value, its default, and what it means.

A key is declared once. The reader of the file takes type and default from the declaration, and so does the reference
that people read.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rolecall.kube.durations import parse_duration

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# Quoted spellings are texts, which a boolean may be all the same.
_BOOLEANS = {"y": True, "yes": True, "true": True, "on": True, "n": False, "no": False, "false": False, "off": False}


@dataclass(frozen=True, slots=True)
class Type(Generic[T_co]):
    """A type of values: its name for people, and what makes one of a value that YAML gave.

    Scalars convert as the Go runner's parser converts them, so a file means the same to both. ``read`` raises
    ValueError with what was expected and what was found.
    """

    name: str
    read: Callable[[object], T_co]


@dataclass(frozen=True, slots=True, eq=False)
class Key(Generic[T]):
    """A key of a mapping; ``default`` is its value where it is absent, null or wrong. It equals only itself.

    ``default_text`` say what that means where the value alone does not. ``is_ours`` marks a key that the Go runner
    passes over. ``keys`` are those of the mapping, or of each mapping in the list, that the value is.
    """

    name: str
    type: Type[T]
    meaning: str
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
    raise _expected("a text", value)


def _boolean(value: object) -> bool:
    found = _BOOLEANS.get(value.lower(), value) if isinstance(value, str) else value
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
    found = parse_duration(value)
    if found < 0:
        raise ValueError(f"a duration cannot be negative: {value!r}")
    return found


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _expected("a mapping", value)
    return {str(name): item for name, item in value.items()}


def _list(value: object) -> Sequence[Any]:
    if not isinstance(value, list):
        raise _expected("a list", value)
    return value


TEXT = Type("text", _text)
BOOLEAN = Type("boolean", _boolean)
INTEGER = Type("whole number", _integer)
DURATION = Type("duration", _seconds)
"""In seconds."""
PATH = Type("JSONPath", _text)
"""Not parsed yet."""
MAPPING = Type("mapping", _mapping)
"""Its keys keep their spelling."""
LIST = Type("list", _list)
