import pytest

from rolecall.kube.quantities import format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("1048576", 2**20), ("512Mi", 2**29), ("1.5Gi", 3 * 2**29), ("1G", 10**9), ("2k", 2000), ("1Ti", 2**40)],
)
def test_quantities_are_read_as_kubernetes_writes_them(text: str, number: int) -> None:
    assert parse_bytes(text) == number


@pytest.mark.parametrize("text", ["", "Mi", "1MB", "-1Mi", "1 Mi", "1m"])
def test_anything_else_is_refused_with_what_fits(text: str) -> None:
    with pytest.raises(ValueError, match="512Mi"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (1023, "1023"), (2**29, "512Mi"), (3 * 2**29, "1.5Gi"), (700_000_000, "667.6Mi")]
)
def test_bytes_are_shown_in_the_largest_unit(number: int, text: str) -> None:
    assert format_bytes(number) == text
