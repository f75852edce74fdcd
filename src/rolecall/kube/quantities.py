"""Numbers of bytes as Kubernetes writes them: ``16Mi``, ``1Gi``, ``500k``, ``1048576``."""

import re

_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12} | {
    f"{letter}i": 1 << (10 * power) for power, letter in enumerate("KMGT", 1)
}
_QUANTITY = re.compile(r"(\d+)([kMGT]|[KMGT]i)?")


def parse_bytes(text: str) -> int:
    """Return the bytes of a quantity such as ``16Mi``. Raise ValueError with the text and what is expected."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"expected a number of bytes such as 16Mi, 1Gi or 1048576, found {text!r}")
    return int(match[1]) * _FACTORS[match[2] or ""]


def format_bytes(number: int) -> str:
    """Return a number of bytes with the largest binary unit that divides it: ``16Mi``, ``1000``, ``0``."""
    for unit in ("Ti", "Gi", "Mi", "Ki"):
        if number and number % _FACTORS[unit] == 0:
            return f"{number // _FACTORS[unit]}{unit}"
    return str(number)
