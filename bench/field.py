"""Existing operator projects, run by rolecall and by a peer: ``python -m bench.field PROJECT=OBJECT --peer PATH``.

For each project, each runner, and each round: a new control plane, the project's CRDs, the runner in a copy of the
project as its home directory, and one object. The time goes from the request that creates the object to the first
status with an outcome; CPU time and peak memory are those of the runner's whole process tree over that time. When the
runner is quiet, the objects that it has written are compared with those of the peer. The report, in Markdown, goes to
standard output, progress to standard error. ``bench/README.md`` describes how to read it.
"""

import argparse
import itertools
import os
import queue
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread
from typing import Any, Final

import yaml
from bench import process_tree
from bench.field_objects import Comparison, Kubectl, Objects, compare, written
from bench.field_projects import NAMESPACE, Case, Project, ProjectError, read_cases
from bench.report import number
from bench.stage import progress
from kubernetes.client.exceptions import ApiException
from kubernetes.config import new_client_from_config
from kubernetes.dynamic import DynamicClient

from rolecall.kube.references import RawObject
from rolecall.workbench.controlplane import ControlPlane, ControlPlaneError

_READY_SECONDS, _STOP_SECONDS, _QUIET_SECONDS = 120.0, 60.0, 300.0
_POLL_SECONDS, _MEMORY_EVERY = 0.1, 5
_QUIET_SHARE, _QUIET_FOR_SECONDS = 0.03, 3.0
_READY: Final = re.compile(r"[Ss]tarting workers|Workers started")
_TASK: Final = re.compile(r"TASK \[([^\]\n]+)\]((?:(?!TASK \[).)*)", re.DOTALL)
_FLAGS: Final = ("--metrics-bind-address=0", "--health-probe-bind-address=0", "--leader-elect=false")
_SHOWN_CHARACTERS: Final = 160
_SUCCESSFUL: Final = "Successful"
"""Also the reason of the condition Running after a run, with the Go runner and with rolecall under its name."""


@dataclass(frozen=True, slots=True)
class Runner:
    """An ansible-operator program; it finds ansible-runner in its directory of programs first."""

    name: str
    program: Path
    programs: Path


@dataclass(frozen=True, slots=True)
class Options:
    """How each run is made."""

    timeout_seconds: float
    home: Path | None
    keep: Path | None


@dataclass(frozen=True, slots=True)
class Result:
    """One run of one project."""

    outcome: str
    seconds: float
    cpu_seconds: float
    memory_mib: float
    objects: Objects = field(default_factory=dict)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all projects and print the report; return 1 if a project's parts are missing, 130 when interrupted."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the control plane is stopped then too
    try:
        projects = [case.discover() for case in _cases(options)]
        runners = _runners(options)
        report = _report(projects, runners, options)
    except (ProjectError, OSError) as error:
        progress(f"The comparison can't be made: {error}")
        return 1
    except KeyboardInterrupt:
        progress("Interrupted; everything is stopped")
        return 130
    sys.stdout.write(report)
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
    add(
        "--operator",
        type=_program,
        default=beside,
        metavar="PATH",
        help="the ansible-operator of rolecall (%(default)s)",
    )
    add("--peer", type=_program, metavar="PATH", help="an ansible-operator to compare with")
    add(
        "--peer-programs", type=Path, metavar="DIR", help="where the peer finds ansible-runner (default: its directory)"
    )
    add("--rounds", type=int, default=1, metavar="N", help="runs of each project; the report has medians (%(default)d)")
    add("--timeout", type=float, default=900.0, metavar="SECONDS", help="the longest wait for an outcome (%(default)g)")
    add(
        "--home",
        type=Path,
        metavar="PATH",
        help="the home directory that runs see, such as /opt/ansible; must not exist",
    )
    add("--keep", type=Path, metavar="DIR", help="keep logs and written objects in this directory")
    add("--collections", type=Path, metavar="DIR", help="directory with ansible_collections, as ~/.ansible/collections")
    add("--manifests", type=Path, action="append", default=[], metavar="FILE", help="apply before; repeatable")
    add(
        "--env-file", type=Path, metavar="FILE", help="lines NAME=VALUE, in addition to those of the manager's manifest"
    )
    add("--watches-file", default="", metavar="NAME", help="instead of the watches file of the manager's manifest")
    add("--argument", action="append", default=[], metavar="ARG", help="pass to 'run' of both runners; repeatable")
    return parser


def _program(text: str) -> Path:
    path = Path(text).absolute()
    if not os.access(path, os.X_OK) or path.is_dir():
        raise argparse.ArgumentTypeError(f"{path}: expected a program, found none")
    return path


def _cases(options: argparse.Namespace) -> Iterator[Case]:
    lines = options.env_file.read_text().splitlines() if options.env_file else []
    variables = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    for each in options.projects:
        directory, is_pair, sample = each.partition("=")
        if is_pair:
            common = (
                options.watches_file,
                options.collections,
                tuple(options.manifests),
                variables,
                tuple(options.argument),
            )
            yield Case(Path(directory), Path(sample), "", *common)
        else:
            yield from read_cases(Path(each))


def _runners(options: argparse.Namespace) -> list[Runner]:
    runners = [Runner("rolecall", options.operator, options.operator.parent)]
    if options.peer:
        runners.append(Runner("peer", options.peer, (options.peer_programs or options.peer.parent).absolute()))
    return runners


def _report(projects: Sequence[Project], runners: Sequence[Runner], options: argparse.Namespace) -> str:
    """Run everything, alternating between the runners, and return the table and the differences."""
    how = Options(options.timeout, options.home, options.keep)
    rows, details = [], []
    for project in projects:
        results: dict[str, list[Result]] = {runner.name: [] for runner in runners}
        for number_of_round in range(options.rounds):
            for runner in runners:
                progress(f"{project.name}: {runner.name}, round {number_of_round + 1} of {options.rounds}")
                result = _run_or_report(project, runner, how)
                progress(f"{project.name}: {runner.name}: {result.outcome} after {result.seconds:.1f} s")
                results[runner.name].append(result)
        last = [each[-1].objects for each in results.values()]
        comparison = compare(*last) if len(last) > 1 and all(last) else None
        rows.append(_row(project, list(results.values()), comparison))
        details.append(_details(project, comparison))
    names = [runner.name for runner in runners]
    head = ["project", *(f"outcome, {name}" for name in names)]
    for what in ("seconds", "CPU seconds", "peak MiB"):
        head += [*(f"{what}, {name}" for name in names), *(["ratio"] if len(names) > 1 else [])]
    lines = [head, ["---"] * (len(head) + 1), *rows]
    head.append("objects")
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n" + "".join(details)


def _row(project: Project, results: Sequence[Sequence[Result]], comparison: Comparison | None) -> list[str]:
    row = [project.name]
    row += [", then ".join(dict.fromkeys(each.outcome for each in of_runner)) for of_runner in results]
    for name in ("seconds", "cpu_seconds", "memory_mib"):
        medians = [statistics.median(getattr(each, name) for each in of_runner) for of_runner in results]
        row += [number(each) for each in medians]
        if len(medians) > 1:
            row.append(number(medians[1] / medians[0]) if medians[0] else "")
    if comparison is None:
        return [*row, "not compared" if len(results) > 1 else f"{len(results[0][-1].objects)} written"]
    random = f", {len(comparison.random)} random values" if comparison.random else ""
    differing = f", {len(comparison.differences)} differences" if comparison.differences else ""
    return [*row, f"{comparison.equal} equal{differing}{random}"]


def _details(project: Project, comparison: Comparison | None) -> str:
    if comparison is None or not (comparison.differences or comparison.random):
        return ""
    lines = [*comparison.differences, *(f"(random) {each}" for each in comparison.random)]
    return f"\n{project.name}:\n\n" + "".join(f"- {line}\n" for line in lines)


def _run_or_report(project: Project, runner: Runner, options: Options) -> Result:
    """Return the result of a run; what prevents one is its outcome, so that the other projects are still run."""
    try:
        return _run(project, runner, options)
    except (ControlPlaneError, RuntimeError, OSError, ApiException) as error:
        reason = str(error.body if isinstance(error, ApiException) else error)
        progress(f"{project.name}: {runner.name} can't run it: {reason}")
        return Result(f"not run: {_in_a_cell(reason)}", 0.0, 0.0, 0.0)


def _run(project: Project, runner: Runner, options: Options) -> Result:
    """Reconcile a project's object on a new control plane. Raise ControlPlaneError or RuntimeError."""
    with (
        tempfile.TemporaryDirectory(prefix="field-") as directory,
        ControlPlane(f"field-{os.getpid()}", state_directory=Path(directory) / "state") as plane,
    ):
        kubectl = Kubectl(plane.program_directory / "kubectl", plane.kubeconfig)
        _prepare(kubectl, project)
        before = kubectl.snapshot()
        staged = Path(directory) / "home"
        project.stage(staged)
        with _home(staged, options.home) as home, _operator(project, runner, home, plane.kubeconfig) as operator:
            log = Path(f"{home.resolve()}.log")
            _wait_until_ready(operator, log)
            result = _reconcile(project, operator, plane.kubeconfig, options.timeout_seconds)
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
    for path in project.manifests:
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
def _home(staged: Path, path: Path | None) -> Iterator[Path]:
    """Provide a project's home directory under the path that its runs expect."""
    if path is None:
        yield staged
        return
    path.symlink_to(staged)
    try:
        yield path
    finally:
        path.unlink()


@contextmanager
def _operator(project: Project, runner: Runner, home: Path, kubeconfig: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run an operator in a home directory with the project's variables only; its log is the directory's name + .log."""
    environment = {
        **{name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ},
        "PATH": f"{runner.programs}:{runner.program.parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "KUBECONFIG": str(kubeconfig),
        **project.variables,
    }
    command = [str(runner.program), "run", *project.arguments, *_FLAGS]
    with Path(f"{home.resolve()}.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=home, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        process_tree.end(process, _STOP_SECONDS)


def _wait_until_ready(operator: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not _READY.search(text := log.read_text(errors="replace")):
        if operator.poll() is not None or time.monotonic() > deadline:
            state = "is not ready" if operator.returncode is None else f"exited with {operator.returncode}"
            raise RuntimeError(f"{operator.args!r} {state}; the end of its log:\n{text[-2000:]}")
        time.sleep(_POLL_SECONDS)


def _reconcile(
    project: Project, operator: "subprocess.Popen[bytes]", kubeconfig: Path, timeout_seconds: float
) -> Result:
    """Create the project's object and return the outcome of its first run, without the objects."""
    sample, pid = project.sample, operator.pid
    client = DynamicClient(new_client_from_config(str(kubeconfig)))
    resource = client.resources.get(api_version=sample["apiVersion"], kind=sample["kind"])
    place = {"namespace": NAMESPACE} if resource.namespaced else {}
    cpu_seconds, memory, outcome = process_tree.cpu_seconds(pid), 0.0, ""
    started = time.monotonic()
    deadline = started + timeout_seconds
    metadata = resource.create(body=sample, **place).metadata
    seen: queue.SimpleQueue[tuple[float, str]] = queue.SimpleQueue()
    start = {**place, "name": metadata.name, "resource_version": metadata.resourceVersion}
    Thread(target=_watch_outcome, args=(resource, start, timeout_seconds, seen), daemon=True).start()
    seen_at = 0.0
    for count in itertools.count():
        outcome = ""
        with suppress(queue.Empty):
            seen_at, outcome = seen.get(timeout=_POLL_SECONDS)
        if operator.poll() is not None:
            outcome = f"the runner exited with {operator.returncode}"
        elif not outcome and time.monotonic() > deadline:
            outcome = f"no outcome within {timeout_seconds:g} s"
        if outcome:
            break
        if count % _MEMORY_EVERY == 0:
            memory = max(memory, process_tree.memory_mib(pid))
    seconds = (seen_at or time.monotonic()) - started
    return Result(outcome, seconds, process_tree.cpu_seconds(pid) - cpu_seconds, memory)


def _watch_outcome(
    resource: Any, start: dict[str, str], timeout_seconds: float, seen: "queue.SimpleQueue[tuple[float, str]]"
) -> None:
    """Put the first outcome and its time: a watch sees it even if the next run overwrites it immediately."""
    for event in resource.watch(**start, timeout=int(timeout_seconds) + 1):
        if outcome := _outcome(event["raw_object"]):
            seen.put((time.monotonic(), outcome))
            return


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
    deadline = time.monotonic() + _QUIET_SECONDS
    quiet_since, before = time.monotonic(), process_tree.cpu_seconds(pid)
    while time.monotonic() < min(deadline, quiet_since + _QUIET_FOR_SECONDS):
        time.sleep(1.0)
        now = process_tree.cpu_seconds(pid)
        if now - before > _QUIET_SHARE:
            quiet_since = time.monotonic()
        before = now


if __name__ == "__main__":
    sys.exit(main())
