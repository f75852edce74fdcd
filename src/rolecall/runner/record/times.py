"""Times in texts, in the forms in which roles write them."""

import re
from datetime import UTC, datetime
from typing import Final

TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
    r"|(?<!\d)\d{8}T\d{6}\d*Z?"
    r"|(?<![\d.])1\d{9}(?:\d{3})?(?:\.\d+)?(?!\d)"
)
"""RFC 3339 and what Python prints, the short forms of ISO 8601, and POSIX time in seconds or milliseconds."""

FIRST_MILLISECONDS: Final = 1e12
"""From here on a number is a POSIX time in milliseconds."""

_BASIC_CHARACTERS: Final = 15


def seconds_of(text: str) -> float | None:
    """Return the POSIX time of a text that ``TIME`` matches, None if it is no time; without a zone it is in UTC."""
    try:
        if "T" in text[:9] and "-" not in text:
            found = datetime.strptime(text[:_BASIC_CHARACTERS], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
        elif "-" in text:
            found = datetime.fromisoformat(text.replace(",", "."))
        else:
            number = float(text)
            return number / 1000 if number >= FIRST_MILLISECONDS else number
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
