"""A playbook of another project, run directly and as the run of an operator, each on its own control plane.

Directly means ``ansible-playbook`` with a copy of the control plane's kubeconfig in ``~/.kube``. Through the operator,
a watch of the playbook's own kind runs it, and the first outcome in the object's conditions counts. The home directory
of the operator has the same ``~/.kube/config``, because targets of kubernetes.core read and move this file. All these
processes are isolated: they can write only to their own copies and home directories.
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import yaml
from bench.field_projects import with_own_flags
from bench.isolation import isolated
from bench.judges.verdicts import MAX_MESSAGE, Outcome, State
from bench.observer import SUCCESSFUL, outcome_of
from bench.operator_process import STARTED, clean_environment, running
from bench.process_tree import end
from bench.stage import Kubectl
from kubernetes import client
from kubernetes.config import new_client_from_config

from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.controlplane.cluster import free_port

GROUP: Final = "judges.rolecall.dev"
NAMESPACE: Final = "judges"
SDK_NAMESPACE: Final = "osdk-test"
"""Also written into some of the tests of the Operator SDK's projects."""
NODES: Final = 3
PROGRAMS: Final = Path(sys.executable).parent
_READY_SECONDS, _STOP_SECONDS, _POLL_SECONDS = 120.0, 30.0, 0.5
_METRICS_SECONDS: Final = 2.0
_TASK: Final = re.compile(r"^(?:(?:CLEANUP )?TASK|RUNNING HANDLER) \[(.+)\] \**$", re.MULTILINE)
_ERROR: Final = re.compile(r"^(?:fatal|failed): \[|^\[ERROR\]: ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Case:
    """One playbook of a judge, with variables for it. The inventory is for the direct run; an operator has its own."""

    name: str
    playbook: Path
    variables: Mapping[str, Any] = field(default_factory=dict)
    inventory: Path | None = None

    @property
    def kind(self) -> str:
        """The kind whose watch runs the playbook."""
        return re.sub(r"[^a-z0-9]", "", self.name.lower()).capitalize()


@dataclass(frozen=True, slots=True)
class Limit:
    """How long a case may take, and an event that ends it earlier."""

    seconds: float
    stopped: Event

    def wait_for(self, done: Callable[[], bool]) -> bool:
        """Return whether a condition became true in time."""
        deadline = time.monotonic() + self.seconds
        while not done():
            if time.monotonic() > deadline or self.stopped.wait(_POLL_SECONDS):
                return False
        return True


@dataclass(frozen=True, slots=True)
class Setting:
    """The setting that all cases of a column share.

    The directory with copies, to which cases may write; further environment variables; directories in front of PATH.
    """

    copies: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    programs: Sequence[Path] = ()

    def isolated(self, command: Sequence[str], directory: Path, plane: ControlPlane) -> list[str]:
        """Return the command of a process whose home directory, in `directory`, has the plane's kubeconfig."""
        (directory / "home/.kube").mkdir(parents=True)
        shutil.copy(plane.kubeconfig, directory / "home/.kube/config")
        readable = [plane.kubeconfig.parent, plane.program_directory, *self.programs]
        return isolated(command, directory, readable=readable, writable=[self.copies])

    def variables(self, home: Path, plane: ControlPlane) -> dict[str, str]:
        """Return the environment of a process with this home directory, without the caller's Ansible settings."""
        return {**clean_environment(home, *self.programs, PROGRAMS, plane.program_directory), **self.environment}


@contextmanager
def control_plane(name: str) -> Iterator[ControlPlane]:
    """Yield a new control plane, whose kubectl is used for all tests. Raises ControlPlaneError."""
    with (
        tempfile.TemporaryDirectory(prefix="judges-") as directory,
        ControlPlane(f"judges-{name}-{os.getpid()}", nodes=NODES, state_directory=Path(directory)) as plane,
    ):
        yield plane


def run_directly(case: Case, plane: ControlPlane, setting: Setting, limit: Limit, log: Path) -> Outcome:
    """Run a case with ``ansible-playbook``."""
    with tempfile.TemporaryDirectory(prefix="judges-home-") as directory:
        command = [str(PROGRAMS / "ansible-playbook"), str(case.playbook)]
        command += ["--extra-vars", json.dumps(dict(case.variables))] if case.variables else []
        command += ["--inventory", str(case.inventory)] if case.inventory else []
        started = time.monotonic()
        with log.open("wb") as output:
            process = subprocess.Popen(
                setting.isolated(command, Path(directory), plane),
                cwd=case.playbook.parent,
                env=setting.variables(Path(directory, "home"), plane),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            try:
                ended = limit.wait_for(lambda: process.poll() is not None)
            finally:
                end(process, _STOP_SECONDS)
    seconds = time.monotonic() - started
    if ended and process.returncode == 0:
        return Outcome(State.PASSED, seconds=seconds)
    text = log.read_text(errors="replace")
    task, message = last_failure(text)
    return _failure(seconds, task, message if ended else f"no end within {limit.seconds:g} s")


def last_failure(output: str) -> tuple[str, str]:
    """Return the last task with an error that isn't ignored in the output of ``ansible-playbook``, and its last error.

    An error before the first task has no task; without any error, return the end of the output.
    """
    before, *rest = _TASK.split(output.partition("\nPLAY RECAP ")[0])
    for task, text in reversed([("", before), *zip(rest[::2], rest[1::2], strict=True)]):
        counting = text.rpartition("\n...ignoring")[2]
        if errors := list(_ERROR.finditer(counting)):
            return task, counting[errors[-1].start() :]
    return "", output[-MAX_MESSAGE:]


class Operator:
    """``rolecall run`` with a watch for each case, on a control plane."""

    def __init__(self, plane: ControlPlane, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self._process, self._log = process, log
        self._api = client.CustomObjectsApi(new_client_from_config(str(plane.kubeconfig)))

    def run(self, case: Case, limit: Limit) -> Outcome:
        """Create the object of a case, and return the first outcome in its conditions."""
        place = (GROUP, "v1", NAMESPACE, case.kind.lower())
        started = time.monotonic()
        offset = self._log.stat().st_size
        outcome = ""

        def has_outcome() -> bool:
            nonlocal outcome
            outcome = outcome_of(self._api.get_namespaced_custom_object(*place, "case"))
            return self._process.poll() is not None or bool(outcome)

        self._api.create_namespaced_custom_object(
            *place, {"apiVersion": f"{GROUP}/v1", "kind": case.kind, "metadata": {"name": "case"}}
        )
        try:
            ended = limit.wait_for(has_outcome)
        finally:
            self._api.delete_namespaced_custom_object(*place, "case")
        if outcome == SUCCESSFUL:
            return Outcome(State.PASSED, seconds=time.monotonic() - started)
        exited = f"the operator exited with {self._process.returncode}"
        message = outcome.removeprefix("Failed: ") or (exited if ended else f"no outcome within {limit.seconds:g} s")
        with self._log.open("rb") as log:
            log.seek(offset)
            lines = log.read().decode(errors="replace").splitlines()
        return _failure(time.monotonic() - started, failed_task(lines, message), message)


def _failure(seconds: float, task: str, message: str) -> Outcome:
    return Outcome(State.FAILED, seconds, task, message)


def failed_task(lines: Sequence[str], message: str) -> str:
    """Return the last failed task in an operator's log whose reason is in the condition's message, else the last one.

    Failures that the role ignores don't count; later ones may be those of a cleanup.
    """
    found = [json.loads(line) for line in lines if '"runner_on_failed"' in line]
    entries = [each for each in found if each.get("level") == "error"]
    reasons = [(str(each.get("task", "")), str(each.get("reason", ""))) for each in entries]
    matching = [task for task, reason in reasons if reason and reason in message]
    return (matching or [task for task, _ in reasons] or [""])[-1]


def define(plane: ControlPlane, cases: Sequence[Case]) -> None:
    """Create the kinds of all cases, and the namespace for their objects."""
    kubectl = Kubectl(plane)
    kubectl.run("create", "namespace", NAMESPACE)
    kubectl.apply(*map(_definition, cases))
    kubectl.wait_for_definitions()


@contextmanager
def operator(
    plane: ControlPlane,
    cases: Sequence[Case],
    setting: Setting,
    log: Path,
    arguments: Sequence[str],
) -> Iterator[Operator]:
    """Start an operator for the cases, whose kinds are defined; stop it, and what its runs have left, at the end."""
    with tempfile.TemporaryDirectory(prefix="judges-operator-") as directory:
        home = Path(directory, "home")
        command = [sys.executable, "-m", "rolecall", "run", *arguments]
        command += ["--zap-encoder=json", "--backoff-min=1h", "--backoff-max=1h", "--reconcile-period=0s"]
        command = setting.isolated(command, Path(directory), plane)
        (home / "watches.yaml").write_text(yaml.safe_dump([_watch(case) for case in cases]))
        environment = setting.variables(home, plane) | {"KUBECONFIG": str(plane.kubeconfig)}
        with running(command, home, environment, log) as started:
            asyncio.run(started.logged(STARTED))
            yield Operator(plane, started.process, log)


@contextmanager
def project_operator(
    plane: ControlPlane, project: Path, setting: Setting, log: Path, command: Sequence[str]
) -> Iterator[None]:
    """Start an ansible-operator in a project of the Operator SDK, as its image does.

    Its tests read metrics with exec in the manager's pod. A simulated pod takes its place, whose response to a command
    is kept equal to the operator's metrics.
    """
    kubectl = Kubectl(plane)
    kubectl.run("create", "namespace", SDK_NAMESPACE)
    kubectl.run("apply", "--server-side", f"--filename={project / 'config/crd/bases'}")
    kubectl.wait_for_definitions()
    kubectl.apply(_MANAGER)
    metrics = f"127.0.0.1:{free_port()}"
    command = with_own_flags(command, metrics)
    with tempfile.TemporaryDirectory(prefix="judges-operator-") as directory:
        command = setting.isolated(command, Path(directory), plane)
        environment = setting.variables(Path(directory, "home"), plane) | {"KUBECONFIG": str(plane.kubeconfig)}
        with running(command, project, environment, log) as started:
            asyncio.run(started.logged(STARTED))
            stop = Event()
            copier = Thread(target=_copy_metrics, args=(metrics, kubectl, stop))
            copier.start()
            try:
                yield
            finally:
                stop.set()
                copier.join()


_MANAGER: Final = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "manager", "namespace": SDK_NAMESPACE, "labels": {"control-plane": "controller-manager"}},
    "spec": {"containers": [{"name": "manager", "image": "manager"}]},
}


def _copy_metrics(address: str, kubectl: Kubectl, stop: Event) -> None:
    """Make the operator's metrics the response to commands in the manager's pod, until the end."""
    before = ""
    while not stop.wait(_METRICS_SECONDS):
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=_READY_SECONDS) as response:
            text = response.read().decode()
        if text == before:
            continue
        before = text
        data = {"responses.yaml": yaml.safe_dump([{"pod": "manager", "stdout": text}])}
        metadata = {"name": "metrics", "namespace": SDK_NAMESPACE, "labels": {"rolecall.dev/pod-responses": "true"}}
        kubectl.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


def _watch(case: Case) -> dict[str, Any]:
    """Return the watch of a case, which runs once: changes of dependents start no further run."""
    return {
        "group": GROUP,
        "version": "v1",
        "kind": case.kind,
        "playbook": str(case.playbook),
        "watchDependentResources": False,
        "vars": dict(case.variables),
    }


def _definition(case: Case) -> dict[str, Any]:
    plural = case.kind.lower()
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": case.kind, "plural": plural},
            "versions": [version],
        },
    }
