"""Runs the demo: control plane, definitions, operator, samples, and a table until every object is done.

It succeeds only if every object reaches its goal in ``demo.yaml``. Nothing is left running, unless you ask to keep it.
"""

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from rolecall.kube.client import Client
from rolecall.kube.durations import format_duration
from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.workbench.controlplane.cluster import ControlPlane
from rolecall.workbench.project.demo_file import Goal, read_demo_file
from rolecall.workbench.project.manifests import Applier, read_manifests
from rolecall.workbench.project.next_steps import KeptDemo, next_steps, open_page, write_edited_sample
from rolecall.workbench.project.operator_process import OperatorProcess
from rolecall.workbench.project.status_table import Row, StatusTable

LOOK_EVERY_SECONDS = 0.5


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

    Raise ValueError or FileNotFoundError if the project lacks a file that the demo needs.
    """
    demo_file = read_demo_file(options.project / "demo.yaml")
    samples = [obj for path in demo_file.samples for obj in read_manifests(path)]
    definitions = [obj for path in demo_file.definitions for obj in read_manifests(path)]
    account = next(ObjectKey.of_object(obj) for obj in definitions if obj["kind"] == "ServiceAccount")
    plane = ControlPlane(options.name, state_directory=options.state_directory, report=console.print)
    operator: OperatorProcess | None = None
    succeeded = False
    try:
        plane.start()
        console.print(f"The control plane is ready: KUBECONFIG={plane.kubeconfig}")
        applier = Applier(plane.kubeconfig)
        console.print(f"Applied {len(applier.apply(definitions))} definitions")
        kubeconfig = plane.service_account_kubeconfig(account.namespace, account.name)
        records = plane.layout.root / "records"
        arguments = ("--record-dir", str(records), "--ui-bind-address", "127.0.0.1:0") if options.keep else ()
        operator = OperatorProcess(options.project, kubeconfig, plane.layout.root / "operator.log", arguments)
        operator.start()
        console.print(f"Started the operator as service account {account} (process {operator.pid})")
        console.print(f"Applied {len(applier.apply(samples))} sample objects")
        progress = _Progress(demo_file.goals, _namespaces(samples), operator, options.timeout_seconds)
        succeeded = asyncio.run(progress.until_done(plane.kubeconfig, console))
    finally:
        if not (options.keep and operator and not operator.has_ended):
            if operator:
                operator.stop()
            plane.stop()
    if options.keep and not operator.has_ended:
        operator.read_log()
        kinds = tuple(goal.gvk for goal in demo_file.goals)
        kept = KeptDemo(
            name=options.name,
            kubeconfig=plane.kubeconfig,
            program_directory=plane.program_directory,
            log=operator.log,
            records=records,
            operator_pid=operator.pid,
            page=operator.page,
            kinds=kinds,
            edited_sample=write_edited_sample(samples, kinds, plane.layout.root / "edited-sample.yaml"),
        )
        console.print(next_steps(kept), soft_wrap=True, highlight=False)
        open_page(operator.page, os.environ, is_terminal=console.is_terminal)
    return 0 if succeeded else 1


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
        table = StatusTable(console)
        async with await Client.connect(str(kubeconfig)) as client:
            with table:
                while True:
                    rows = await self._rows(client)
                    table.show(rows)
                    found = {row.kind for row in rows}
                    done = all(goal.gvk.kind in found for goal in self.goals) and all(row.is_done for row in rows)
                    took = time.monotonic() - started
                    if done or self.operator.has_ended or took > self.timeout_seconds:
                        break
                    await asyncio.sleep(LOOK_EVERY_SECONDS)
        table.close()
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
        key = str(ObjectKey.of_object(obj))
        took = self.operator.last_runs.get((goal.gvk.kind, key), "")
        return Row(goal.gvk.kind, key, _condition(obj), goal.values(obj), took, goal.is_reached(obj))

    def _explain(self, console: Console, rows: list[Row]) -> None:
        waiting = ", ".join(f"{row.kind} {row.name}" for row in rows if not row.is_done) or "no objects found"
        why = "the operator exited" if self.operator.has_ended else f"timed out after {self.timeout_seconds:.0f} s"
        console.print(f"Not done: {waiting} ({why}). The last lines of the operator's log:", style="red")
        console.print(self.operator.tail(), markup=False, highlight=False, soft_wrap=True)


def _namespaces(samples: list[RawObject]) -> tuple[str, ...]:
    return tuple(sorted({str(metadata_of(obj)["namespace"]) for obj in samples if metadata_of(obj).get("namespace")}))


def _condition(obj: RawObject) -> str:
    """Return the type of the most important condition that is true."""
    status = obj.get("status")
    conditions = (status if isinstance(status, dict) else {}).get("conditions") or ()
    true = {item.get("type") for item in conditions if isinstance(item, dict) and item.get("status") == "True"}
    return next((kind for kind in ("Failure", "Successful", "Running") if kind in true), "-")
