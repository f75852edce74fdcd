"""The guard that ends an operator before its Lease does, should the operator not have stopped by itself.

``LeaseGuard`` is a thread of its own, so that it strikes even when the operator's loop stands still: it kills every
process below the operator and then the operator. So no two replicas work at the same time.
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
    """Return a guard, started, for a replica that takes part in an election."""
    window = election.lease_seconds - election.renew_deadline_seconds
    guard = LeaseGuard(window * _GUARD_SHARE, _end_everything)
    guard.start()
    return guard


class LeaseGuard:
    """Calls ``on_expiry``, from a thread, when a Lease is about to end: so many seconds before."""

    def __init__(self, margin_seconds: float, on_expiry: Callable[[], None]) -> None:
        self._margin_seconds = margin_seconds
        self._on_expiry = on_expiry
        self._expires = math.inf
        self._changed = threading.Condition()

    def start(self) -> None:
        """Start guarding; it ends with the process."""
        threading.Thread(target=self._watch, name="lease guard", daemon=True).start()

    def renewed(self, expires: float) -> None:
        """Hear when, on the monotonic clock, the Lease ends; infinity when it was given back."""
        with self._changed:
            self._expires = expires
            self._changed.notify()

    def _watch(self) -> None:
        with self._changed:
            while (left := self._expires - self._margin_seconds - time.monotonic()) > 0:
                self._changed.wait(None if math.isinf(left) else left)
        self._on_expiry()


def _end_everything() -> None:
    logger.error("The Lease is about to end, killing every run and the operator")
    kill_descendants(os.getpid(), _LAST_KILL_SECONDS)
    os._exit(1)
