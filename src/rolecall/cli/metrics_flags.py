"""Flags for metrics and probes."""

from rolecall.cli.flag import Flag, FlagGroup
from rolecall.cli.flag_values import ADDRESS, BOOLEAN, PORT

METRICS = FlagGroup(
    "metrics and probes",
    (
        Flag(
            "metrics-bind-address",
            "metrics_bind_address",
            ADDRESS,
            "the address that serves metrics, for example :8443; 0 disables it",
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
            "authenticate and authorize clients that read metrics; needs --metrics-secure",
        ),
        Flag(
            "user-metrics-port",
            "user_metrics_port",
            PORT,
            "the loopback port to which roles send metrics of their own; 0 chooses a free port",
        ),
        Flag(
            "enable-http2", "enable_http2", BOOLEAN, "no effect, accepted for existing manifests: servers use HTTP/1.1"
        ),
        Flag(
            "ui-bind-address",
            "ui_bind_address",
            ADDRESS,
            "the address that serves the live page, for example 127.0.0.1:8090; 0 disables it; one that others can "
            "reach needs --metrics-secure and --metrics-require-rbac, which hold for the page too",
        ),
        Flag(
            "health-probe-bind-address",
            "health_probe_bind_address",
            ADDRESS,
            "the address that serves health probes, for example :6789; 0 disables it",
        ),
    ),
)
