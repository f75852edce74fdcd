"""Flags for the operator as a whole."""

from rolecall.cli.flag import Flag, FlagGroup
from rolecall.cli.flag_values import BOOLEAN, COUNT, DIRECTORY, DURATION, FILE, FILE_NAME, PORT, POSITIVE, SIZE

OPERATOR = FlagGroup(
    "operator",
    (
        Flag("watches-file", "watches_file", FILE, "the file that lists what to watch"),
        Flag(
            "kubeconfig",
            "kubeconfig",
            FILE_NAME,
            "the kubeconfig file of the cluster",
            default_text="$KUBECONFIG, the pod's service account, ~/.kube/config",
        ),
        Flag(
            "max-concurrent-reconciles",
            "workers",
            POSITIVE,
            "the maximum number of concurrent runs for each kind",
            default_text="the number of CPUs, up to 4",
        ),
        Flag(
            "max-concurrent-runs",
            "max_concurrent_runs",
            POSITIVE,
            "the maximum number of concurrent runs for all kinds together",
            default_text="twice the number of CPUs, or the limit of a single kind if that is higher",
        ),
        Flag(
            "reconcile-period",
            "reconcile_period_seconds",
            DURATION,
            "how often unchanged objects are reconciled; 0s means never; reconcilePeriod of a watch takes precedence",
        ),
        Flag(
            "run-timeout",
            "run_timeout_seconds",
            DURATION,
            "end a run that takes longer than this and report a failure; 0s means no limit; timeout of a watch takes "
            "precedence",
        ),
        Flag(
            "ready-conditions",
            "ready_conditions",
            BOOLEAN,
            "write the conditions Ready, Reconciling and Stalled; readyConditions of a watch takes precedence",
        ),
        Flag(
            "max-object-values",
            "max_object_values",
            COUNT,
            "how many values (strings, numbers, lists, mappings) an object may have; its role does not run if it has "
            "more; 0 means no limit",
        ),
        Flag(
            "max-artifacts-size",
            "max_artifacts_bytes",
            SIZE,
            "how much disk space the artifacts of all runs may take together, for example 1Gi; the oldest are removed "
            "first, those of failures last; a single run may have an eighth; 0 means no limit",
        ),
        Flag(
            "run-memory-limit",
            "run_memory_limit_bytes",
            SIZE,
            "how much memory each process of a run may have, for example 512Mi; 0 means no limit",
            default_text="half of the container's memory, at least 256Mi; no limit if the container has none",
        ),
        Flag(
            "backoff-min",
            "backoff_min_seconds",
            DURATION,
            "the delay after the first failure; it doubles with each further failure",
        ),
        Flag("backoff-max", "backoff_max_seconds", DURATION, "the maximum delay after failures"),
        Flag("graceful-shutdown-timeout", "grace_seconds", DURATION, "how long the operator may take to stop"),
        Flag("proxy-port", "proxy_port", PORT, "the loopback port that runs connect to; 0 chooses a free port"),
        Flag(
            "inject-owner-ref", "inject_owner_reference", BOOLEAN, "add an owner reference to objects that runs create"
        ),
        Flag(
            "work-dir",
            "work_directory",
            DIRECTORY,
            "the directory for the inputs and results of runs; kept if you set it",
            default_text="a private directory, removed when the operator stops",
        ),
        Flag(
            "record-memory",
            "record_memory_bytes",
            SIZE,
            "how much memory the last record of each object may take; 0 keeps none",
        ),
        Flag("record-dir", "record_directory", DIRECTORY, "write a record of each run into this directory"),
        Flag(
            "record-keep",
            "record_keep_bytes",
            SIZE,
            "how much space records may take in that directory; the oldest are removed, failures last",
        ),
        Flag(
            "trace-unchanged",
            "trace_unchanged",
            BOOLEAN,
            "send traces of successful reconciles that changed nothing too, if OTEL_EXPORTER_OTLP_ENDPOINT is set",
        ),
    ),
)
