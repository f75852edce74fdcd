"""The backoff of failed reconciles: delays that double, and their bounds.

``--backoff-min`` and ``--backoff-max`` set the bounds; their defaults are here.
"""

from dataclasses import dataclass

MINIMUM_SECONDS = 1.0
MAXIMUM_SECONDS = 300.0
_MOST_DOUBLINGS = 63
"""Beyond that every sensible maximum is reached; the bound keeps the floats finite."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that double from the minimum to the maximum, in seconds."""

    minimum_seconds: float = MINIMUM_SECONDS
    maximum_seconds: float = MAXIMUM_SECONDS

    def delay_seconds(self, failures: int) -> float:
        """Return the delay that follows after ``failures`` earlier failures."""
        return min(self.minimum_seconds * 2.0 ** min(failures, _MOST_DOUBLINGS), self.maximum_seconds)


DEFAULT_BACKOFF = Backoff()
