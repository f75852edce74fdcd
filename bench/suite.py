"""The order of the benchmark: control plane, sections, report.

The sections share only the control plane; each has its own namespaces and directories. Those in ``ALONE`` measure only
rolecall; those in ``COMPARED`` compare contenders. Each can run separately.
"""

import argparse
import asyncio
import dataclasses
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bench import comparison, fleet, footprint, plans, population, readiness, starvation
from bench.contenders import NAMES, PEER, WARM, Contender, contenders
from bench.machine import describe_machine, load_average
from bench.operator_process import program
from bench.report import Measure, head, table
from bench.stage import PROJECT, QUICK, Effort, Kubectl, Stage, print_report, progress
from bench.subjects import CONTENT, POD_SCALER, with_revision

from rolecall.kube.client import Client
from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.project.demo_inputs import read_manifests

_COMPILE = """
import compileall, sys, sysconfig
for directory in (sysconfig.get_path("purelib"), *sys.argv[1:]):
    compileall.compile_dir(directory, quiet=2, workers=0)
"""

ALONE: Mapping[str, Callable[[Stage], Awaitable[list[Measure]]]] = {
    "ready": readiness.measure,
    "idle": footprint.measure_idle,
    "population": population.measure,
    "plan": plans.measure,
    "crashtest": plans.measure_crash_test,
}
COMPARED: Mapping[str, Callable[[Stage, Sequence[Contender]], Awaitable[list[Measure]]]] = {
    "single": comparison.measure_single,
    "many": comparison.measure_many,
    "memory": footprint.measure_memory,
    "start": footprint.measure_start,
    "starved": starvation.measure_starved,
    "fleet": fleet.measure_fleet,
}
SECTIONS = (*ALONE, *COMPARED)
ON_DEMAND = frozenset({"crashtest", "starved", "fleet"})
"""Sections that take long, measured only on request."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the report; return 1 if a measurement failed, 130 if interrupted."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if not options.peer and (options.peer_programs or PEER in (options.contender or ())):
        parser.error("--peer PATH is missing: it names the peer's binary")
    if options.peer_programs and not (options.peer_programs / "ansible-runner").is_file():
        parser.error(f"--peer-programs: expected a directory with ansible-runner, found {options.peer_programs}")
    sections = options.only or [name for name in SECTIONS if name not in ON_DEMAND]
    every = contenders(options.peer, options.peer_programs)
    chosen = [each for each in every if each.name in (options.contender or NAMES)]
    effort = QUICK if options.quick else Effort()
    effort = dataclasses.replace(effort, fleets=options.fleet or effort.fleets)
    return print_report(lambda: asyncio.run(_run(sections, chosen, effort)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench/run.py", description="Measures rolecall on its own control plane and compares it with others."
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="fewer objects and rounds: minutes instead of a quarter hour")
    add("--only", action="append", choices=SECTIONS, help="measure only this section; may be repeated")
    add("--peer", type=program, metavar="PATH", help="an ansible-operator binary to compare with")
    programs = "the directory with the peer's ansible-runner (default: that of this Python)"
    add("--peer-programs", type=lambda text: Path(text).resolve(), metavar="DIRECTORY", help=programs)
    add("--contender", action="append", choices=NAMES, help="compare only this one (default: all); may be repeated")
    fleets = "the sizes of fleets, separated by commas (default: 100,500,1000; with --quick 20)"
    add("--fleet", type=sizes, metavar="COUNTS", help=fleets)
    return parser


def sizes(text: str) -> tuple[int, ...]:
    """Return the sizes of fleets, for an argument parser. Raises ArgumentTypeError."""
    if not all(each.isdecimal() and int(each) for each in text.split(",")):
        raise argparse.ArgumentTypeError(f"{text}: expected numbers above 0, separated by commas")
    return tuple(map(int, text.split(",")))


async def _run(sections: Sequence[str], chosen: Sequence[Contender], effort: Effort) -> str:
    before = load_average()
    progress(f"Load of the machine at the start: {before}")
    for python in {each.programs / "python3" for each in chosen}:
        if python.is_file():
            _compile(python)
    alone: list[Measure] = []
    compared: list[Measure] = []
    with tempfile.TemporaryDirectory(prefix="rolecall-bench-") as directory:
        async with _stage(Path(directory), effort) as stage:
            for name in sections:
                progress(f"Section {name}")
                if name in ALONE:
                    alone += await ALONE[name](stage)
                else:
                    compared += await COMPARED[name](stage, chosen)
            machine = describe_machine(stage.kubeconfig)
    tables = [table(alone, [WARM])] if alone else []
    tables += [table(compared, [each.name for each in chosen])] if compared else []
    return "\n".join([head(machine | {"Load at start and end": f"{before}; {load_average()}"}), *tables])


def _compile(python: Path) -> None:
    """Compile everything that contenders with this interpreter import, as images do.

    Otherwise an operator would compile it at its start, and again in each process if it must not write bytecode.
    """
    subprocess.run([python, "-c", _COMPILE, PROJECT / "src", PROJECT / "bench"], check=True)


@asynccontextmanager
async def _stage(directory: Path, effort: Effort) -> AsyncIterator[Stage]:
    with ControlPlane("bench", state_directory=directory / "control-planes", report=progress) as plane:
        _define(Kubectl(plane))
        account = plane.service_account_kubeconfig("rolecall-system", "rolecall")
        async with await Client.connect(str(plane.kubeconfig)) as client:
            yield Stage(directory, client, plane.kubeconfig, account, effort)


def _define(kubectl: Kubectl) -> None:
    parts = [PROJECT / each for each in ("deploy/crds", "deploy/rbac", "deploy/components/podcount/rbac.yaml")]
    scalers = f"podscalers.{POD_SCALER.group}"
    parts += [CONTENT / "widgets.yaml", CONTENT / "apps.yaml"]
    manifests = [each for part in parts for each in read_manifests(part)]
    kubectl.apply(*(with_revision(each) if each["metadata"]["name"] == scalers else each for each in manifests))
    kubectl.wait_for_definitions()
