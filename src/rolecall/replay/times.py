"""Times in texts, and whether two runs mean the same time by them.

A run that is done again is later than the first one. So times count as the same if they are equally far from the start
of their runs, within a tolerance. A run whose clock was set back means the same time by the time itself.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
    r"|(?<!\d)\d{8}T\d{6}\d*Z?"
    r"|(?<![\d.])1\d{9}(?:\d{3})?(?:\.\d+)?(?!\d)"
)
"""RFC 3339 and what Python prints, the short forms of ISO 8601, and POSIX time in seconds or milliseconds."""

_DATE: Final = re.compile(r"(?<!\d)\d{4}-\d\d-\d\d(?![\dT])")
_BASIC_CHARACTERS: Final = 15
_NEAR_SECONDS: Final = 400 * 86400.0
"""A number is taken for a POSIX time if it is not farther from the start than this."""

_FIRST_MILLISECONDS: Final = 1e12


@dataclass(frozen=True, slots=True)
class Clocks:
    """The starts of two runs, and how far times may be apart."""

    first: datetime
    second: datetime
    tolerance_seconds: float

    def are_same_texts(self, first: str, second: str) -> bool:
        """Tell whether two texts are equal apart from times, which mean the same."""
        for pattern, compare in ((_TIME, self._are_same_times), (_DATE, self._are_same_dates)):
            one, two = pattern.findall(first), pattern.findall(second)
            if one and len(one) == len(two) and pattern.split(first) == pattern.split(second):
                return all(map(compare, one, two))
        return False

    def are_same_numbers(self, first: float, second: float) -> bool:
        """Tell whether two numbers are POSIX times that mean the same."""
        scale = 1000.0 if first >= _FIRST_MILLISECONDS else 1.0
        return self._are_near(first / scale, second / scale)

    def _are_same_times(self, first: str, second: str) -> bool:
        one, two = _seconds_of(first), _seconds_of(second)
        return first == second or (one is not None and two is not None and self._are_near(one, two))

    def _are_near(self, first: float, second: float) -> bool:
        starts = self.first.timestamp(), self.second.timestamp()
        if abs(first - starts[0]) > _NEAR_SECONDS:
            return False
        by_offset = (first - starts[0]) - (second - starts[1])
        return min(abs(by_offset), abs(first - second)) <= self.tolerance_seconds

    def _are_same_dates(self, first: str, second: str) -> bool:
        return first == second or (first == f"{self.first:%Y-%m-%d}" and second == f"{self.second:%Y-%m-%d}")


def _seconds_of(text: str) -> float | None:
    try:
        if "T" in text[:9] and "-" not in text:
            found = datetime.strptime(text[:_BASIC_CHARACTERS], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
        elif "-" in text:
            found = datetime.fromisoformat(text.replace(",", "."))
        else:
            number = float(text)
            return number / 1000 if number >= _FIRST_MILLISECONDS else number
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
