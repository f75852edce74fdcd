"""The settings of ``rolecall run``: one frozen value for everything that flags and environment say.

Each field says what it is, its unit and why its default is what it is. Neighbour: the command line fills it in.
"""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


def default_workers() -> int:
    """Return how many runs of one kind may go on at once: the CPUs that this process may use, four at most.

    A play is a heavy process, so a node with 128 CPUs must not start 128 of them for each kind.
    """
    return min(4, len(os.sched_getaffinity(0)))


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

    back_off_min_seconds: float = 1.0
    """The delay after a first failure; it doubles with each further one."""

    back_off_max_seconds: float = 300.0
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

    proxy_port: int = 0
    """The port of the API endpoint for runs, on loopback; 0 takes a free one."""

    work_directory: Path | None = None
    """Where workspaces lie; None makes a private directory that goes when the operator stops."""


def namespaces_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the namespaces of WATCH_NAMESPACE: a list with commas; unset or blank means all."""
    return tuple(name for part in environment.get("WATCH_NAMESPACE", "").split(",") if (name := part.strip()))


def private_directory() -> Path:
    """Make a directory of our own (mode 0700) for workspaces."""
    return Path(tempfile.mkdtemp(prefix="rolecall-"))
