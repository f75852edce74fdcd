"""The names of ansible-core's that warm plays replace or read, looked for before anything relies on them.

Guarantees that a version of ansible-core in which one of them is gone is found out at the start, not in a play.
"""

from collections.abc import Iterable

Seam = Iterable[tuple[object, tuple[str, ...]]]
"""Modules or classes of ansible-core, each with the names that it needs to have."""


def missing_from(seam: Seam) -> list[str]:
    """Return the names that are not where the seam says, as ``place.name``; none of them: all are there."""
    return [
        f"{getattr(place, '__name__', place)}.{name}"
        for place, names in seam
        for name in names
        if not hasattr(place, name)
    ]
