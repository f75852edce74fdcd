"""Runs the demo: control plane, definitions, operator, samples, and a table until every object is done.

The demo succeeds only if every object reaches its goal in ``demo.yaml``. It leaves nothing running, unless you keep it:
then it prints commands to try. They name real files, so you can copy them. On a terminal the table is live; otherwise
it is one line for each change.
"""

import asyncio
import copy
import os
import shlex
import sys
import webbrowser
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import yaml
from rich.console import Console

from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.yaml_reader import describe_error
from rolecall.runner.record.files import SUFFIX
from rolecall.system.blocking_work import run_in_thread
from rolecall.system.files import write_private
from rolecall.workbench.controlplane.cluster import ControlPlane
from rolecall.workbench.controlplane.errors import ControlPlaneError
from rolecall.workbench.project.demo_inputs import (
    Applier,
    Goal,
    OperatorProcess,
    read_demo_file,
    read_manifests,
    unwatched_samples,
    watched_kinds,
)
from rolecall.workbench.project.demo_progress import NotReadyError, Progress

DEFAULT_NAME = "demo"
RECORDS = "records"
"""The directory for records that the remedy names."""


def next_steps(
    plane: ControlPlane, operator: OperatorProcess, records: Path, kinds: Iterable[GVK], edited_sample: Path | None
) -> str:
    """Return suggestions what to try with a kept demo of these kinds, as text with commands."""
    resources = ",".join(f"{gvk.kind}.{gvk.group}".lower().rstrip(".") for gvk in kinds)
    plan = f"\n  rolecall plan -f {shlex.quote(str(edited_sample))}" if edited_sample else ""
    newest = max(records.glob(f"*{SUFFIX}"), default=None)
    show = f"\n  rolecall record show {shlex.quote(str(newest))}" if newest else ""
    programs = shlex.quote(f"{plane.program_directory}:{Path(sys.executable).parent}")
    look = f"\nLook at it: {operator.runs.page}" if operator.runs.page else ""
    return f"""
Everything is still running.{look}
To use it:
  export KUBECONFIG={shlex.quote(str(plane.kubeconfig))}
  export PATH={programs}:$PATH        # kubectl and rolecall
  kubectl get {resources} --all-namespaces
  tail -f {shlex.quote(str(operator.log))}
Try what an edited sample would change, what a run did, and which permissions the demo needed:{plan}{show}
  rolecall rbac --from {shlex.quote(str(records))}
To stop it:
  kill {operator.pid}; rolecall cluster stop --name {plane.name}"""


def open_page(page: str, environment: Mapping[str, str], *, is_terminal: bool) -> bool:
    """Open the dashboard on a desktop; return whether a browser was found."""
    has_desktop = bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))
    return bool(page) and is_terminal and has_desktop and webbrowser.open(page)


def write_edited_sample(samples: Iterable[RawObject], kinds: Iterable[GVK], path: Path) -> Path | None:
    """Write a sample with a number in its spec raised by one, and return the file; None if no sample has one."""
    wanted = set(kinds)
    for sample in samples:
        edited = copy.deepcopy(sample)
        if GVK.of_object(sample) in wanted and _raise_number(edited.get("spec")):
            write_private(path, yaml.safe_dump(edited, sort_keys=False))
            return path
    return None


def _raise_number(value: Any) -> bool:
    """Raise the first number in a value by one; return whether there is one."""
    if not isinstance(value, dict):
        return False
    for name, inner in value.items():
        if isinstance(inner, int) and not isinstance(inner, bool):
            value[name] = inner + 1
            return True
        if _raise_number(inner):
            return True
    return False


@dataclass(frozen=True, slots=True)
class Options:
    """The options of ``rolecall demo``."""

    project: Path
    name: str = DEFAULT_NAME
    keep: bool = False
    timeout_seconds: float = 300.0
    records: Path | None = None
    """The directory for the records of the runs; the operator then has all permissions."""

    state_directory: Path | None = None
    """The directory for the state of all control planes; None means the default."""


def run_demo(options: Options, console: Console) -> int:
    """Run the demo and return the exit code: 0 only if every object has reached its goal.

    Raise ValueError or OSError if the project lacks a file that the demo needs, or the records can't be written, and
    ControlPlaneError if the control plane or the operator of this name is already running: a name has one owner, and a
    demo stops only what it has started.
    """
    demo_file = read_demo_file(options.project / "demo.yaml")
    samples, definitions = _objects(demo_file.samples), _objects(demo_file.definitions)
    account = _account(definitions)
    goals = _watched_goals(options.project, demo_file.goals, samples, definitions, console)
    if options.records:
        options.records.mkdir(mode=0o700, parents=True, exist_ok=True)
    plane = ControlPlane(options.name, state_directory=options.state_directory, report=console.print)
    operator: OperatorProcess | None = None
    succeeded = False
    records = options.records or plane.layout.root / "records"
    kept_operators = _operators_of(plane.layout.root)
    if kept_operators or not plane.start():
        ends = [f"kill {pid}; " for pid in kept_operators] + [f"rolecall cluster stop --name {options.name}"]
        raise ControlPlaneError(
            f"control plane {options.name!r} is in use, for example by a demo that was kept; choose another --name, "
            f"or stop everything that uses it: {''.join(ends)}"
        )
    try:
        console.print(f"The control plane is ready: KUBECONFIG={plane.kubeconfig}")
        applier = Applier(plane.kubeconfig)
        console.print(f"Applied {len(apply_in_thread(applier, definitions))} definitions")
        kubeconfig, role = plane.kubeconfig, "administrator, so that the records have every request"
        if not options.records:
            kubeconfig = plane.service_account_kubeconfig(account.namespace, account.name)
            role = f"service account {account}"
        page = ("--ui-bind-address", "127.0.0.1:0") if options.keep else ()
        arguments = ("--record-dir", str(records), *page) if options.keep or options.records else ()
        operator = OperatorProcess(options.project, kubeconfig, plane.layout.root / "operator.log", arguments)
        operator.start()
        console.print(f"Started the operator as {role} (process {operator.pid})")
        applied = apply_in_thread(applier, samples)
        console.print(f"Applied {len(applied)} sample objects")
        namespaces = tuple(sorted({key.namespace for key in applied if key.namespace}))
        progress = Progress(goals, namespaces, operator, options.timeout_seconds, bool(options.records))
        succeeded = _succeeds(progress, plane.kubeconfig, options, console)
    finally:
        if not (options.keep and operator and not operator.has_ended):
            if operator:
                operator.stop()
            plane.stop()
    if succeeded and options.records:
        console.print(f"The records of the runs are in {options.records}. Add the permissions that they needed:")
        console.print(_rbac_command(options), markup=False, highlight=False, soft_wrap=True)
    if options.keep and not operator.has_ended:
        operator.read_log()
        kinds = tuple(goal.gvk for goal in goals)
        edited = write_edited_sample(samples, kinds, plane.layout.root / "edited-sample.yaml")
        console.print(next_steps(plane, operator, records, kinds, edited), soft_wrap=True, highlight=False)
        open_page(operator.runs.page, os.environ, is_terminal=console.is_terminal)
    return 0 if succeeded else 1


def _succeeds(progress: Progress, kubeconfig: Path, options: Options, console: Console) -> bool:
    """Show the progress, and return whether every object has reached its goal; print the reason if it hasn't."""
    try:
        took = asyncio.run(progress.until_done(kubeconfig, console))
    except NotReadyError as error:
        console.print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
        if error.is_denied and not options.records:
            console.print(remedy(options), markup=False, highlight=False, soft_wrap=True)
        return False
    console.print(f"Every sample has reached its end state after {took}")
    return True


def _objects(paths: Iterable[Path]) -> list[RawObject]:
    """Return the objects of manifests. Raise ValueError for a document that isn't one."""
    found = []
    for path in paths:
        try:
            objects = list(read_manifests(path))
        except yaml.YAMLError as error:
            raise ValueError(f"{path}: {describe_error(error)[0]}") from error
        for obj in objects:
            is_object = isinstance(obj, dict) and all(isinstance(obj.get(key), str) for key in ("apiVersion", "kind"))
            if not (is_object and metadata_of(obj).get("name")):
                raise ValueError(
                    f"{path}: expected objects with apiVersion, kind, and metadata.name, found {obj!r:.80}"
                )
        found += objects
    return found


def _account(definitions: Iterable[RawObject]) -> ObjectKey:
    """Return the first ServiceAccount. Raise ValueError if there is none."""
    for obj in definitions:
        if obj.get("kind") == "ServiceAccount":
            return ObjectKey.of_object(obj)
    raise ValueError("demo.yaml: the definitions contain no ServiceAccount; the operator runs as the first one")


def _watched_goals(
    project: Path, goals: tuple[Goal, ...], samples: list[RawObject], definitions: list[RawObject], console: Console
) -> tuple[Goal, ...]:
    """Return the goals of watched kinds, and print the samples of others. Raise ValueError if none is left."""
    watched = watched_kinds(project)
    if watched is None:
        return goals
    kept = tuple(goal for goal in goals if (goal.gvk.group, goal.gvk.kind) in watched)
    unwatched = unwatched_samples(samples, definitions, watched)
    unwatched |= {goal.gvk: unwatched.get(goal.gvk, []) for goal in goals if goal not in kept}
    for gvk, keys in unwatched.items():
        what = f"{gvk.kind} {', '.join(map(str, keys))}" if keys else f"any {gvk.kind}"
        text = f"Not waiting for {what}: the kind {gvk.kind} of {gvk.api_version} isn't in watches.yaml"
        console.print(text, style="yellow", markup=False, soft_wrap=True)
    if goals and not kept:
        raise ValueError(f"no kind of the goals in {project / 'demo.yaml'} is in watches.yaml: add one")
    return kept


def remedy(options: Options) -> str:
    """Return the commands that add missing permissions, as text."""
    name = f" --name {shlex.quote(options.name)}" if options.name != DEFAULT_NAME else ""
    enter = "" if options.project == Path.cwd() else f"\n  cd {shlex.quote(str(options.project))}"
    return f"""
The operator's service account lacks a permission. Record the runs with all permissions, add those that they needed to
the project's roles, and try again:{enter}
  rolecall demo{name} --record-dir {RECORDS}
{_rbac_command(replace(options, records=Path(RECORDS), project=Path.cwd()))}
  rolecall demo{name}"""


def _rbac_command(options: Options) -> str:
    enter = "" if options.project == Path.cwd() else f"  cd {shlex.quote(str(options.project))}\n"
    return f"{enter}  rolecall rbac --from {shlex.quote(str(options.records))} --write"


def apply_in_thread(applier: Applier, objects: Iterable[RawObject]) -> list[ObjectKey]:
    """Apply objects as ``Applier.apply`` does; a signal raises KeyboardInterrupt only afterwards.

    An exception in the middle of a request can leave a lock of the client's connections held, which the client then
    waits for while it handles the exception.
    """
    return asyncio.run(run_in_thread(lambda: applier.apply(objects)))


def _operators_of(root: Path) -> list[int]:
    """Return the operators that use the control plane with its state in this directory, as that of a kept demo does."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # it has exited, or belongs to another user
            # The processes that an operator forks have its command line, but not a session of their own.
            is_operator = "run" in process.cmdline() and os.getsid(process.pid) == process.pid
            if is_operator and Path(process.environ().get("KUBECONFIG", "")).is_relative_to(root):
                found.append(process.pid)
    return found
