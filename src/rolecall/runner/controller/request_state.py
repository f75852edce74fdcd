"""Where a request of a work queue stands, for people who look: what it waits for, since when or until when, and why.

Times are those of the queue's monotonic clock.
"""

from dataclasses import dataclass

from rolecall.runner.controller.priorities import Priority


@dataclass(frozen=True, slots=True)
class RequestState:
    """A request may have a timer (``due``) and be queued or processed at once; if all is empty, it waits for news."""

    is_processing: bool = False
    priority: Priority | None = None
    """The priority in which it is queued, None if it is not."""
    queued_since: float | None = None
    due: float | None = None
    causes: tuple[str, ...] = ()
    """Why it is queued, or else why it has a timer."""
    failures: int = 0
    """The failures in a row."""
    is_backing_off: bool = False
