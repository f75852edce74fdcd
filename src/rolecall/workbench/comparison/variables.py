"""Values that differ between two uninterrupted runs: passwords, generated names, addresses, uids.

The places of such a value are variables. Two places with the same value, or with texts that contain it, have the same
variable, in both runs. Another run equals these two if each variable has one value in all its places.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

Path = tuple[str | int, ...]
"""The keys and indexes from an object to a value in it."""

Template = tuple[str | int, ...]
"""A text: fixed parts, and the numbers of variables."""

_MIN_CHARACTERS: Final = 4
"""A shorter value is only searched as a whole text."""

_INSIDE_WORD: Final = re.compile(r"[A-Za-z0-9]*\Z")
_REST_OF_WORD: Final = re.compile(r"\A[A-Za-z0-9]*")

_WHOLE: Final = re.compile(r"(?<!\d)\d{1,3}(?:\.\d{1,3}){3}(?!\d)|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
"""Addresses and uids. They are chosen as a whole, so a part that two of them have in common is a coincidence."""

_IN_PASSWORDS: Final = ".,:-_"
"""Punctuation of Ansible's passwords: it is a coincidence too if two texts have nothing else in common at an end."""


def text_of(value: Any) -> str:
    """Return a value as text."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def shapes_that_differ(one: Any, two: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the paths where keys or lengths differ; the values there are compared as strings."""
    if isinstance(one, dict) and isinstance(two, dict) and one.keys() == two.keys():
        for key in one:
            yield from shapes_that_differ(one[key], two[key], (*path, key))
    elif isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        for index, pair in enumerate(zip(one, two, strict=True)):
            yield from shapes_that_differ(*pair, (*path, index))
    elif isinstance(one, dict | list) or isinstance(two, dict | list):
        yield path


def leaves(value: Any, opaque: frozenset[Path], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the scalars and empty collections in a value with their paths, and each opaque part as a whole."""
    if path not in opaque and isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, opaque, (*path, key))
    elif path not in opaque and isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from leaves(inner, opaque, (*path, index))
    else:
        yield path, value


@dataclass(slots=True)
class Variables:
    """The variables of two runs, by their pairs of values."""

    _numbers: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, one: str, two: str) -> Template:
        """Return the template of two texts that differ, with its new variables. Add short texts first."""
        return tuple(part for part in self._parts(one, two, is_whole=True) if part != "")

    def _parts(self, one: str, two: str, *, is_whole: bool = False) -> Iterator[str | int]:
        if one == two:
            yield one
            return
        for (first, second), number in sorted(self._numbers.items(), key=lambda each: -len(each[0][0])):
            is_long = min(len(first), len(second)) >= _MIN_CHARACTERS
            if (one, two) == (first, second) or (is_long and first in one and second in two):
                before, after = one.partition(first)[::2], two.partition(second)[::2]
                yield from self._parts(before[0], after[0])
                yield number
                yield from self._parts(before[1], after[1])
                return
        start, end = _common_words(one, two)
        if is_whole:
            start = start if one[:start].strip(_IN_PASSWORDS) else 0
            end = end if one[len(one) - end :].strip(_IN_PASSWORDS) else 0
        stop_one, stop_two = len(one) - end, len(two) - end
        yield one[:start]
        yield self._numbers.setdefault((one[start:stop_one], two[start:stop_two]), len(self._numbers))
        yield one[stop_one:]


def _common_words(one: str, two: str) -> tuple[int, int]:
    """Return the lengths of the beginning and of the end that two texts share, in whole words, addresses, and uids."""
    limit = min(len(one), len(two))
    start = next((index for index in range(limit) if one[index] != two[index]), limit)
    start = len(_INSIDE_WORD.sub("", one[:start]))
    limit -= start
    end = next((index for index in range(limit) if one[-1 - index] != two[-1 - index]), limit)
    end = len(_REST_OF_WORD.sub("", one[len(one) - end :]))
    for text in (one, two):
        for whole in _WHOLE.finditer(text):
            if whole.start() < start < whole.end():
                start = whole.start()
            if whole.start() < len(text) - end < whole.end():
                end = len(text) - whole.end()
    return start, end


@dataclass(slots=True)
class Bindings:
    """The values of the variables in another run, each with the place where it was found."""

    values: dict[int, tuple[str, str]] = field(default_factory=dict)

    def copy(self) -> "Bindings":
        """Return an independent copy."""
        return Bindings(dict(self.values))

    def bind(self, template: Template, text: str, place: str) -> str | None:
        """Bind the variables of a template to their values in a text.

        Return None if all fit, the place with another value for one of them, and an empty string if the text does not
        fit the template.
        """
        pattern = "".join(re.escape(part) if isinstance(part, str) else "(.*?)" for part in template)
        match = re.fullmatch(pattern, text, re.DOTALL)
        if match is None:
            return ""
        numbers = (part for part in template if isinstance(part, int))
        for number, value in zip(numbers, match.groups(), strict=True):
            known, where = self.values.setdefault(number, (value, place))
            if known != value:
                return where
        return None
