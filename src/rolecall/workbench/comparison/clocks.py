"""Times in two runs that start at different times: which of them have the same meaning."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from rolecall.kube.quantities import parse_time

TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
    r"|(?<!\d)\d{8}T\d{6}\d*Z?"
    r"|(?<![\d.])1\d{9}(?:\d{3})?(?:\.\d+)?(?!\d)"
)
"""RFC 3339 and the form that Python prints, the short forms of ISO 8601, and POSIX time in seconds or milliseconds."""

_FIRST_MILLISECONDS: Final = 1e12
"""Numbers from this one on are POSIX times in milliseconds."""

LEAST_TOLERANCE_SECONDS: Final = 10.0
"""The tolerance for two runs without duration; a longer run needs as much more."""

_BASIC_CHARACTERS: Final = 15
_DATE: Final = re.compile(r"(?<!\d)\d{4}-\d\d-\d\d(?![\dT])")
_NEAR_SECONDS: Final = 400 * 86400.0
"""A number is interpreted as a POSIX time if it is not farther from the start than this."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """The starts of two runs, and the tolerance for times."""

    first: datetime
    second: datetime
    tolerance_seconds: float

    def are_same_texts(self, first: str, second: str) -> bool:
        """Return whether two texts are equal except for times, which have the same meaning."""
        for pattern, compare in ((TIME, self._are_same_times), (_DATE, self._are_same_dates)):
            one, two = pattern.findall(first), pattern.findall(second)
            if one and len(one) == len(two) and pattern.split(first) == pattern.split(second):
                return all(map(compare, one, two))
        return False

    def are_same_numbers(self, first: float, second: float) -> bool:
        """Return whether two numbers are POSIX times with the same meaning."""
        scale = 1000.0 if first >= _FIRST_MILLISECONDS else 1.0
        return self._are_near(first / scale, second / scale)

    def _are_same_times(self, first: str, second: str) -> bool:
        one, two = seconds_of(first), seconds_of(second)
        return first == second or (one is not None and two is not None and self._are_near(one, two))

    def _are_near(self, first: float, second: float) -> bool:
        starts = self.first.timestamp(), self.second.timestamp()
        if abs(first - starts[0]) > _NEAR_SECONDS:
            return False
        by_offset = (first - starts[0]) - (second - starts[1])
        return min(abs(by_offset), abs(first - second)) <= self.tolerance_seconds

    def _are_same_dates(self, first: str, second: str) -> bool:
        return first == second or (first == f"{self.first:%Y-%m-%d}" and second == f"{self.second:%Y-%m-%d}")


def is_number(value: Any) -> bool:
    """Return whether a JSON value is a number, which may be a time."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def seconds_of(text: str) -> float | None:
    """Return the POSIX time of a text that ``TIME`` matches, in UTC if it has no zone; None if it isn't a time."""
    if "-" not in text and "T" not in text:
        number = float(text)
        return number / 1000 if number >= _FIRST_MILLISECONDS else number
    found = parse_time(text.replace(",", ".") if "-" in text else text[:_BASIC_CHARACTERS])
    return None if found is None else found.timestamp()
