import pytest

from rolecall.kube.quantities import format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("1048576", 1 << 20), ("16Mi", 16 << 20), ("1Gi", 1 << 30), ("500k", 500_000)]
)
def test_a_quantity_is_read_as_kubernetes_reads_it(text: str, number: int) -> None:
    assert parse_bytes(text) == number
    assert parse_bytes(format_bytes(number)) == number


@pytest.mark.parametrize("text", ["", "-1", "1.5Mi", "16MB", "16 Mi", "Mi"])
def test_anything_else_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(ValueError, match="expected a number of bytes"):
        parse_bytes(text)
