"""The settings of the operator: one frozen value for all flags and environment variables.

The defaults are those of ``rolecall run``, which uses no fixed port or path that another process could be using.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from rolecall.kube.references import GVK
from rolecall.system.control_groups import available_cpus
from rolecall.system.logs import get_logger

HIGHEST_VERBOSITY = 7
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
logger = get_logger("cmd")


class LogEvents(StrEnum):
    """How much of a run is logged; with OUTPUT it is what each task prints instead of its result.

    TASKS are the starts of tasks and their failures, RESULTS their ends instead of their starts.
    """

    NOTHING = "nothing"
    TASKS = "tasks"
    RESULTS = "results"
    OUTPUT = "output"
    EVERYTHING = "everything"


def default_workers() -> int:
    """Return the default number of concurrent runs for one kind: the available CPUs, at most four.

    A run is a heavy process: a node with 128 CPUs shouldn't start 128 of them for each kind.
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
    """The delay until an object is reconciled again after a success; 0 means never. Ten hours, as in the Go runner."""

    workers: int = field(default_factory=default_workers)
    """The maximum number of concurrent reconciles of one kind."""

    max_concurrent_runs: int = 0
    """The maximum number of concurrent reconciles of all kinds; for 0 see ``resolve_max_concurrent_runs``."""

    run_timeout_seconds: float = 0.0
    """The time limit of a run if its watch has no ``timeout``; 0 means no limit."""

    max_object_values: int = 20_000
    """The maximum number of values in an object; 0 means no limit. A run needs 4.5 KiB of memory for each."""

    max_artifacts_bytes: int = 1 << 30
    """The maximum disk space for the artifacts of all runs; 0 means no limit."""

    output_in_events: bool = False
    """Whether artifacts contain Ansible's output in each event too, as in the Go runner, not only in ``stdout``."""

    run_memory_limit_bytes: int | None = None
    """The maximum memory of each process of a run; 0 means no limit, for None see ``resolve_memory_limit``."""

    unreachable_ok: bool = False
    """Whether an unreachable host, or a play without hosts, is not a failure, as in the Go runner."""

    mark_unsafe: bool = True
    """Whether strings from objects are data that Ansible never evaluates, if the watch has no ``markUnsafe``."""

    drops_unknown_options: bool = True
    """Whether nested fields that the role's argument specs don't declare are left out, instead of failing the run."""

    ready_conditions: bool = True
    """Whether a status has ``Ready``, ``Reconciling`` and ``Stalled``, if the watch has no ``readyConditions``."""

    moves_changed_conditions: bool = False
    """Whether a changed condition moves to the end of the list, as in the Go runner."""

    follows_status_fields: bool = False
    """Whether a dependent whose status gets or loses a field starts a run, as in the Go runner."""

    ignores_zero_requeue: bool = False
    """Whether a role that requests the next run after 0s gets none, as in the Go runner; else, in 1 s."""

    backoff_min_seconds: float = 1.0
    """The delay after the first failure; it doubles with each further failure."""

    backoff_max_seconds: float = 300.0
    """The maximum delay after failures."""

    grace_seconds: float = 25.0
    """The time limit for a stop: runs and the operator. The default is below the 30 s that Kubernetes gives a pod."""

    verbosity: int = 2
    """The number of ``-v`` options for Ansible."""

    ansible_args: str = ""
    """Additional arguments for ansible-playbook."""

    log_events: str = "tasks"
    """The logged events of a run: a ``LogEvents``, except OUTPUT, which a verbosity turns TASKS into."""

    inject_owner_reference: bool = True
    """Whether objects created by a run get an owner reference to the primary and are watched."""

    warm: bool = True
    """Whether runs are forked from a process that has imported Ansible, instead of starting a new process."""

    warm_idle_seconds: float = 0.0
    """The time without a run after which that process ends, until the next run; 0 means never."""

    roles_path: str = ""
    """The value for ANSIBLE_ROLES_PATH; empty leaves the variable unchanged."""

    collections_path: str = ""
    """The value for ANSIBLE_COLLECTIONS_PATH; empty leaves the variable unchanged."""

    gathering: str = "explicit"
    """The value for ANSIBLE_GATHERING unless the user has set it; empty leaves it. Facts take half a second per run."""

    allow_broken_conditionals: bool = False
    """Whether ansible-core 2.19 to 2.22 accept conditions that aren't boolean, as 2.18 does, unless the user has set
    this. Other releases ignore the variable."""

    output_verbosity: int = 0
    """ANSIBLE_VERBOSITY: above 0 the output of tasks is logged instead of their results."""

    debug_logs: bool = False
    """Whether the whole output of a run is logged when it ends."""

    proxy_port: int = 0
    """The loopback port of the proxy for runs; 0 chooses a free port."""

    work_directory: Path | None = None
    """The directory for workspaces; None means a private directory that is removed when the operator stops."""

    record_memory_bytes: int = 16 << 20
    """The maximum memory for the last records of runs, with a dashboard; 0 keeps none."""

    record_directory: Path | None = None
    """The directory for the records of runs; None writes none."""

    record_directory_max_bytes: int = 256 << 20
    """The maximum disk space for the records in that directory."""

    trace_unchanged: bool = True
    """Whether traces include reconciles without changes."""

    kubeconfig_directory: Path | None = None
    """The directory for the kubeconfig of a run while the run lasts; None means the directory for workspaces."""

    user_metrics_port: int = 0
    """The loopback port for the metrics of runs; 0 chooses a free port."""

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
    """The number of shards of objects that replicas share; 0 means that one replica reconciles all."""

    leader_elect_resource_lock: str = ""
    """No effect: the lock is always a Lease."""

    lease_duration_seconds: float = 15.0
    """The validity of a Lease without a renewal."""

    renew_deadline_seconds: float = 10.0
    """The time for which a leader retries to renew its Lease before it stops."""

    @property
    def has_ui(self) -> bool:
        """Whether there is a dashboard."""
        return self.ui_bind_address not in ("", "0")


def resolve_max_concurrent_runs(settings: Settings, workers: Iterable[int]) -> int:
    """Return the maximum number of concurrent runs of all kinds, given the workers of each kind.

    The default is two for each CPU, because a run waits for the API server half of its time, but at least the workers
    of any kind.
    """
    return settings.max_concurrent_runs or max([2 * available_cpus(), *workers])


def max_concurrent_reconciles(gvk: GVK, environment: Mapping[str, str]) -> int | None:
    """Return the maximum number of concurrent reconciles of a kind, None if the flag decides.

    WORKER_<KIND>_<GROUP> is the old name of MAX_CONCURRENT_RECONCILES_<KIND>_<GROUP> and is used only if that is unset.
    """
    name, old_name = (_per_kind(prefix, gvk) for prefix in ("MAX_CONCURRENT_RECONCILES", "WORKER"))
    if name not in environment and old_name in environment:
        logger.warning("Deprecated environment variable", envVar=old_name, replacedBy=name)
        name = old_name
    return _number(name, environment, at_least=1)


def ansible_verbosity(gvk: GVK, environment: Mapping[str, str]) -> int | None:
    """Return the number of -v options in ANSIBLE_VERBOSITY_<KIND>_<GROUP>, None if the flag decides."""
    return _number(_per_kind("ANSIBLE_VERBOSITY", gvk), environment, at_least=0, at_most=HIGHEST_VERBOSITY)


def parse_integer(text: str) -> int | None:
    """Return the text as an integer, None if it is not one."""
    return int(text) if _INTEGER.fullmatch(text) else None


def _per_kind(prefix: str, gvk: GVK) -> str:
    return f"{prefix}_{gvk.kind}_{gvk.group}".upper().replace(".", "_")


def _number(name: str, environment: Mapping[str, str], at_least: int, at_most: int | None = None) -> int | None:
    text = environment.get(name)
    if text is None:
        return None
    number = parse_integer(text)
    if number is None or number < at_least or (at_most is not None and number > at_most):
        upper = "" if at_most is None else f" and at most {at_most}"
        expected = f"an integer, at least {at_least}{upper}"
        logger.info("Invalid environment variable; using the flag's value", envVar=name, value=text, expected=expected)
        return None
    return number
