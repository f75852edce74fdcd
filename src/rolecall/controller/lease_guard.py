"""Taking part in a leader election, as the settings want it.

Of the time between the renewal deadline and the end of the Lease, runs get a share to end by themselves. Should they
not have ended, or the operator's loop stand still, then ``LeaseGuard``, which is a thread of its own, kills every
process below the operator and the operator itself before the Lease ends. So no two replicas work at the same time.
"""

import math
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from rolecall.config.errors import ConfigurationError
from rolecall.config.settings import Settings
from rolecall.controller.clock import Clock
from rolecall.controller.leader_election import Election, Elector, LeaseClient
from rolecall.kube.references import ObjectKey
from rolecall.logs import get_logger
from rolecall.metrics.operator_metrics import OperatorMetrics
from rolecall.process_tree import kill_descendants

logger = get_logger("leader")

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_RETRY_SECONDS = 2.0
_RETRIES_PER_DEADLINE = 4
_RUN_GRACE_SECONDS = 5.0
_RUN_GRACE_SHARE = 0.2
_GUARD_SHARE = 0.2
_LAST_KILL_SECONDS = 0.5


def election_of(settings: Settings, namespace_file: Path = NAMESPACE_FILE) -> Election | None:
    """Return the election to take part in, None without one. Raises ConfigurationError when something is missing."""
    if not settings.leader_elect:
        return None
    if not settings.leader_election_id:
        raise ConfigurationError("leader election needs a name for its Lease: give --leader-election-id")
    lease, deadline = settings.lease_duration_seconds, settings.renew_deadline_seconds
    if not 0 < deadline < lease:
        raise ConfigurationError(
            f"--leader-elect-renew-deadline must be above 0 and below --leader-elect-lease-duration, "
            f"found {deadline:g} s and {lease:g} s"
        )
    return Election(
        key=ObjectKey(
            settings.leader_election_namespace or _own_namespace(namespace_file), settings.leader_election_id
        ),
        identity=f"{socket.gethostname()}_{uuid.uuid4()}",
        lease_seconds=lease,
        renew_deadline_seconds=deadline,
        retry_seconds=min(_RETRY_SECONDS, deadline / _RETRIES_PER_DEADLINE),
    )


def elector(election: Election, client: LeaseClient, clock: Clock, metrics: OperatorMetrics) -> Elector:
    """Return this replica in an election, with a guard that ends it should it overstay its Lease."""
    window = election.lease_seconds - election.renew_deadline_seconds
    guard = LeaseGuard(window * _GUARD_SHARE, _end_everything)
    guard.start()
    return Elector(client, election, clock, metrics, guard.renewed)


def run_grace_seconds(settings: Settings) -> float:
    """Return how long a run that has to end may take before it is killed; with an election it must be short."""
    if not settings.leader_elect:
        return _RUN_GRACE_SECONDS
    window = settings.lease_duration_seconds - settings.renew_deadline_seconds
    return min(_RUN_GRACE_SECONDS, max(0.0, window) * _RUN_GRACE_SHARE)


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


def _own_namespace(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError:
        raise ConfigurationError(
            "leader election outside of a cluster needs a namespace for its Lease: give --leader-election-namespace"
        ) from None
