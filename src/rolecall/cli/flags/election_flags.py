"""Flags of leader election."""

from rolecall.cli.flags.flag import Flag, Group
from rolecall.cli.flags.kinds import BOOLEAN, DURATION, TEXT

ELECTION = Group(
    "leader election",
    (
        Flag("leader-elect", "leader_elect", BOOLEAN, "reconcile only while holding the Lease"),
        Flag("enable-leader-election", "leader_elect", BOOLEAN, "as --leader-elect", "leader-elect"),
        Flag("leader-election-id", "leader_election_id", TEXT, "the name of the Lease"),
        Flag("leader-election-namespace", "leader_election_namespace", TEXT, "its namespace; in a pod the pod's own"),
        Flag(
            "leader-elect-resource-lock",
            "leader_elect_resource_lock",
            TEXT,
            "has no effect: it is always a Lease",
            "nothing",
        ),
        Flag("leader-elect-lease-duration", "lease_duration_seconds", DURATION, "how long the Lease holds"),
        Flag("leader-elect-renew-deadline", "renew_deadline_seconds", DURATION, "how long renewing it is tried"),
    ),
)
