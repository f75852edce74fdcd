"""Leader election as the settings ask for it: the Lease, its times, and how long a run may take to end.

Of the time between the renewal deadline and the end of the Lease, runs get a share to end by themselves.
"""

import socket
import uuid
from pathlib import Path

from rolecall.config.errors import ConfigurationError
from rolecall.config.settings import Settings
from rolecall.controller.leader_election import Election
from rolecall.kube.references import ObjectKey

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_RETRY_SECONDS = 2.0
_RETRIES_PER_DEADLINE = 4
_RUN_GRACE_SECONDS = 5.0
_RUN_GRACE_SHARE = 0.2


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


def run_grace_seconds(settings: Settings) -> float:
    """Return how long a run that has to end may take before it is killed; with an election it must be short."""
    if not settings.leader_elect:
        return _RUN_GRACE_SECONDS
    window = settings.lease_duration_seconds - settings.renew_deadline_seconds
    return min(_RUN_GRACE_SECONDS, max(0.0, window) * _RUN_GRACE_SHARE)


def _own_namespace(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError:
        raise ConfigurationError(
            "leader election outside of a cluster needs a namespace for its Lease: give --leader-election-namespace"
        ) from None
