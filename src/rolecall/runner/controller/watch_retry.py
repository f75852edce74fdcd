"""Retries of failed lists and watches: how long they wait, what is logged, and when a kind counts as blocked.

Each type of failure has its own backoff: short for an unreachable API server, a few seconds for a kind that isn't
installed, longer for a missing permission. While the API server is unreachable, all kinds wait; any other failure
blocks only its own kind, after a number of consecutive failures. A failure is logged as a warning when it starts and
every ten minutes while it lasts, and its end is logged once. Other retries are logged at debug level.
"""

import math
import random
from dataclasses import dataclass
from enum import Enum

from rolecall.kube.errors import (
    ApiError,
    ForbiddenError,
    KubeError,
    NotFoundError,
    ResponseTimeoutError,
    UnknownKindError,
    UnreachableError,
)
from rolecall.kube.references import GVK
from rolecall.system.logs import get_logger

logger = get_logger("informer")

_REMIND_SECONDS = 600.0
_BLOCKING_EXPIRIES = 5
_EXPIRES = "Lists expire before their end; listing again"
_UNAUTHORIZED, _METHOD_NOT_ALLOWED = 401, 405


class WatchFailure(Enum):
    """A type of failure: its log message, its first and its maximum delay, and how many in a row block the kind."""

    UNREACHABLE = ("API server is unreachable; retrying", 0.2, 2.0, math.inf)
    NOT_INSTALLED = ("Kind is not installed; waiting for it", 1.0, 3.0, 1)
    # An API server that has just started denies all requests until it has loaded RBAC: hence the short first delay.
    FORBIDDEN = ("Not permitted to watch this kind; its changes will not trigger reconciles", 0.5, 30.0, 1)
    # A list that times out has already taken 30 s; other requests may fail briefly while an API server starts.
    TIMED_OUT = ("API server does not answer in time; retrying", 0.2, 10.0, 2)
    REQUEST_FAILED = ("Failed to list or watch; retrying", 0.2, 10.0, 5)

    def __init__(self, message: str, first_seconds: float, max_seconds: float, blocking_failures: float) -> None:
        """Name the parts of the value."""
        self.message = message
        self.first_seconds = first_seconds
        self.max_seconds = max_seconds
        self.blocking_failures = blocking_failures

    @classmethod
    def of(cls, error: KubeError) -> "WatchFailure":
        """Return the failure type of an error."""
        if isinstance(error, ResponseTimeoutError):
            return cls.TIMED_OUT
        if isinstance(error, UnreachableError):
            return cls.UNREACHABLE
        if isinstance(error, UnknownKindError | NotFoundError):
            return cls.NOT_INSTALLED
        is_denied = isinstance(error, ApiError) and error.status in (_UNAUTHORIZED, _METHOD_NOT_ALLOWED)
        return cls.FORBIDDEN if is_denied or isinstance(error, ForbiddenError) else cls.REQUEST_FAILED


@dataclass(slots=True)
class WatchRetry:
    """The consecutive failures of one list-and-watch loop; with ``is_quiet`` its caller logs them instead."""

    gvk: GVK
    namespace: str | None
    is_quiet: bool = False
    failure: WatchFailure | None = None
    _failures: int = 0
    """The failures of this type in a row."""
    _answered_failures: int = 0
    """The failures of any type in a row in which the API server responded."""
    _expiries: int = 0
    _seconds_since_warning: float = 0.0

    @property
    def blocked_reason(self) -> str:
        """Why the operator should start without this kind; empty if it may recover soon or if all kinds must wait."""
        if self.failure is not None and self._answered_failures >= self.failure.blocking_failures:
            return self.failure.message
        return _EXPIRES if self._expiries >= _BLOCKING_EXPIRIES else ""

    def delay_after_failure(self, error: KubeError) -> float:
        """Record a failure and return the delay in seconds; up to half of it is jitter."""
        failure = WatchFailure.of(error)
        if failure is not self.failure:
            self._failures, self._seconds_since_warning = 0, 0.0
        is_due = self._seconds_since_warning == 0 or self._seconds_since_warning >= _REMIND_SECONDS
        if is_due:
            self._seconds_since_warning = 0.0
        log = logger.warning if is_due and not self.is_quiet else logger.debug
        log(failure.message, gvk=str(self.gvk), watched_namespace=self.namespace or "all", reason=str(error))
        self.failure = failure
        self._answered_failures = 0 if failure is WatchFailure.UNREACHABLE else self._answered_failures + 1
        seconds = self._next_delay(failure)
        self._seconds_since_warning += seconds
        return seconds

    def delay_after_early_end(self) -> float:
        """Record that a watch ended immediately without an error, and return the delay in seconds."""
        return self._next_delay(WatchFailure.UNREACHABLE)

    def delay_after_expiry(self) -> float:
        """Record that a resourceVersion has expired, and return the delay in seconds, which is short at first."""
        self._expiries += 1
        return _delay(0.05, 10.0, self._expiries)

    def record_progress(self) -> None:
        """Record that a watch delivered an event, or lasted long enough."""
        self._expiries = 0
        self.record_success()

    def record_success(self) -> None:
        """Record that a request succeeded."""
        if self.failure is not None and not self.is_quiet:
            logger.info("Watching this kind again", gvk=str(self.gvk), watched_namespace=self.namespace or "all")
        self._failures, self.failure, self._answered_failures = 0, None, 0

    def _next_delay(self, failure: WatchFailure) -> float:
        self._failures += 1
        return _delay(failure.first_seconds, failure.max_seconds, self._failures - 1)


def _delay(first: float, maximum: float, doublings: int) -> float:
    """Return a delay that doubles each time; up to half of it is jitter."""
    return min(first * 2.0 ** min(doublings, 16), maximum) * random.uniform(0.5, 1.0)  # noqa: S311 - not for security
