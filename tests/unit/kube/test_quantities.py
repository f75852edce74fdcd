from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.kube.quantities import (
    format_bytes,
    format_duration,
    parse_bytes,
    parse_duration,
    parse_time,
    time_text,
)


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("1048576", 2**20), ("512Mi", 2**29), ("1.5Gi", 3 * 2**29), ("1G", 10**9), ("2k", 2000), ("1Ti", 2**40)],
)
def test_quantity_is_parsed_as_by_kubernetes(text: str, number: int) -> None:
    assert parse_bytes(text) == number


@pytest.mark.parametrize("text", ["", "Mi", "1MB", "-1Mi", "1 Mi", "1m"])
def test_invalid_quantity_is_rejected_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="512Mi"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (1023, "1023"), (2**29, "512Mi"), (3 * 2**29, "1.5Gi"), (700_000_000, "667.6Mi")]
)
def test_bytes_are_formatted_in_largest_unit(number: int, text: str) -> None:
    assert format_bytes(number) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("+0", 0.0),
        ("0s", 0.0),
        ("15s", 15.0),
        ("1h30m", 5400.0),
        ("1m30.5s", 90.5),
        ("500ms", 0.5),
        ("1.s", 1.0),
        (".5s", 0.5),
        ("2us", 2e-6),
        ("2µs", 2e-6),
        ("2μs", 2e-6),
        ("1s2m", 121.0),
        ("5ns", 5e-9),
        ("-1m", -60.0),
        ("+1m", 60.0),
    ],
)
def test_duration_is_parsed_as_by_go(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "15", "s", "15 s", " 15s", "1d", "1H", "soon", "1h-30m", "--1s", ".s", "1e3s", "-"]
)
def test_invalid_duration_is_error_with_text(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration") as raised:
        parse_duration(text)
    assert repr(text) in str(raised.value)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.35, "350ms"),
        (2.5, "2.5s"),
        (60, "1m"),
        (90, "1m30s"),
        (3600, "1h"),
        (36000, "10h"),
        (3661, "1h1m1s"),
        (-90, "-1m30s"),
    ],
)
def test_duration_is_formatted(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize("seconds", [59.96, 119.99, 3599.97, 0.9999, 0.0001])
def test_rounded_duration_is_plausible(seconds: float) -> None:
    text = format_duration(seconds)
    assert parse_duration(text) == pytest.approx(seconds, abs=0.06)
    assert "60s" not in text
    assert text not in ("0ms", "1000ms")


@given(st.floats(min_value=0, max_value=1e6))
def test_parse_reverses_format_of_duration(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, abs=0.06)


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-01-31T12:00:00Z", NOON),
        ("2026-01-31T13:00:00+01:00", NOON),
        ("2026-01-31T12:00:00", NOON),
        *((other, None) for other in ("", "noon", 1769860800, None)),
    ],
)
def test_time_has_a_zone_and_anything_else_is_none(text: object, time: datetime | None) -> None:
    assert parse_time(text) == time


@pytest.mark.parametrize(
    ("precision", "text"), [("seconds", "2026-01-31T12:00:00Z"), ("milliseconds", "2026-01-31T12:00:00.250Z")]
)
def test_time_is_written_in_utc_with_its_precision(precision: str, text: str) -> None:
    assert time_text(NOON.timestamp() + 0.25, precision) == text
