"""The settings of the operator: one frozen value for everything that flags and environment say.

Each field says what it is, its unit and why its default is what it is. The program has two names and for each a set of
defaults: under ``rolecall run`` nothing is fixed that another process could have taken, under ``ansible-operator``
ports, paths and times are those of the Go runner.
"""

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rolecall.config.cpu_quota import available_processors

LOG_EVENTS = ("nothing", "tasks", "everything")
"""What may be logged of a run."""


def default_workers() -> int:
    """Return how many runs of one kind may go on at once: the processors that this process has, four at most.

    A play is a heavy process, so a node with 128 CPUs must not start 128 of them for each kind.
    """
    return min(4, available_processors())


@dataclass(frozen=True, slots=True)
class Settings:
    """What the operator was told."""

    watches_file: Path = Path("watches.yaml")
    """Where the list of kinds lies; relative to the working directory."""

    kubeconfig: str | None = None
    """A kubeconfig file; None looks at $KUBECONFIG, the pod's service account and ~/.kube/config."""

    namespaces: tuple[str, ...] = ()
    """The namespaces to watch; none of them means all."""

    reconcile_period_seconds: float = 36000.0
    """How long after a successful run an object is reconciled anyway; 0 for never. Ten hours, as in the Go runner."""

    workers: int = field(default_factory=default_workers)
    """How many objects of one kind are reconciled at once."""

    max_concurrent_runs: int = 0
    """How many objects of all kinds together are reconciled at once; 0 chooses, see ``limit_of_runs``."""

    run_timeout_seconds: float = 0.0
    """How long a run may take where its watch says nothing else; 0 for as long as it wants."""

    unreachable_ok: bool = False
    """Whether a host that cannot be reached, or a play without hosts, is no failure, as in the Go runner."""

    mark_unsafe: bool = False
    """Whether texts of objects are data that Ansible never evaluates, where the watch says nothing else."""

    backoff_min_seconds: float = 1.0
    """The delay after a first failure; it doubles with each further one."""

    backoff_max_seconds: float = 300.0
    """The longest delay after failures."""

    grace_seconds: float = 25.0
    """How long a stop may take; running plays are ended within it. Below the 30 s that Kubernetes gives a pod."""

    verbosity: int = 2
    """How many ``-v`` Ansible gets."""

    ansible_args: str = ""
    """Further words for ansible-playbook's command line."""

    log_events: str = "tasks"
    """Which events of a run are logged: nothing, tasks or everything."""

    inject_owner_reference: bool = True
    """Whether objects that a run creates get an owner reference to the primary, and are watched."""

    warm: bool = True
    """Whether plays are forked from a process that has imported Ansible, instead of starting a new one for each."""

    roles_path: str = ""
    """What ANSIBLE_ROLES_PATH is set to; empty leaves it."""

    collections_path: str = ""
    """What ANSIBLE_COLLECTIONS_PATH is set to; empty leaves it."""

    gathering: str = "explicit"
    """What ANSIBLE_GATHERING is set to if the user has not set it; empty leaves it. Facts cost half a second a run."""

    output_verbosity: int = 0
    """ANSIBLE_VERBOSITY: above 0 what tasks print is logged, instead of what became of them."""

    debug_logs: bool = False
    """Whether everything that a run has printed is logged at its end."""

    cache_reads: bool = False
    """Whether reads of a run may be answered from the operator's memory, which holds every kind that is read."""

    proxy_port: int = 0
    """The port of the API endpoint for runs, on loopback; 0 takes a free one."""

    work_directory: Path | None = None
    """Where workspaces lie; None makes a private directory that goes when the operator stops."""

    kubeconfig_directory: Path | None = None
    """Where a run's kubeconfig lies as long as the run lasts; None is where workspaces lie."""

    user_metrics_port: int = 0
    """The port on loopback to which runs send metrics of their own; 0 takes a free one."""

    metrics_bind_address: str = "0"
    """Where metrics are served, for example ``:8443``; ``0`` for nowhere."""

    metrics_secure: bool = False
    """Whether metrics are served over HTTPS."""

    metrics_require_rbac: bool = False
    """Whether a client must show a token whose owner may read metrics."""

    enable_http2: bool = False
    """Has no effect: metrics are served over HTTP/1.1."""

    health_probe_bind_address: str = "0"
    """Where probes are answered, for example ``:6789``; ``0`` for nowhere."""

    leader_elect: bool = False
    """Whether only the holder of a Lease reconciles."""

    leader_election_id: str = ""
    """The name of that Lease."""

    leader_election_namespace: str = ""
    """The namespace of that Lease; empty means the pod's own."""

    leader_elect_resource_lock: str = ""
    """Has no effect: the lock is always a Lease."""

    lease_duration_seconds: float = 15.0
    """How long a Lease that is not renewed still counts."""

    renew_deadline_seconds: float = 10.0
    """How long a leader tries to renew its Lease before it stops."""


def ansible_operator_settings() -> Settings:
    """Return the defaults under the name ``ansible-operator``: what manifests, images and roles of others count on."""
    return Settings(
        backoff_min_seconds=0.005,
        backoff_max_seconds=1000.0,
        grace_seconds=30.0,
        gathering="",
        proxy_port=8888,
        user_metrics_port=5050,
        metrics_bind_address=":8443",
        health_probe_bind_address=":6789",
        # The path is a part of the interface: volumes are mounted there. It is made with mode 0700.
        work_directory=Path("/tmp/ansible-operator/runner"),  # noqa: S108
        kubeconfig_directory=Path(tempfile.gettempdir()),
    )


def limit_of_runs(settings: Settings, workers: Iterable[int]) -> int:
    """Return how many runs of all kinds may go on at once, given the workers of each kind.

    Unless somebody said it: two for each processor, because a run waits for the API server half of its time, and never
    fewer than one kind alone was given.
    """
    return settings.max_concurrent_runs or max([2 * available_processors(), *workers])


def private_directory() -> Path:
    """Make a directory of our own (mode 0700) for workspaces."""
    return Path(tempfile.mkdtemp(prefix="rolecall-"))
