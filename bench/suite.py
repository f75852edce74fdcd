"""The order of the benchmark: control plane, sections, report.

The sections share only the control plane; each has its own namespaces and directories. Those in ``ALONE`` measure only
rolecall; those in ``COMPARED`` compare contenders. Each can run separately.
"""

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import comparison, footprint, plans, population, readiness, starvation
from bench.comparison import QUICK, Effort
from bench.contenders import NAMES, PEER, Contender, contenders
from bench.machine import describe_machine, load_average
from bench.measures import Measure, table
from bench.report import Row, head, markdown
from bench.stage import PROJECT, Stage, progress, until
from bench.subjects import POD_SCALER, with_revision
from bench.widgets import DEFINITION

from rolecall.kube.client import Client
from rolecall.kube.errors import KubeError
from rolecall.kube.references import GVK
from rolecall.workbench.controlplane import ControlPlane, ControlPlaneError
from rolecall.workbench.project.demo_inputs import Applier, read_manifests

POPULATIONS, QUICK_POPULATIONS = (1_000, 10_000), (1_000,)
INTERRUPTED = 130
_DEFINITIONS = GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
_SERVED_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The chosen sections and their sizes."""

    sections: Sequence[str]
    populations: tuple[int, ...]
    effort: Effort
    contenders: Sequence[Contender]


Alone = Callable[[Stage, Plan], Awaitable[list[Row]]]
Compared = Callable[[Stage, Sequence[Contender], Effort], Awaitable[list[Measure]]]

ALONE: Mapping[str, Alone] = {
    "ready": lambda stage, _: readiness.measure(stage),
    "population": lambda stage, plan: population.measure(stage, plan.populations),
    "plan": lambda stage, plan: plans.measure(stage, is_quick=plan.effort == QUICK),
    "crashtest": lambda stage, plan: plans.measure_crash_test(stage, is_quick=plan.effort == QUICK),
}
COMPARED: Mapping[str, Compared] = {
    "single": comparison.measure_single,
    "many": comparison.measure_many,
    "memory": footprint.measure_memory,
    "start": footprint.measure_start,
    "starved": lambda stage, chosen, effort: starvation.measure_starved(
        stage, chosen, 1 if effort == QUICK else starvation.REPEATS
    ),
}
SECTIONS = (*ALONE, *COMPARED)
ON_DEMAND = frozenset({"crashtest", "starved"})
"""Sections that take long, measured only on request."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the report; return 1 if a measurement failed, 130 if interrupted."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if not options.peer and (options.peer_programs or PEER in (options.contender or ())):
        parser.error("--peer PATH is missing: it names the peer's binary")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM also stops the control plane
    plan = Plan(
        options.only or [name for name in SECTIONS if name not in ON_DEMAND],
        QUICK_POPULATIONS if options.quick else POPULATIONS,
        QUICK if options.quick else Effort(),
        _chosen(options),
    )
    try:
        report = asyncio.run(_run(plan))
    except (ControlPlaneError, KubeError, TimeoutError, RuntimeError) as error:
        progress(f"The benchmark failed: {error}")
        return 1
    except KeyboardInterrupt:
        progress("Interrupted; everything is stopped")
        return INTERRUPTED
    sys.stdout.write(report)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench/run.py", description="Measures rolecall on its own control plane and compares it with others."
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer objects and rounds: minutes instead of a quarter hour"
    )
    parser.add_argument("--only", action="append", choices=SECTIONS, help="measure only this section; may be repeated")
    parser.add_argument("--peer", type=_program, metavar="PATH", help="an ansible-operator binary to compare with")
    parser.add_argument(
        "--peer-programs",
        type=_program_directory,
        metavar="DIRECTORY",
        help="the directory with the peer's ansible-runner (default: that of this Python)",
    )
    parser.add_argument(
        "--contender",
        action="append",
        choices=NAMES,
        help="compare only this one (default: all); may be repeated",
    )
    return parser


def _chosen(options: argparse.Namespace) -> list[Contender]:
    found = contenders(options.peer, options.peer_programs)
    return [each for each in found if each.name in (options.contender or NAMES)]


def _program_directory(text: str) -> Path:
    path = Path(text).resolve()
    if not (path / "ansible-runner").is_file():
        raise argparse.ArgumentTypeError(f"expected a directory with ansible-runner, found {text!r}")
    return path


def _program(text: str) -> Path:
    path = Path(text).resolve()
    if not os.access(path, os.X_OK):
        raise argparse.ArgumentTypeError(f"expected an executable program, found {text!r}")
    return path


async def _run(plan: Plan) -> str:
    before = load_average()
    progress(f"Load of the machine at the start: {before}")
    with tempfile.TemporaryDirectory(prefix="rolecall-bench-") as directory:
        async with _stage(Path(directory)) as stage:
            rows, measures = await _measure_all(stage, plan)
            machine = describe_machine(stage.kubeconfig)
    parts = [head(machine | {"Load at start and end": f"{before}; {load_average()}"})]
    parts += [markdown(rows)] if rows else []
    parts += [table(measures, [each.name for each in plan.contenders])] if measures else []
    return "\n".join(parts)


@asynccontextmanager
async def _stage(directory: Path) -> AsyncIterator[Stage]:
    control_plane = ControlPlane("bench", state_directory=directory / "control-planes", report=progress)
    await asyncio.to_thread(control_plane.start)
    try:
        await asyncio.to_thread(_define, control_plane.kubeconfig)
        account = control_plane.service_account_kubeconfig("rolecall-system", "rolecall")
        async with await Client.connect(str(control_plane.kubeconfig)) as client:
            await until(lambda: _are_served(client), _SERVED_SECONDS, "the API server serves every kind")
            yield Stage(directory, client, control_plane.kubeconfig, account)
    finally:
        await asyncio.to_thread(control_plane.stop)


def _define(kubeconfig: Path) -> None:
    applier = Applier(kubeconfig)
    for part in ("deploy/crds", "deploy/rbac", "deploy/podcount/rbac.yaml"):
        manifests = read_manifests(PROJECT / part)
        scalers = f"podscalers.{POD_SCALER.group}"
        applier.apply(with_revision(each) if each["metadata"]["name"] == scalers else each for each in manifests)
    applier.apply([DEFINITION])


async def _are_served(client: Client) -> bool:
    """Return whether all defined kinds can be listed: the API server needs a moment after their definition."""
    try:
        for gvk in await _kinds(client):
            async for _ in client.list_pages(gvk):
                break
    except KubeError:
        return False
    return True


async def _kinds(client: Client) -> list[GVK]:
    definitions = [item async for page, _ in client.list_pages(_DEFINITIONS) for item in page]
    return [
        GVK(spec["group"], version["name"], spec["names"]["kind"])
        for spec in (item["spec"] for item in definitions)
        for version in spec["versions"]
    ]


async def _measure_all(stage: Stage, plan: Plan) -> tuple[list[Row], list[Measure]]:
    rows: list[Row] = []
    measures: list[Measure] = []
    for name in plan.sections:
        progress(f"Section {name}")
        if name in ALONE:
            rows += await ALONE[name](stage, plan)
        else:
            measures += await COMPARED[name](stage, plan.contenders, plan.effort)
    return rows, measures
