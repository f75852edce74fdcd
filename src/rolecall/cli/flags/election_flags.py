"""Flags of leader election."""

from rolecall.cli.flags.flag import Flag, FlagGroup
from rolecall.cli.flags.values import BOOLEAN, DURATION, TEXT

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
            default_text="the pod's own",
        ),
        Flag(
            "leader-elect-resource-lock",
            "leader_elect_resource_lock",
            TEXT,
            "deprecated, has no effect: it is always a Lease",
            "nothing",
        ),
        Flag(
            "leader-elect-lease-duration",
            "lease_duration_seconds",
            DURATION,
            "how long a Lease that is not renewed still counts",
        ),
        Flag(
            "leader-elect-renew-deadline",
            "renew_deadline_seconds",
            DURATION,
            "how long a leader tries to renew its Lease before it stops",
        ),
    ),
)
