"""Amounts of bytes in the format of Kubernetes (``512Mi``, ``1G``, ``1048576``), durations in that of Go, and times.

A duration, as in ``1h15m30.5s`` or ``500ms``, has the units ns, us (µs), ms, s, m and h; a bare number is an error,
because its unit is unclear. The rules are those of Go's ``time.ParseDuration``. Times are those of RFC 3339, in UTC.
"""

import re
from datetime import UTC, datetime

_SUFFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SUFFIXES |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(k|M|G|T|Ki|Mi|Gi|Ti)?", re.ASCII)
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
"""One number with its unit."""

_WHOLE = re.compile(rf"[+-]?(?:{PART.pattern})+", re.ASCII)


def parse_bytes(text: str) -> int:
    """Return the number of bytes of a quantity such as ``512Mi``. Raises ValueError with the text and examples."""
    found = _QUANTITY.fullmatch(text)
    if not found:
        raise ValueError(f"not an amount of bytes: {text!r} (expected for example 512Mi, 1.5Gi or 1048576)")
    return int(float(found[1]) * _SUFFIXES[found[2] or ""])


def format_bytes(number: int) -> str:
    """Return a short quantity, rounded to at most one decimal: ``512Mi``, ``1.5Gi``."""
    for suffix in ("Ti", "Gi", "Mi", "Ki"):
        if number >= _SUFFIXES[suffix]:
            return f"{round(number / _SUFFIXES[suffix], 1):g}{suffix}"
    return str(number)


def parse_duration(text: str) -> float:
    """Return the seconds of a duration such as ``1m30s``. Raise ValueError with the text and the expected format."""
    if text.lstrip("+-") == "0":
        return 0.0
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"not a duration: {text!r} (expected a number with a unit, for example 500ms, 15s or 1h30m)")
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in PART.findall(text))
    return -seconds if text.startswith("-") else seconds


def parse_non_negative_duration(text: str) -> float:
    """Return the seconds of a duration like ``parse_duration``. Raise ValueError if it is negative."""
    seconds = parse_duration(text)
    if seconds < 0:
        raise ValueError(f"a duration cannot be negative: {text!r}")
    return seconds


def format_duration(seconds: float) -> str:
    """Return a short readable text: ``350ms``, ``2.5s``, ``1m30s``, ``10h``."""
    if seconds < 0:
        return "-" + format_duration(-seconds)
    milliseconds = round(seconds * 1000)
    if milliseconds < 1000:  # noqa: PLR2004 - a second
        return f"{milliseconds}ms" if milliseconds else "0s"
    minutes, tenths = divmod(round(seconds * 10), 600)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{hours}h" if hours else "", f"{minutes}m" if minutes else ""]
    parts.append(f"{tenths / 10:g}s" if tenths or not (hours or minutes) else "")
    return "".join(parts)


def parse_time(text: object) -> datetime | None:
    """Return a parsed time, in UTC if it has no zone; None if the text isn't a time."""
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found.replace(tzinfo=found.tzinfo or UTC) if found else None


def time_text(seconds: float, precision: str = "seconds") -> str:
    """Return a POSIX time as ``2026-01-31T12:00:00Z``; ``precision`` is that of ``datetime.isoformat``."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec=precision).replace("+00:00", "Z")
