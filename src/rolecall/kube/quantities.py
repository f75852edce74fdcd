"""Amounts of bytes as Kubernetes writes them: ``512Mi``, ``1G``, ``1048576``."""

import re

_SUFFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SUFFIXES |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(k|M|G|T|Ki|Mi|Gi|Ti)?", re.ASCII)


def parse_bytes(text: str) -> int:
    """Return the number of bytes of a quantity such as ``512Mi``. Raises ValueError with the text and what fits."""
    found = _QUANTITY.fullmatch(text)
    if not found:
        raise ValueError(f"not an amount of bytes: {text!r} (expected for example 512Mi, 1.5Gi or 1048576)")
    return int(float(found[1]) * _SUFFIXES[found[2] or ""])


def format_bytes(number: int) -> str:
    """Return a short quantity of at most one digit after the point: ``512Mi``, ``1.5Gi``; rounded."""
    for suffix in ("Ti", "Gi", "Mi", "Ki"):
        if number >= _SUFFIXES[suffix]:
            return f"{round(number / _SUFFIXES[suffix], 1):g}{suffix}"
    return str(number)
