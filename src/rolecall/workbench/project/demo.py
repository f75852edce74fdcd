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
import time
import webbrowser
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from rolecall.kube.client import Client
from rolecall.kube.metadata import metadata_of, status_of
from rolecall.kube.quantities import format_duration
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.record.files import SUFFIX
from rolecall.system.blocking_work import run_in_thread
from rolecall.system.files import write_private
from rolecall.workbench.controlplane.cluster import ControlPlane
from rolecall.workbench.controlplane.errors import ControlPlaneError
from rolecall.workbench.project.demo_inputs import Applier, Goal, OperatorProcess, read_demo_file, read_manifests

_DONE, _WAITING = "done", "…"
LOOK_EVERY_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Row:
    """The columns of one object."""

    kind: str
    name: str
    condition: str
    values: str
    took: str
    is_done: bool


@contextmanager
def status_table(console: Console) -> Iterator[Callable[[list[Row]], None]]:
    """Yield a function that shows the current rows: as a live table on a terminal, otherwise as a line per change.

    The last table stays on a terminal; otherwise it is printed at the end.
    """
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda rows: live.update(_table(rows), refresh=True)
        return
    shown: dict[tuple[str, str], Row] = {}

    def show(rows: list[Row]) -> None:
        for row in rows:
            if shown.get((row.kind, row.name)) != row:
                shown[row.kind, row.name] = row
                mark = _DONE if row.is_done else _WAITING
                line = f"{row.kind:<11} {row.name:<40} {row.condition:<11} {row.values}  {row.took:>7}  {mark}"
                console.print(line, soft_wrap=True, highlight=False, markup=False)

    yield show
    if shown:
        console.print(_table(shown.values()))


def _table(rows: Iterable[Row]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("KIND", "OBJECT", "CONDITION", "STATUS", "LAST RUN", ""):
        # You need names in full to use them; only the status may take several lines.
        table.add_column(title, no_wrap=title != "STATUS", overflow="fold")
    for row in rows:
        mark = f"[green]{_DONE}[/green]" if row.is_done else _WAITING
        table.add_row(*map(escape, (row.kind, row.name, row.condition, row.values, row.took)), mark)
    return table


def next_steps(
    plane: ControlPlane, operator: OperatorProcess, records: Path, kinds: Iterable[GVK], edited_sample: Path | None
) -> str:
    """Return suggestions what to try with a kept demo of these kinds, as text with commands."""
    resources = ",".join(f"{gvk.kind}.{gvk.group}".lower().rstrip(".") for gvk in kinds)
    plan = f"\n  rolecall plan -f {shlex.quote(str(edited_sample))}" if edited_sample else ""
    newest = max(records.glob(f"*{SUFFIX}"), default=None)
    show = f"\n  rolecall record show {shlex.quote(str(newest))}" if newest else ""
    programs = shlex.quote(f"{plane.program_directory}:{Path(sys.executable).parent}")
    look = f"\nLook at it: {operator.page}" if operator.page else ""
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
    name: str = "demo"
    keep: bool = False
    timeout_seconds: float = 300.0
    state_directory: Path | None = None
    """The directory for the state of all control planes; None means the default."""


def run_demo(options: Options, console: Console) -> int:
    """Run the demo and return the exit code: 0 only if every object has reached its goal.

    Raise ValueError or FileNotFoundError if the project lacks a file that the demo needs, and ControlPlaneError if the
    control plane or the operator of this name is already running: a name has one owner, and a demo stops only what it
    has started.
    """
    demo_file = read_demo_file(options.project / "demo.yaml")
    samples = [obj for path in demo_file.samples for obj in read_manifests(path)]
    definitions = [obj for path in demo_file.definitions for obj in read_manifests(path)]
    account = next(ObjectKey.of_object(obj) for obj in definitions if obj["kind"] == "ServiceAccount")
    plane = ControlPlane(options.name, state_directory=options.state_directory, report=console.print)
    operator: OperatorProcess | None = None
    succeeded = False
    records = plane.layout.root / "records"
    kept_operators = _operators_with(records)
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
        kubeconfig = plane.service_account_kubeconfig(account.namespace, account.name)
        arguments = ("--record-dir", str(records), "--ui-bind-address", "127.0.0.1:0") if options.keep else ()
        operator = OperatorProcess(options.project, kubeconfig, plane.layout.root / "operator.log", arguments)
        operator.start()
        console.print(f"Started the operator as service account {account} (process {operator.pid})")
        console.print(f"Applied {len(apply_in_thread(applier, samples))} sample objects")
        namespaces = {str(metadata_of(obj)["namespace"]) for obj in samples if metadata_of(obj).get("namespace")}
        progress = _Progress(demo_file.goals, tuple(sorted(namespaces)), operator, options.timeout_seconds)
        succeeded = asyncio.run(progress.until_done(plane.kubeconfig, console))
    finally:
        if not (options.keep and operator and not operator.has_ended):
            if operator:
                operator.stop()
            plane.stop()
    if options.keep and not operator.has_ended:
        operator.read_log()
        kinds = tuple(goal.gvk for goal in demo_file.goals)
        edited = write_edited_sample(samples, kinds, plane.layout.root / "edited-sample.yaml")
        console.print(next_steps(plane, operator, records, kinds, edited), soft_wrap=True, highlight=False)
        open_page(operator.page, os.environ, is_terminal=console.is_terminal)
    return 0 if succeeded else 1


def apply_in_thread(applier: Applier, objects: Iterable[RawObject]) -> list[str]:
    """Apply objects as ``Applier.apply`` does; a signal raises KeyboardInterrupt only afterwards.

    An exception in the middle of a request can leave a lock of the client's connections held, which the client then
    waits for while it handles the exception.
    """
    return asyncio.run(run_in_thread(lambda: applier.apply(objects)))


def _operators_with(records: Path) -> list[int]:
    """Return the operators that write records to a directory, as that of a kept demo does."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # it has exited, or belongs to another user
            # The processes that an operator forks have its command line, but not a session of their own.
            if str(records) in process.cmdline() and os.getsid(process.pid) == process.pid:
                found.append(process.pid)
    return found


@dataclass(slots=True)
class _Progress:
    """Poll the objects of the goals' kinds in the samples' namespaces until all are done or the time is up."""

    goals: tuple[Goal, ...]
    namespaces: tuple[str, ...]
    operator: OperatorProcess
    timeout_seconds: float

    async def until_done(self, kubeconfig: Path, console: Console) -> bool:
        """Show the table and return whether every object was done in time."""
        started = time.monotonic()
        async with await Client.connect(str(kubeconfig)) as client:
            with status_table(console) as show:
                while True:
                    rows = await self._rows(client)
                    show(rows)
                    found = {row.kind for row in rows}
                    done = all(goal.gvk.kind in found for goal in self.goals) and all(row.is_done for row in rows)
                    took = time.monotonic() - started
                    if done or self.operator.has_ended or took > self.timeout_seconds:
                        break
                    await asyncio.sleep(LOOK_EVERY_SECONDS)
        if done:
            console.print(f"Every sample has reached its end state after {format_duration(round(took, 1))}")
        else:
            self._explain(console, rows)
        return done

    async def _rows(self, client: Client) -> list[Row]:
        self.operator.read_log()
        rows = []
        for goal in self.goals:
            for namespace in self.namespaces:
                async for objects, _ in client.list_pages(goal.gvk, namespace):
                    rows += [self._row(goal, obj) for obj in objects]
        return rows

    def _row(self, goal: Goal, obj: RawObject) -> Row:
        """Return the row of an object, with the most important condition that is true."""
        name = str(ObjectKey.of_object(obj))
        conditions = [each for each in status_of(obj).get("conditions") or () if isinstance(each, dict)]
        true = {each.get("type") for each in conditions if each.get("status") == "True"}
        condition = next((kind for kind in ("Failure", "Successful", "Running") if kind in true), "-")
        took = self.operator.last_runs.get((goal.gvk.kind, name), "")
        return Row(goal.gvk.kind, name, condition, goal.values(obj), took, goal.is_reached(obj))

    def _explain(self, console: Console, rows: list[Row]) -> None:
        waiting = ", ".join(f"{row.kind} {row.name}" for row in rows if not row.is_done) or "no objects found"
        why = "the operator exited" if self.operator.has_ended else f"timed out after {self.timeout_seconds:.0f} s"
        console.print(f"Not done: {waiting} ({why}). The last lines of the operator's log:", style="red")
        console.print(self.operator.tail(), markup=False, highlight=False, soft_wrap=True)
