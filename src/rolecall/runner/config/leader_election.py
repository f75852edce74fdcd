"""Leader election as the settings ask for it: the Lease and its times."""

import socket
import uuid
from pathlib import Path

from rolecall.kube.references import ObjectKey
from rolecall.runner.config.errors import ConfigurationError
from rolecall.runner.config.settings import Settings
from rolecall.runner.election.elector import Election

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_RETRY_SECONDS = 2.0
_RETRIES_PER_DEADLINE = 4
MOST_SHARDS = 256
"""Each has a Lease, and every replica reads all of them every two seconds."""


def election_of(settings: Settings, namespace_file: Path = NAMESPACE_FILE) -> Election | None:
    """Return the election to take part in, None without one. Raises ConfigurationError when something is missing."""
    _check_shards(settings)
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


def _check_shards(settings: Settings) -> None:
    if settings.shards and not settings.leader_elect:
        raise ConfigurationError(f"--shards {settings.shards} needs leader election: give --leader-elect")
    if settings.shards > MOST_SHARDS:
        raise ConfigurationError(f"--shards: expected at most {MOST_SHARDS}, found {settings.shards}")


def _own_namespace(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError:
        raise ConfigurationError(
            "leader election outside of a cluster needs a namespace for its Lease: give --leader-election-namespace"
        ) from None
