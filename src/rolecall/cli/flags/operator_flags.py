"""Flags of the operator as a whole."""

from rolecall.cli.flags.flag import Flag, FlagGroup
from rolecall.cli.flags.values import BOOLEAN, DIRECTORY, DURATION, FILE, FILE_NAME, PORT, POSITIVE

OPERATOR = FlagGroup(
    "operator",
    (
        Flag("watches-file", "watches_file", FILE, "what to watch"),
        Flag(
            "kubeconfig",
            "kubeconfig",
            FILE_NAME,
            "the cluster to work in",
            default_text="$KUBECONFIG, the pod's service account, ~/.kube/config",
        ),
        Flag(
            "max-concurrent-reconciles",
            "workers",
            POSITIVE,
            "runs at once, for each kind",
            default_text="the number of CPUs, at most 4",
        ),
        Flag(
            "max-concurrent-runs",
            "max_concurrent_runs",
            POSITIVE,
            "runs at once, of all kinds together",
            default_text="twice the number of CPUs, or what a single kind may have if that is more",
        ),
        Flag(
            "reconcile-period",
            "reconcile_period_seconds",
            DURATION,
            "reconcile unchanged objects this often; 0s for never; a watch's reconcilePeriod wins",
        ),
        Flag(
            "run-timeout",
            "run_timeout_seconds",
            DURATION,
            "end a run that takes longer, as a failure; 0s for no limit; a watch's timeout wins",
        ),
        Flag(
            "backoff-min",
            "backoff_min_seconds",
            DURATION,
            "the delay after a first failure; it doubles with each further one",
        ),
        Flag("backoff-max", "backoff_max_seconds", DURATION, "the longest delay after failures"),
        Flag("graceful-shutdown-timeout", "grace_seconds", DURATION, "how long a stop may take"),
        Flag("proxy-port", "proxy_port", PORT, "the port on loopback that runs talk to; 0 takes a free one"),
        Flag(
            "cache-reads",
            "cache_reads",
            BOOLEAN,
            "answer what runs read from the operator's memory, never older than what they have seen",
        ),
        Flag("inject-owner-ref", "inject_owner_reference", BOOLEAN, "give what a run creates an owner reference"),
        Flag(
            "work-dir",
            "work_directory",
            DIRECTORY,
            "where runs leave their inputs and results; kept when given",
            default_text="a private folder, removed at the end",
        ),
    ),
)
