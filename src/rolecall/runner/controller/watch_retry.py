"""Retry and logging policy for list and watch errors.

Each type of failure has its own back-off: short for an unreachable API server, a few seconds for a kind that is not
installed, longer for a missing permission. As long as the API server is unreachable, all kinds wait; any other failure
blocks its own kind only, from some number of consecutive failures on. A failure is logged as a warning when it starts
and every ten minutes while it lasts, and there is one line when it is over. Other retries are logged at debug level.
"""

import math
import random
from dataclasses import dataclass
from enum import Enum

from rolecall.kube.errors import (
    ApiError,
    ForbiddenError,
    KubeError,
    NoAnswerInTimeError,
    NotFoundError,
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
    """A type of failure: its message, the first and the longest delay in seconds, and the failures until it blocks."""

    UNREACHABLE = ("API server is unreachable; retrying", 0.2, 2.0, math.inf)
    NOT_INSTALLED = ("Kind is not installed; waiting for it", 1.0, 3.0, 1.0)
    # An API server that has just started denies all requests until it has loaded RBAC: hence the short first delay.
    FORBIDDEN = ("Not permitted to watch this kind; its changes will not trigger reconciles", 0.5, 30.0, 1.0)
    # A list that takes too long has been waited for 30 s; other requests fail for a moment while an API server starts.
    TIMED_OUT = ("API server does not answer in time; retrying", 0.2, 10.0, 2.0)
    REQUEST_FAILED = ("Failed to list or watch; retrying", 0.2, 10.0, 5.0)

    @property
    def message(self) -> str:
        """The message that is logged."""
        return self.value[0]

    def delay_seconds(self, failures: int) -> float:
        """Return the delay after a failure that follows this many consecutive failures."""
        _, first, longest, _ = self.value
        return min(first * 2.0 ** min(failures, 16), longest)

    @classmethod
    def of(cls, error: KubeError) -> "WatchFailure":
        """Return the failure type of an error."""
        if isinstance(error, NoAnswerInTimeError):
            return cls.TIMED_OUT
        if isinstance(error, UnreachableError):
            return cls.UNREACHABLE
        if isinstance(error, UnknownKindError | NotFoundError):
            return cls.NOT_INSTALLED
        if isinstance(error, ForbiddenError):
            return cls.FORBIDDEN
        if isinstance(error, ApiError) and error.status in {_UNAUTHORIZED, _METHOD_NOT_ALLOWED}:
            return cls.FORBIDDEN
        return cls.REQUEST_FAILED

    @property
    def blocking_failures(self) -> float:
        """After how many consecutive failures the start of the operator waits no longer for this kind."""
        return self.value[3]


@dataclass(slots=True)
class WatchRetry:
    """The consecutive failures of one list-and-watch loop."""

    gvk: GVK
    namespace: str | None
    failures: int = 0
    failure: WatchFailure | None = None
    expiries: int = 0
    waited_seconds: float = 0.0
    answered_failures: int = 0
    """The consecutive failures of any type since the API server was unreachable, or since a success."""
    is_quiet: bool = False
    """Whether somebody else reports what cannot be watched."""

    @property
    def blocked_reason(self) -> str:
        """Why the start does not wait for this kind, empty if it may recover soon, or if all kinds must wait."""
        if self.failure is not None and self.answered_failures >= self.failure.blocking_failures:
            return self.failure.message
        return _EXPIRES if self.expiries >= _BLOCKING_EXPIRIES else ""

    def delay_after_failure(self, error: KubeError) -> float:
        """Record a failure and return the delay in seconds; up to half of it is jitter."""
        failure = WatchFailure.of(error)
        if failure is not self.failure:
            self.failures, self.waited_seconds = 0, 0.0
        is_logged = self.waited_seconds == 0 or self.waited_seconds >= _REMIND_SECONDS
        if self.waited_seconds >= _REMIND_SECONDS:
            self.waited_seconds = 0.0
        log = logger.warning if is_logged and not self.is_quiet else logger.debug
        log(failure.message, gvk=str(self.gvk), watched_namespace=self.namespace or "all", reason=str(error))
        self.failure = failure
        self.answered_failures = 0 if failure is WatchFailure.UNREACHABLE else self.answered_failures + 1
        seconds = self._next_delay(failure)
        self.waited_seconds += seconds
        return seconds

    def delay_after_early_end(self) -> float:
        """Record that a watch ended immediately without an error, and return the delay in seconds."""
        return self._next_delay(WatchFailure.UNREACHABLE)

    def delay_after_expiry(self) -> float:
        """Record that a resourceVersion has expired, and return the delay in seconds, which is short at first."""
        self.expiries += 1
        return _with_jitter(min(0.05 * 2.0 ** min(self.expiries, 16), 10.0))

    def record_progress(self) -> None:
        """Record that a watch delivered an event, or lasted long enough."""
        self.expiries = 0
        self.record_success()

    def record_success(self) -> None:
        """Record that a request succeeded."""
        if self.failure is not None and not self.is_quiet:
            logger.info("Watching this kind again", gvk=str(self.gvk), watched_namespace=self.namespace or "all")
        self.failures, self.failure, self.answered_failures = 0, None, 0

    def _next_delay(self, failure: WatchFailure) -> float:
        delay = failure.delay_seconds(self.failures)
        self.failures += 1
        return _with_jitter(delay)


def _with_jitter(seconds: float) -> float:
    return seconds * random.uniform(0.5, 1.0)  # noqa: S311 - not used for security
