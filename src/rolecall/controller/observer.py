"""Whoever measures controllers and work queues: told what happens, asked for nothing.

The layer knows no metrics. What is told must return at once and must not raise.
"""

from collections.abc import Hashable
from typing import Protocol


class QueueObserver(Protocol):
    """Hears what becomes of the requests of a work queue."""

    def added(self, request: Hashable) -> None:
        """Hear that a request became due."""

    def taken(self, request: Hashable) -> None:
        """Hear that a worker took a request."""

    def finished(self, request: Hashable) -> None:
        """Hear that a worker is done with a request."""

    def retried(self, request: Hashable) -> None:
        """Hear that a request will come back after a failure."""


class ReconcileObserver(Protocol):
    """Hears what becomes of reconciles."""

    def started(self, request: Hashable) -> None:
        """Hear that a reconcile has begun."""

    def ended(self, request: Hashable, outcome: str) -> None:
        """Hear how it ended: success, error, requeue, requeue_after or panic."""


class Unobserved:
    """Measures nothing."""

    def added(self, request: Hashable) -> None:
        """Ignore it."""

    def taken(self, request: Hashable) -> None:
        """Ignore it."""

    def finished(self, request: Hashable) -> None:
        """Ignore it."""

    def retried(self, request: Hashable) -> None:
        """Ignore it."""

    def started(self, request: Hashable) -> None:
        """Ignore it."""

    def ended(self, request: Hashable, outcome: str) -> None:
        """Ignore it."""


UNOBSERVED = Unobserved()
