"""Commands that a page offers to copy. They work where the page is read: on a machine with ``kubectl``.

The dashboard itself is read-only, so that anyone who can read it can't change anything.
"""

import shlex
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.config.settings import Settings
from rolecall.runner.dashboard.views import CommandView
from rolecall.runner.election.elector import NAMESPACE_FILE
from rolecall.runner.reconcile.context import PAUSED_ANNOTATION, RECONCILE_REQUESTED_AT_ANNOTATION


@dataclass(frozen=True, slots=True)
class Place:
    """Where an operator runs: the namespace and the name of its pod, and the port of its dashboard.

    ``namespace`` is empty outside a cluster. ``records`` is the directory of its records, None if it writes none.
    """

    namespace: str = ""
    host: str = ""
    port: str = ""
    records: Path | None = None

    @classmethod
    def here(cls, settings: Settings, namespace_file: Path = NAMESPACE_FILE) -> Self:
        """Return the place of this process."""
        try:
            namespace = namespace_file.read_text(encoding="utf-8").strip()
        except OSError:
            namespace = ""
        port = settings.ui_bind_address.rpartition(":")[2]
        return cls(namespace, socket.gethostname(), port, settings.record_directory)

    def kubectl(self, verb: str, *words: str) -> str:
        """Return a command about a pod of the operator."""
        return shlex.join(["kubectl", verb, "--namespace", self.namespace, *words])


def host_of(identity: str) -> str:
    """Return the host in the identity of a replica, which is the name of its pod in a cluster."""
    return identity.rpartition("_")[0]


def port_forward(place: Place, pod: str) -> str:
    """Return the command that forwards the port of a pod's dashboard; empty outside a cluster."""
    return place.kubectl("port-forward", f"pod/{pod}", place.port) if place.namespace and pod else ""


def commands_for(gvk: GVK, key: ObjectKey, *, is_paused: bool) -> Iterator[CommandView]:
    """Yield the commands that change when an object runs."""
    kind = f"{gvk.kind}.{gvk.group}".rstrip(".").lower()
    scope = ["--namespace", key.namespace] if key.namespace else []
    annotate = shlex.join(["kubectl", "annotate", "--overwrite", *scope, f"{kind}/{key.name}"])
    yield CommandView("Run it now", f'{annotate} {RECONCILE_REQUESTED_AT_ANNOTATION}="$(date)"')
    if is_paused:
        yield CommandView("Continue", f"{annotate} {PAUSED_ANNOTATION}-")
    else:
        yield CommandView("Pause it", f"{annotate} {PAUSED_ANNOTATION}=true")


def commands_for_run(place: Place, pod: str, key: ObjectKey, run: str) -> Iterator[CommandView]:
    """Yield the commands that explain a run of the replica in ``pod``; ``run`` is its ID, or empty."""
    if place.namespace and pod:
        log = place.kubectl("logs", f"pod/{pod}")
        yield CommandView("Log of the leader", f"{log} | grep -w -e {shlex.quote(key.name)}")
    if not run or place.records is None:
        return
    pattern = f"{shlex.quote(str(place.records))}/*-{run}.*jsonl"
    if place.namespace and pod:
        copy = place.kubectl("exec", f"pod/{pod}", "--", "sh", "-c", f"cat {pattern}")
        yield CommandView("Copy its record", f"{copy} >record.jsonl")
        pattern = "record.jsonl"
    yield CommandView("Show its record", f"rolecall record show {pattern}")
    yield CommandView("Replay it, in the directory with watches.yaml", f"rolecall replay {pattern}")
