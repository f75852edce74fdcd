"""Existing operator projects, run by rolecall and by a peer: ``python -m bench.field PROJECT=OBJECT --peer PATH``.

For each project, each runner, and each round: a new control plane, the project's CRDs, the runner in a copy of the
project as its home directory, and one object. The time goes from the request that creates the object to the first
status with an outcome; CPU time and peak memory are those of the runner's whole process tree over that time. When the
runner is quiet, the objects that it has written are compared with those of the peer. The report, in Markdown, goes to
standard output, progress to standard error. ``bench/README.md`` describes how to read it.
"""

import argparse
import asyncio
import copy
import itertools
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import yaml
from bench import process_tree
from bench.field_objects import Comparison, Kubectl, Objects, compare, written
from bench.field_projects import NAMESPACE, Case, Project, ProjectError, read_cases
from bench.operator_process import program
from bench.report import number
from bench.stage import progress

from rolecall.kube.client import Client
from rolecall.kube.errors import KubeError
from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import GVK, RawObject
from rolecall.workbench.controlplane import ControlPlane, ControlPlaneError

Process = subprocess.Popen[bytes]
_READY_SECONDS, _STOP_SECONDS = 120.0, 60.0
_POLL_SECONDS, _MEMORY_SECONDS = 0.1, 0.5
_QUIET_SHARE, _QUIET_SECONDS, _MAX_QUIET_SECONDS = 0.03, 3, 300
_READY: Final = re.compile(r"[Ss]tarting workers|Workers started")
_TASK: Final = re.compile(r"TASK \[([^\]\n]+)\]((?:(?!TASK \[).)*)", re.DOTALL)
_FLAGS: Final = ("--metrics-bind-address=0", "--health-probe-bind-address=0", "--leader-elect=false")
_SHOWN_CHARACTERS: Final = 160
_SUCCESSFUL: Final = "Successful"
"""Also the reason of the condition Running after a run, with the Go runner and with rolecall under its name."""
_FIGURES: Final = {"seconds": "seconds", "CPU seconds": "cpu_seconds", "peak MiB": "memory_mib"}
"""The columns with figures, and where a result has them."""


@dataclass(frozen=True, slots=True)
class Runner:
    """An ansible-operator program; it finds ansible-runner in its directory of programs first."""

    name: str
    program: Path
    programs: Path


@dataclass(frozen=True, slots=True)
class Result:
    """One run of one project."""

    outcome: str
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_mib: float = 0.0
    objects: Objects = field(default_factory=dict)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all projects and print the report; return 1 if a project's parts are missing, 130 when interrupted."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the control plane is stopped then too
    try:
        text = report([case.discover() for case in _cases(options)], _runners(options), options)
    except (ProjectError, OSError) as error:
        progress(f"The comparison can't be made: {error}")
        return 1
    except KeyboardInterrupt:
        progress("Interrupted; everything is stopped")
        return 130
    sys.stdout.write(text)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.field",
        description="Run existing operator projects with rolecall and a peer; compare outcome, time, and objects.",
        epilog="A file PROJECTS.yaml is a list of mappings: project, object, and optionally name, watches, "
        "collections, manifests, variables, arguments. The options from --collections on apply to PROJECT=OBJECT only.",
    )
    add = parser.add_argument
    add("projects", nargs="+", metavar="PROJECT=OBJECT|PROJECTS.yaml", help="a directory and a file with one object")
    beside = str(Path(sys.executable).with_name("ansible-operator"))
    add("--operator", type=program, default=beside, metavar="PATH", help="rolecall's ansible-operator (%(default)s)")
    add("--peer", type=program, metavar="PATH", help="an ansible-operator to compare with")
    add("--peer-programs", type=Path, metavar="DIR", help="where the peer finds ansible-runner (its directory)")
    add("--rounds", type=int, default=1, metavar="N", help="runs of each project; the report has medians (%(default)d)")
    add("--timeout", type=float, default=900.0, metavar="SECONDS", help="the longest wait for an outcome (%(default)g)")
    add("--home", type=Path, metavar="PATH", help="home directory that runs see, as /opt/ansible; must not exist")
    add("--keep", type=Path, metavar="DIR", help="keep logs and written objects in this directory")
    add("--collections", type=Path, metavar="DIR", help="directory with ansible_collections, as ~/.ansible/collections")
    add("--manifests", type=Path, action="append", default=[], metavar="FILE", help="apply before; repeatable")
    add("--env-file", type=Path, metavar="FILE", help="lines NAME=VALUE, added to those of the manager's manifest")
    add("--watches-file", default="", metavar="NAME", help="instead of the watches file of the manager's manifest")
    add("--argument", action="append", default=[], metavar="ARG", help="pass to 'run' of both runners; repeatable")
    return parser


def _cases(options: argparse.Namespace) -> Iterator[Case]:
    lines = options.env_file.read_text().splitlines() if options.env_file else []
    variables = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    given = options.watches_file, options.collections, tuple(options.manifests), variables, tuple(options.argument)
    for each in options.projects:
        directory, is_pair, sample = each.partition("=")
        yield from [Case(Path(directory), Path(sample), "", *given)] if is_pair else read_cases(Path(each))


def _runners(options: argparse.Namespace) -> list[Runner]:
    runners = [Runner("rolecall", options.operator, options.operator.parent)]
    if options.peer:
        runners.append(Runner("peer", options.peer, (options.peer_programs or options.peer.parent).absolute()))
    return runners


def report(projects: Sequence[Project], runners: Sequence[Runner], options: argparse.Namespace) -> str:
    """Run everything, alternating between the runners, and return the table and the differences."""
    names = [runner.name for runner in runners]
    head = ["project", *(f"outcome, {name}" for name in names)]
    for figure in _FIGURES:
        head += [*(f"{figure}, {name}" for name in names), *(["ratio"] if len(names) > 1 else [])]
    rows, details = [[*head, "objects"], ["---"] * (len(head) + 1)], ""
    for project in projects:
        results: dict[str, list[Result]] = {name: [] for name in names}
        for turn, runner in itertools.product(range(options.rounds), runners):
            progress(f"{project.name}: {runner.name}, round {turn + 1} of {options.rounds}")
            result = _run_or_report(project, runner, options)
            progress(f"{project.name}: {runner.name}: {result.outcome} after {result.seconds:.1f} s")
            results[runner.name].append(result)
        last = [each[-1].objects for each in results.values()]
        comparison = compare(*last) if len(last) > 1 and all(last) else None
        rows.append(_row(project, list(results.values()), comparison))
        lines = [*comparison.differences, *(f"(random) {each}" for each in comparison.random)] if comparison else []
        details += f"\n{project.name}:\n\n" + "".join(f"- {line}\n" for line in lines) if lines else ""
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n" + details


def _row(project: Project, results: Sequence[Sequence[Result]], comparison: Comparison | None) -> list[str]:
    row = [project.name, *(", then ".join(dict.fromkeys(each.outcome for each in runs)) for runs in results)]
    for name in _FIGURES.values():
        medians = [statistics.median(getattr(each, name) for each in runs) for runs in results]
        row += [number(each) for each in medians]
        if len(medians) > 1:
            row.append(number(medians[1] / medians[0]) if medians[0] else "")
    if comparison:
        return [*row, str(comparison)]
    return [*row, "not compared" if len(results) > 1 else f"{len(results[0][-1].objects)} written"]


def _run_or_report(project: Project, runner: Runner, options: argparse.Namespace) -> Result:
    """Return the result of a run; the reason for a run that isn't possible is its outcome, and the others go on."""
    try:
        return _run(project, runner, options)
    except (ControlPlaneError, KubeError, RuntimeError, OSError) as error:
        progress(f"{project.name}: {runner.name} can't run it: {error}")
        return Result(f"not run: {_in_a_cell(str(error))}")


def _run(project: Project, runner: Runner, options: argparse.Namespace) -> Result:
    """Reconcile a project's object on a new control plane. Raise ControlPlaneError, KubeError, or RuntimeError."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="field-")))
        plane = stack.enter_context(ControlPlane(f"field-{os.getpid()}", state_directory=directory / "state"))
        kubectl = Kubectl(plane.program_directory / "kubectl", plane.kubeconfig)
        _prepare(kubectl, project)
        before = kubectl.snapshot()
        home, log = directory / "home", directory / "log"
        project.stage(home)
        if options.home:  # the path that the project's roles expect
            options.home.symlink_to(home)
            stack.callback(options.home.unlink)
        with _operator(project, runner, options.home or home, plane.kubeconfig, log) as operator:
            result = asyncio.run(reconcile(project.sample, operator, plane.kubeconfig, options.timeout))
            _wait_until_quiet(operator.pid)
            objects = written(before, kubectl.snapshot())
        text = log.read_text(errors="replace")
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            base = options.keep / f"{project.name}-{runner.name}"
            base.with_suffix(".log").write_text(text)
            base.with_suffix(".yaml").write_text(yaml.safe_dump(objects))
        return replace(result, outcome=_with_task(result.outcome, text), objects=objects)


def _with_task(outcome: str, log: str) -> str:
    """Add the last task that failed, and that the role doesn't ignore, to a failure."""
    failed = [name for name, output in _TASK.findall(log) if "fatal: [" in output and "...ignoring" not in output]
    return f"{outcome} in *{failed[-1].strip()}*" if failed and outcome.startswith("Failed") else outcome


def _prepare(kubectl: Kubectl, project: Project) -> None:
    """Create the namespace, the project's kinds, and what the user added."""
    kubectl.run("create", "namespace", NAMESPACE)
    if project.definitions:
        kubectl.run("apply", "--server-side", "--filename=-", text=yaml.safe_dump_all(project.definitions))
    for path in project.case.manifests:
        kubectl.run("apply", "--server-side", f"--namespace={NAMESPACE}", f"--filename={path}")
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        try:
            kubectl.run("wait", "--for=condition=Established", "--all", "customresourcedefinitions", "--timeout=60s")
            break
        except RuntimeError:  # a new definition has no conditions, which is an error for kubectl
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_SECONDS)


@contextmanager
def _operator(project: Project, runner: Runner, home: Path, kubeconfig: Path, log: Path) -> Iterator[Process]:
    """Run an operator in a home directory with the project's variables only; it is ready. Raise RuntimeError."""
    environment = {
        **{name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ},
        "PATH": f"{runner.programs}:{runner.program.parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "KUBECONFIG": str(kubeconfig),
        **project.variables,
    }
    command, none = [str(runner.program), "run", *project.arguments, *_FLAGS], subprocess.DEVNULL
    with log.open("wb") as output:
        operator = Process(command, cwd=home, env=environment, stdin=none, stdout=output, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + _READY_SECONDS
        while not _READY.search(text := log.read_text(errors="replace")):
            if operator.poll() is not None or time.monotonic() > deadline:
                state = "is not ready" if operator.returncode is None else f"exited with {operator.returncode}"
                raise RuntimeError(f"{command} {state}; the end of its log:\n{text[-2000:]}")
            time.sleep(_POLL_SECONDS)
        yield operator
    finally:
        process_tree.end(operator, _STOP_SECONDS)


async def reconcile(sample: RawObject, operator: Process, kubeconfig: Path, timeout_seconds: float) -> Result:
    """Create an object and return the outcome of its first run, without the written objects."""
    pid, memory, obj = operator.pid, 0.0, copy.deepcopy(sample)
    async with await Client.connect(str(kubeconfig)) as client:
        if (await client.resource(GVK.of_object(obj))).namespaced:
            obj["metadata"]["namespace"] = NAMESPACE
        cpu_seconds, started = process_tree.cpu_seconds(pid), time.monotonic()
        watching = asyncio.create_task(_first_outcome(client, await client.create(obj), timeout_seconds))
        while not watching.done() and operator.poll() is None:
            memory = max(memory, await asyncio.to_thread(process_tree.memory_mib, pid))
            await asyncio.wait([watching], timeout=_MEMORY_SECONDS)
        exited = (f"the runner exited with {operator.returncode}", time.monotonic())
        outcome, seen_at = exited if operator.poll() is not None else await watching
        watching.cancel()
    return Result(outcome, seen_at - started, process_tree.cpu_seconds(pid) - cpu_seconds, memory)


async def _first_outcome(client: Client, created: RawObject, timeout_seconds: float) -> tuple[str, float]:
    """Return the first outcome and its time: a watch sees it even if the next run overwrites it immediately."""
    metadata = metadata_of(created)
    place = GVK.of_object(created), metadata.get("namespace"), metadata["resourceVersion"]
    async for _, obj in client.watch(*place, timeout_seconds):
        if metadata_of(obj).get("name") == metadata["name"] and (outcome := _outcome(obj)):
            return outcome, time.monotonic()
    return f"no outcome within {timeout_seconds:g} s", time.monotonic()


def _outcome(obj: RawObject) -> str:
    """Return the outcome of an object's first run from its conditions, a failure with its message; "" before it."""
    found = {each.get("type"): each for each in (obj.get("status") or {}).get("conditions") or ()}
    if found.get("Failure", {}).get("status") == "True":
        return f"Failed: {_in_a_cell(str(found['Failure'].get('message')))}"
    return _SUCCESSFUL if found.get("Running", {}).get("reason") == _SUCCESSFUL else ""


def _in_a_cell(text: str) -> str:
    return " ".join(text.split())[:_SHOWN_CHARACTERS].replace("|", "\\|")


def _wait_until_quiet(pid: int) -> None:
    """Return when the tree has used almost no CPU time for some seconds: later runs write objects too."""
    used, quiet_seconds = process_tree.cpu_seconds(pid), 0
    for _ in range(_MAX_QUIET_SECONDS):
        time.sleep(1.0)
        before, used = used, process_tree.cpu_seconds(pid)
        quiet_seconds = quiet_seconds + 1 if used - before <= _QUIET_SHARE else 0
        if quiet_seconds == _QUIET_SECONDS:
            return


if __name__ == "__main__":
    sys.exit(main())
