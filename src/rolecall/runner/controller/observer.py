"""Observers of controllers and work queues, for whoever measures them.

This layer knows nothing about metrics. The methods of an observer must return at once and must not raise.
"""

from collections.abc import Hashable
from typing import Protocol


class QueueObserver(Protocol):
    """Observes the requests of a work queue."""

    def added(self, request: Hashable, priority: str) -> None:
        """Take note that a request became due."""

    def moved(self, request: Hashable, priority: str) -> None:
        """Take note that a request that is due has another priority now."""

    def taken(self, request: Hashable) -> None:
        """Take note that a worker took a request."""

    def dropped(self, request: Hashable) -> None:
        """Take note that a request that was due is dropped."""

    def finished(self, request: Hashable) -> None:
        """Take note that a worker is done with a request."""

    def retried(self, request: Hashable) -> None:
        """Take note that a request is retried after a failure."""


class ReconcileObserver(Protocol):
    """Observes reconciles."""

    def started(self, request: Hashable) -> None:
        """Take note that a reconcile has started."""

    def ended(self, request: Hashable, outcome: str) -> None:
        """Take note of how it ended: success, error, requeue, requeue_after or panic."""


class Unobserved:
    """Measures nothing."""

    def added(self, request: Hashable, priority: str) -> None:
        """Ignore it."""

    def moved(self, request: Hashable, priority: str) -> None:
        """Ignore it."""

    def taken(self, request: Hashable) -> None:
        """Ignore it."""

    def dropped(self, request: Hashable) -> None:
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
