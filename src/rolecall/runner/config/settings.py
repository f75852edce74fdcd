"""The settings of the operator: one frozen value for all flags and environment variables.

The program has two names, with different defaults: ``rolecall run`` uses no fixed port or path that another process
could be using; ``ansible-operator`` uses the ports, paths and durations of the Go runner.

The backoff of failed reconciles: delays that double, and their bounds.

``--backoff-min`` and ``--backoff-max`` set the bounds; their defaults are here.
"""

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rolecall.system.control_groups import available_cpus

BACKOFF_MIN_SECONDS = 1.0
BACKOFF_MAX_SECONDS = 300.0
_MAX_DOUBLINGS = 63
"""Beyond that every sensible maximum is reached; the bound keeps the floats finite."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that double from the minimum to the maximum, in seconds."""

    minimum_seconds: float = BACKOFF_MIN_SECONDS
    maximum_seconds: float = BACKOFF_MAX_SECONDS

    def delay_seconds(self, failures: int) -> float:
        """Return the delay that follows after ``failures`` earlier failures."""
        return min(self.minimum_seconds * 2.0 ** min(failures, _MAX_DOUBLINGS), self.maximum_seconds)


DEFAULT_BACKOFF = Backoff()


LOG_EVENTS = ("nothing", "tasks", "everything")
"""Which events of a run are logged."""


def default_workers() -> int:
    """Return the default number of concurrent runs for one kind: the available processors, at most four.

    A play is a heavy process: a node with 128 CPUs must not start 128 of them for each kind.
    """
    return min(4, available_cpus())


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one operator."""

    watches_file: Path = Path("watches.yaml")
    """The file with the list of kinds; relative to the working directory."""

    kubeconfig: str | None = None
    """A kubeconfig file; None means $KUBECONFIG, the pod's service account or ~/.kube/config."""

    namespaces: tuple[str, ...] = ()
    """The namespaces to watch; empty means all."""

    reconcile_period_seconds: float = 36000.0
    """How long after a successful run an object is reconciled again; 0 means never. Ten hours, as in the Go runner."""

    workers: int = field(default_factory=default_workers)
    """How many objects of one kind are reconciled at once."""

    max_concurrent_runs: int = 0
    """How many objects of all kinds are reconciled at once; for 0 see ``resolve_max_concurrent_runs``."""

    run_timeout_seconds: float = 0.0
    """How long a run may take if its watch has no ``timeout``; 0 means no limit."""

    max_object_values: int = 20_000
    """How many values an object may have; 0 means no limit. A run needs 4.5 KiB of memory for each."""

    max_artifacts_bytes: int = 1 << 30
    """How much disk space the artifacts of all runs may take together; 0 means no limit."""

    output_in_events: bool = False
    """Whether the artifacts have what Ansible prints twice, in ``stdout`` and, as the Go runner's, in each event."""

    run_memory_limit_bytes: int | None = None
    """How much memory each process of a run may have; 0 means no limit, for None see ``resolve_memory_limit``."""

    unreachable_ok: bool = False
    """Whether an unreachable host, or a play without hosts, is not a failure, as in the Go runner."""

    mark_unsafe: bool = False
    """Whether strings from objects are data that Ansible never evaluates, if the watch has no ``markUnsafe``."""

    ready_conditions: bool = True
    """Whether a status has ``Ready``, ``Reconciling`` and ``Stalled``, if the watch has no ``readyConditions``."""

    backoff_min_seconds: float = BACKOFF_MIN_SECONDS
    """The delay after the first failure; it doubles with each further failure."""

    backoff_max_seconds: float = BACKOFF_MAX_SECONDS
    """The maximum delay after failures."""

    grace_seconds: float = 25.0
    """How long the operator may take to stop and to end running plays. Below the 30 s that Kubernetes gives a pod."""

    verbosity: int = 2
    """How many ``-v`` options Ansible gets."""

    ansible_args: str = ""
    """Additional arguments for ansible-playbook."""

    log_events: str = "tasks"
    """Which events of a run are logged: nothing, tasks or everything."""

    inject_owner_reference: bool = True
    """Whether objects that a run creates get an owner reference to the primary and are watched."""

    warm: bool = True
    """Whether plays are forked from a process that has imported Ansible, instead of starting a new one for each."""

    roles_path: str = ""
    """The value for ANSIBLE_ROLES_PATH; empty leaves the variable unchanged."""

    collections_path: str = ""
    """The value for ANSIBLE_COLLECTIONS_PATH; empty leaves the variable unchanged."""

    gathering: str = "explicit"
    """What ANSIBLE_GATHERING is set to if the user has not set it; empty leaves it. Facts cost half a second a run."""

    allow_broken_conditionals: bool = False
    """Whether ansible-core 2.19 to 2.22 accept conditions that aren't boolean, as 2.18 does, if the user has set
    nothing else. Other releases ignore the variable."""

    output_verbosity: int = 0
    """ANSIBLE_VERBOSITY: above 0 the output of tasks is logged instead of their results."""

    debug_logs: bool = False
    """Whether the whole output of a run is logged when it ends."""

    proxy_port: int = 0
    """The loopback port of the proxy for runs; 0 chooses a free port."""

    work_directory: Path | None = None
    """The directory for workspaces; None means a private directory that is removed when the operator stops."""

    record_memory_bytes: int = 16 << 20
    """What the last records of runs may take in memory; 0 keeps none."""

    record_directory: Path | None = None
    """The directory for the records of runs; None writes none."""

    record_directory_max_bytes: int = 256 << 20
    """What the records in that directory may take."""

    trace_unchanged: bool = True
    """Whether reconciles that did nothing are in the traces."""

    kubeconfig_directory: Path | None = None
    """The directory for the kubeconfig of a run while the run lasts; None means the directory for workspaces."""

    user_metrics_port: int = 0
    """The loopback port to which runs send metrics of their own; 0 chooses a free port."""

    metrics_bind_address: str = "0"
    """The address that serves metrics, for example ``:8443``; ``0`` disables it."""

    metrics_secure: bool = False
    """Whether metrics are served over HTTPS."""

    metrics_require_rbac: bool = False
    """Whether clients of the metrics endpoint are authenticated and authorized."""

    enable_http2: bool = False
    """No effect: metrics are served over HTTP/1.1."""

    health_probe_bind_address: str = "0"
    """The address that serves health probes, for example ``:6789``; ``0`` disables it."""

    ui_bind_address: str = "0"
    """The address that serves the dashboard, for example ``127.0.0.1:8090``; ``0`` disables it."""

    leader_elect: bool = False
    """Whether only the holder of a Lease reconciles."""

    leader_election_id: str = ""
    """The name of that Lease."""

    leader_election_namespace: str = ""
    """The namespace of that Lease; empty means the pod's namespace."""

    shards: int = 0
    """Into how many shards the objects are divided, which replicas share; 0 means that one replica does all."""

    leader_elect_resource_lock: str = ""
    """No effect: the lock is always a Lease."""

    lease_duration_seconds: float = 15.0
    """How long a Lease stays valid without being renewed."""

    renew_deadline_seconds: float = 10.0
    """How long a leader retries to renew its Lease before it stops."""

    @property
    def has_ui(self) -> bool:
        """Whether there is a dashboard."""
        return self.ui_bind_address not in ("", "0")


def ansible_operator_settings() -> Settings:
    """Return the defaults of ``ansible-operator``, which existing manifests, images and roles rely on."""
    return Settings(
        ready_conditions=False,
        backoff_min_seconds=0.005,
        backoff_max_seconds=1000.0,
        grace_seconds=30.0,
        output_in_events=True,
        gathering="",
        allow_broken_conditionals=True,
        proxy_port=8888,
        user_metrics_port=5050,
        metrics_bind_address=":8443",
        health_probe_bind_address=":6789",
        # The path is part of the interface: volumes are mounted there. It is created with mode 0700.
        work_directory=Path("/tmp/ansible-operator/runner"),  # noqa: S108
        kubeconfig_directory=Path(tempfile.gettempdir()),
    )


def resolve_max_concurrent_runs(settings: Settings, workers: Iterable[int]) -> int:
    """Return the maximum number of concurrent runs of all kinds, given the workers of each kind.

    If it is not set: two for each processor, because a run waits for the API server half of its time, but not fewer
    than the workers of any kind.
    """
    return settings.max_concurrent_runs or max([2 * available_cpus(), *workers])
