"""The types of values that flags take, each with its error message for an invalid value."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rolecall.cli.flag import ValueType
from rolecall.kube.durations import format_duration, parse_non_negative_duration
from rolecall.kube.quantities import format_bytes, parse_bytes
from rolecall.runner.config.environment import parse_boolean


def _as_argument_type(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Make argparse show the text of a ``ValueError``, which it otherwise replaces with its own."""

    def parse_argument(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse_argument


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"expected a whole number, found {text!r}") from None


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"expected a whole number above 0, found {text!r}")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"expected a whole number, at least 0, found {text!r}")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:  # noqa: PLR2004 - the last port
        raise ValueError(f"expected a port from 0 to 65535, found {text!r}")
    return int(text)


def _quoted(text: str) -> str:
    """Return the text without a pair of single quotes around it; manifests often have them."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == "'" else text


def choice(*choices: str) -> ValueType:
    """Return the type of a value that is one of several words, in upper or lower case."""

    def parse(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}, found {text!r}")
        return text.lower()

    return ValueType("WORD", _as_argument_type(parse), choices=choices)


BOOLEAN = ValueType(
    "[=BOOL]", _as_argument_type(parse_boolean), lambda value: "true" if value else "false", is_boolean=True
)
TEXT = ValueType("TEXT", str)
WORDS = ValueType("WORDS", _quoted)
SEARCH_PATH = ValueType("PATH", str)
FILE = ValueType("FILE", Path)
FILE_NAME = ValueType("FILE", str)
DIRECTORY = ValueType("DIR", Path)
ADDRESS = ValueType("ADDRESS", str)
INTEGER = ValueType("N", _as_argument_type(_integer))
POSITIVE = ValueType("N", _as_argument_type(_positive))
SIZE = ValueType("SIZE", _as_argument_type(parse_bytes), format_bytes)
COUNT = ValueType("N", _as_argument_type(_count))
PORT = ValueType("PORT", _as_argument_type(_port))
DURATION = ValueType("DURATION", _as_argument_type(parse_non_negative_duration), format_duration)
