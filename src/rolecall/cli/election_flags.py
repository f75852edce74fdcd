"""Flags for leader election."""

from rolecall.cli.flag import Flag, FlagGroup
from rolecall.cli.flag_values import BOOLEAN, DURATION, POSITIVE, TEXT

ELECTION = FlagGroup(
    "leader election",
    (
        Flag("leader-elect", "leader_elect", BOOLEAN, "reconcile only while holding a Lease"),
        Flag("enable-leader-election", "leader_elect", BOOLEAN, "old name of --leader-elect", "leader-elect"),
        Flag("leader-election-id", "leader_election_id", TEXT, "the name of the Lease"),
        Flag(
            "leader-election-namespace",
            "leader_election_namespace",
            TEXT,
            "the namespace of the Lease",
            default_text="the pod's namespace",
        ),
        Flag(
            "shards",
            "shards",
            POSITIVE,
            "let the replicas share the objects, divided into so many shards",
            default_text="one replica reconciles all",
        ),
        Flag(
            "leader-elect-resource-lock",
            "leader_elect_resource_lock",
            TEXT,
            "deprecated, no effect: the lock is always a Lease",
            "nothing",
        ),
        Flag(
            "leader-elect-lease-duration",
            "lease_duration_seconds",
            DURATION,
            "how long a Lease stays valid without being renewed",
        ),
        Flag(
            "leader-elect-renew-deadline",
            "renew_deadline_seconds",
            DURATION,
            "how long a leader retries to renew its Lease before it stops",
        ),
    ),
)
