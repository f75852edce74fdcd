"""Flags of the operator as a whole."""

from rolecall.cli.flags.flag import Flag, Group
from rolecall.cli.flags.kinds import BOOLEAN, DURATION, FILE, FILE_NAME, FOLDER, PORT, POSITIVE

OPERATOR = Group(
    "operator",
    (
        Flag("watches-file", "watches_file", FILE, "what to watch"),
        Flag("kubeconfig", "kubeconfig", FILE_NAME, "the cluster to work in"),
        Flag("max-concurrent-reconciles", "workers", POSITIVE, "runs at once, for each kind"),
        Flag("max-concurrent-runs", "max_concurrent_runs", POSITIVE, "runs at once, of all kinds together"),
        Flag("reconcile-period", "reconcile_period_seconds", DURATION, "reconcile unchanged objects this often"),
        Flag("run-timeout", "run_timeout_seconds", DURATION, "end a run that takes longer; a watch's own timeout wins"),
        Flag("backoff-min", "back_off_min_seconds", DURATION, "the delay after a first failure"),
        Flag("backoff-max", "back_off_max_seconds", DURATION, "the longest delay after failures"),
        Flag("graceful-shutdown-timeout", "grace_seconds", DURATION, "how long a stop may take"),
        Flag("proxy-port", "proxy_port", PORT, "what runs talk to; 0 takes a free one"),
        Flag("cache-reads", "cache_reads", BOOLEAN, "answer what runs read from memory where that is no older"),
        Flag("inject-owner-ref", "inject_owner_reference", BOOLEAN, "give what a run creates an owner reference"),
        Flag("work-dir", "work_directory", FOLDER, "where runs leave their files; kept when given"),
    ),
)
