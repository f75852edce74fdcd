"""How times and states read, on the page and in a terminal."""

from datetime import UTC, datetime
from typing import Final

from rolecall.runner.dashboard.views import State

SHAPES: Final = {
    State.RUNNING: "▶",
    State.FAILED: "✕",
    State.DELETING: "⊘",
    State.PAUSED: "‖",
    State.PENDING: "○",
    State.SUCCEEDED: "✓",
}
"""What tells states apart for those who see no colours, besides their words."""

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_STEP: Final = 10


def ago(seconds: float, now: float) -> str:
    """Return how long ago a time was."""
    passed = now - seconds
    return "just now" if passed < _STEP else f"{_rounded(passed)} ago"


def until(seconds: float, now: float) -> str:
    """Return how far away a time is."""
    left = seconds - now
    return "now" if left < 1 else f"in {_rounded(left)}"


def _rounded(seconds: float) -> str:
    """Return a time in one unit: a page that changed with every second would always be new."""
    if seconds < _MINUTE:
        return f"{max(1, int(seconds)) if seconds < _STEP else int(seconds) // _STEP * _STEP} s"
    if seconds < _HOUR:
        return f"{int(seconds) // _MINUTE} min"
    return f"{int(seconds) // _HOUR} h" if seconds < 2 * _DAY else f"{int(seconds) // _DAY} days"


def utc(seconds: float) -> str:
    """Return a time as in manifests."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
