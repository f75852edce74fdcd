"""Flags of metrics and probes."""

from rolecall.cli.flags.flag import Flag, FlagGroup
from rolecall.cli.flags.values import ADDRESS, BOOLEAN, PORT

METRICS = FlagGroup(
    "metrics and probes",
    (
        Flag(
            "metrics-bind-address",
            "metrics_bind_address",
            ADDRESS,
            "where metrics are served, for example :8443; 0 for nowhere",
        ),
        Flag(
            "metrics-addr",
            "metrics_bind_address",
            ADDRESS,
            "old name of --metrics-bind-address",
            "metrics-bind-address",
        ),
        Flag("metrics-secure", "metrics_secure", BOOLEAN, "serve metrics over HTTPS"),
        Flag(
            "metrics-require-rbac",
            "metrics_require_rbac",
            BOOLEAN,
            "serve metrics to those only who may read them; needs --metrics-secure",
        ),
        Flag(
            "user-metrics-port",
            "user_metrics_port",
            PORT,
            "the port on loopback to which roles send metrics of their own; 0 takes a free one",
        ),
        Flag("enable-http2", "enable_http2", BOOLEAN, "accepted for the sake of manifests: HTTP/1.1 is served"),
        Flag(
            "health-probe-bind-address",
            "health_probe_bind_address",
            ADDRESS,
            "where probes are answered, for example :6789; 0 for nowhere",
        ),
    ),
)
