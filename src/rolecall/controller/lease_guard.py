"""The guard that kills an operator shortly before its Lease expires, unless the operator has stopped by then.

The guard is a thread, so that it works even when the operator's event loop hangs: it kills every process below the
operator and then the operator itself. So no two replicas work at the same time.
"""

import math
import os
import threading
import time
from collections.abc import Callable

from rolecall.controller.leader_election import Election
from rolecall.logs import get_logger
from rolecall.process_tree import kill_descendants

logger = get_logger("leader")

_GUARD_SHARE = 0.2
_LAST_KILL_SECONDS = 0.5


def guard_of(election: Election) -> "LeaseGuard":
    """Return a running guard for a replica that takes part in an election."""
    window = election.lease_seconds - election.renew_deadline_seconds
    guard = LeaseGuard(window * _GUARD_SHARE, _end_everything)
    guard.start()
    return guard


class LeaseGuard:
    """Calls ``on_expiry`` from a thread, ``margin_seconds`` before a Lease expires."""

    def __init__(self, margin_seconds: float, on_expiry: Callable[[], None]) -> None:
        self._margin_seconds = margin_seconds
        self._on_expiry = on_expiry
        self._expires = math.inf
        self._changed = threading.Condition()

    def start(self) -> None:
        """Start the thread; it ends with the process."""
        threading.Thread(target=self._watch, name="lease guard", daemon=True).start()

    def renewed(self, expires: float) -> None:
        """Take note of when the Lease expires, on the monotonic clock; infinity after it was released."""
        with self._changed:
            self._expires = expires
            self._changed.notify()

    def _watch(self) -> None:
        with self._changed:
            while (left := self._expires - self._margin_seconds - time.monotonic()) > 0:
                self._changed.wait(None if math.isinf(left) else left)
        self._on_expiry()


def _end_everything() -> None:
    logger.error("Lease is about to expire, killing every run and the operator")
    kill_descendants(os.getpid(), _LAST_KILL_SECONDS)
    os._exit(1)
