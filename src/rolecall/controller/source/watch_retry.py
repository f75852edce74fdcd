"""How an informer bears with an API server that does not answer, or does not want to: what to wait and what to log.

Each kind of trouble has its own pace: a server that is away must be found again soon after its return, a kind that is
not installed is asked for every few seconds, and what RBAC forbids only now and then. Each trouble is one warning
when it begins, one every ten minutes as long as it lasts, and one line when it is over; the rest is for debugging.
``streams`` is the only user.
"""

import random
from dataclasses import dataclass
from enum import Enum

from rolecall.kube.errors import ApiError, ForbiddenError, KubeError, NotFoundError, UnknownKindError, UnreachableError
from rolecall.kube.references import GVK
from rolecall.logs import get_logger

logger = get_logger("informer")

_REMIND_SECONDS = 600.0
_UNAUTHORIZED, _METHOD_NOT_ALLOWED = 401, 405


class WatchFailure(Enum):
    """A kind of trouble: its message, the first and the longest delay in seconds."""

    UNREACHABLE = ("API server does not answer, retrying", 0.2, 2.0)
    MISSING = ("Kind is not installed, waiting for it", 1.0, 3.0)
    # A server that has just started forbids everything until it has read its roles: hence the short first delay.
    FORBIDDEN = ("Kind may not be watched, its changes start nothing", 0.5, 30.0)
    REFUSED = ("API server refused to list or watch, retrying", 0.2, 10.0)

    @property
    def message(self) -> str:
        """What is logged when it begins."""
        return self.value[0]

    def delay_seconds(self, failures: int) -> float:
        """Return how long to wait after this many failures in a row before this one."""
        _, first, longest = self.value
        return min(first * 2.0 ** min(failures, 16), longest)

    @classmethod
    def of(cls, error: KubeError) -> "WatchFailure":
        """Tell which trouble an error means."""
        if isinstance(error, UnreachableError):
            return cls.UNREACHABLE
        if isinstance(error, UnknownKindError | NotFoundError):
            return cls.MISSING
        if isinstance(error, ForbiddenError):
            return cls.FORBIDDEN
        if isinstance(error, ApiError) and error.status in {_UNAUTHORIZED, _METHOD_NOT_ALLOWED}:
            return cls.FORBIDDEN
        return cls.REFUSED

    @property
    def is_lasting(self) -> bool:
        """Tell whether somebody must do something before it is over, so that nobody should wait for it."""
        return self in {WatchFailure.MISSING, WatchFailure.FORBIDDEN}


@dataclass(slots=True)
class WatchRetry:
    """The failures in a row of one list-and-watch loop."""

    gvk: GVK
    namespace: str | None
    failures: int = 0
    failure: WatchFailure | None = None
    expiries: int = 0
    waited_seconds: float = 0.0

    def failed(self, error: KubeError) -> float:
        """Note a failure and return the seconds to wait; up to half are random, so that loops drift apart."""
        failure = WatchFailure.of(error)
        if failure is not self.failure:
            self.failures, self.waited_seconds = 0, 0.0
        is_told = self.waited_seconds == 0 or self.waited_seconds >= _REMIND_SECONDS
        if self.waited_seconds >= _REMIND_SECONDS:
            self.waited_seconds = 0.0
        log = logger.warning if is_told else logger.debug
        log(failure.message, gvk=str(self.gvk), watched_namespace=self.namespace or "all", reason=str(error))
        self.failure = failure
        seconds = self._next_delay(failure)
        self.waited_seconds += seconds
        return seconds

    def ended_early(self) -> float:
        """Note that a watch ended at once without an error, and return the seconds to wait."""
        return self._next_delay(WatchFailure.UNREACHABLE)

    def expired(self) -> float:
        """Note that the server has forgotten a version, and return the seconds to wait, few at first."""
        self.expiries += 1
        return _spread(min(0.05 * 2.0 ** min(self.expiries, 16), 10.0))

    def succeeded(self) -> None:
        """Note that a watch brought something, or lasted."""
        self.expiries = 0
        self.recovered()

    def recovered(self) -> None:
        """Note that the API server answered as it should."""
        if self.failure is not None:
            logger.info("Kind is watched again", gvk=str(self.gvk), watched_namespace=self.namespace or "all")
        self.failures, self.failure = 0, None

    def _next_delay(self, failure: WatchFailure) -> float:
        delay = failure.delay_seconds(self.failures)
        self.failures += 1
        return _spread(delay)


def _spread(seconds: float) -> float:
    return seconds * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards no secret
