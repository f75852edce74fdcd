"""Existing operator projects, run by rolecall and by a peer: ``python -m bench.field PROJECTS.yaml --peer PATH``.

For each project, each runner, and each round: a new control plane, the project's CRDs, the runner in a copy of the
project as its home directory, and one object. The time goes from the request that creates the object to the first
status with an outcome; CPU time and peak memory are those of the runner's whole process tree over that time. When the
runner is quiet, the objects that it has written are compared with those of the peer. The report, in Markdown, goes to
standard output, progress to standard error. ``bench/README.md`` describes how to read it.
"""

import argparse
import asyncio
import itertools
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml
from bench.contenders import PEER, WARM, Contender
from bench.field_objects import Comparison, Objects, compare, snapshot, written
from bench.field_projects import NAMESPACE, Project, read_projects, with_own_flags
from bench.isolation import isolated
from bench.observer import SUCCESSFUL, outcome_of
from bench.operator_process import STARTED, Operator, clean_environment, program, running
from bench.report import Collection, Measure, table
from bench.stage import Kubectl, print_report, progress

from rolecall.kube.client import Client
from rolecall.kube.errors import KubeError
from rolecall.kube.metadata import metadata_of, resource_version_of
from rolecall.kube.references import GVK, RawObject
from rolecall.workbench.controlplane import ControlPlane, ControlPlaneError

_MEMORY_SECONDS, _QUIET_SECONDS, _MAX_QUIET_SECONDS = 0.5, 3.0, 300.0
_TASK: Final = re.compile(r"(?:TASK|RUNNING HANDLER) \[([^\]\n]+)\]((?:(?!(?:TASK|RUNNING HANDLER) \[).)*)", re.DOTALL)
_FATAL: Final = re.compile(r"(?:fatal|failed): \[(?!.*\.\.\.ignoring)", re.DOTALL)
"""The failure of a task, or of an item of its loop, that the role doesn't ignore."""
NOT_RUN: Final = "not run: "
"""How the outcome of a runner starts that a project couldn't be given to."""
_SHOWN_CHARACTERS: Final = 160


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of one project by contender: outcome and objects of the last one, and the figures of each."""

    project: str
    outcomes: dict[str, str] = field(default_factory=dict)
    objects: dict[str, Objects] = field(default_factory=dict)
    seconds: Collection = field(default_factory=Collection)
    cpu_seconds: Collection = field(default_factory=Collection)
    memory_mib: Collection = field(default_factory=Collection)

    @property
    def comparison(self) -> Comparison:
        """The differences between the objects of rolecall and those of the peer; none without a peer."""
        return compare(*self.objects.values()) if len(self.objects) > 1 else Comparison()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all projects and print the report; return 1 if a project's parts are missing, 130 if interrupted."""
    options = parser().parse_args(arguments)
    return print_report(lambda: report(run_projects(options)))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options of ``run_projects``."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.field",
        description="Run existing operator projects with rolecall and a peer; compare outcome, time, and objects.",
        epilog="The file is a list of mappings: project (a directory), object (a file), and optionally name, "
        "collections (a directory with ansible_collections), manifests, variables, arguments.",
    )
    add = parser.add_argument
    add("projects", type=Path, metavar="PROJECTS.yaml", help="the projects, with paths relative to this file")
    add("--peer", type=program, metavar="PATH", help="an ansible-operator to compare with")
    add("--peer-programs", type=Path, metavar="DIR", help="where the peer finds ansible-runner (its directory)")
    add("--rounds", type=int, default=1, metavar="N", help="runs of each project; the report has medians (%(default)d)")
    add("--timeout", type=float, default=900.0, metavar="SECONDS", help="the longest wait for an outcome (%(default)g)")
    add("--home", type=Path, metavar="PATH", help="home directory that runs see, as /opt/ansible; must not exist")
    add("--keep", type=Path, metavar="DIR", help="keep logs and written objects in this directory, which exists")
    return parser


def run_projects(options: argparse.Namespace) -> list[Runs]:
    """Run all projects, alternating between rolecall and the peer. Raise ProjectError if a part of one is missing."""
    programs = Path(sys.executable).parent
    runners = [Contender(WARM, (str(programs / "ansible-operator"), "run"), programs)]
    if options.peer:
        programs = (options.peer_programs or options.peer.parent).absolute()
        runners.append(Contender(PEER, (str(options.peer), "run"), programs))
    found = [(project, Runs(project.name)) for project in read_projects(options.projects)]
    for (project, runs), turn, runner in itertools.product(found, range(options.rounds), runners):
        progress(f"{project.name}: {runner.name}, round {turn + 1} of {options.rounds}")
        runs.objects[runner.name] = {}
        try:
            asyncio.run(_run(project, runner, options, runs))
        except (ControlPlaneError, KubeError, RuntimeError, OSError) as error:
            runs.outcomes[runner.name] = f"{NOT_RUN}{error}"
        progress(f"{project.name}: {runner.name}: {runs.outcomes[runner.name]}")
    return [runs for _, runs in found]


def report(found: Sequence[Runs]) -> str:
    """Return the table, and below it the outcomes and the differences between the objects."""
    measures, details = [], ""
    for runs in found:
        measures.append(Measure(f"{runs.project}: first outcome", "s", runs.seconds.samples))
        measures.append(Measure("… CPU until then, whole tree", "CPU s", runs.cpu_seconds.samples))
        measures.append(Measure("… peak memory until then", "MiB PSS", runs.memory_mib.samples))
        lines = [f"{name}: {' '.join(outcome.split())[:_SHOWN_CHARACTERS]}" for name, outcome in runs.outcomes.items()]
        lines += [*runs.comparison.differences, *(f"(random) {each}" for each in runs.comparison.random)]
        details += f"\n{runs.project}, objects: {runs.comparison}\n\n" + "".join(f"- {line}\n" for line in lines)
    return table(measures, list(found[0].outcomes)) + details


async def _run(project: Project, runner: Contender, options: argparse.Namespace, runs: Runs) -> None:
    """Reconcile a project's object on a new control plane. Raise ControlPlaneError, KubeError, or RuntimeError."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="field-")))
        plane = stack.enter_context(ControlPlane(f"field-{os.getpid()}", state_directory=directory / "state"))
        kubectl = Kubectl(plane)
        kubectl.run("create", "namespace", NAMESPACE)
        for path in project.manifests:
            kubectl.run("apply", "--server-side", f"--namespace={NAMESPACE}", f"--filename={path}")
        kubectl.wait_for_definitions()
        before, home = snapshot(kubectl), directory / "home"
        project.stage(home)
        if options.home:  # the path that the project's roles expect
            options.home.symlink_to(home)
            stack.callback(options.home.unlink)
            home = options.home
        own = {"KUBECONFIG": str(plane.kubeconfig), **project.variables}
        environment = clean_environment(home, runner.programs) | own
        command = with_own_flags([*runner.command, *project.arguments])
        log = (options.keep or directory) / f"{project.name}-{runner.name}.log"
        readable = [plane.kubeconfig.parent, runner.programs, *([project.collections] if project.collections else ())]
        command = isolated(command, directory, readable=readable)
        operator = stack.enter_context(running(command, home, environment, log))
        await operator.logged(STARTED)
        outcome, *figures = await reconcile(project.sample, operator, plane.kubeconfig, options.timeout)
        for collection, figure in zip((runs.seconds, runs.cpu_seconds, runs.memory_mib), figures, strict=True):
            collection.add(runner.name, figure)
        with suppress(RuntimeError):  # later runs write objects too
            await operator.quiet(_QUIET_SECONDS, _MAX_QUIET_SECONDS)
        runs.objects[runner.name] = written(before, snapshot(kubectl))
        log.with_suffix(".yaml").write_text(yaml.safe_dump(runs.objects[runner.name]))
        failed = [name for name, output in _TASK.findall(operator.log) if _FATAL.search(output)]
        runs.outcomes[runner.name] = f"{outcome} in *{failed[-1]}*" if failed and outcome != SUCCESSFUL else outcome


async def reconcile(
    sample: RawObject, operator: Operator, kubeconfig: Path, timeout_seconds: float
) -> tuple[str, float, float, float]:
    """Create an object and return its first outcome, the seconds and CPU seconds until then, and the peak memory."""
    async with await Client.connect(str(kubeconfig)) as client:
        is_namespaced = (await client.resource(GVK.of_object(sample))).namespaced
        obj = {**sample, "metadata": {**sample["metadata"], **({"namespace": NAMESPACE} if is_namespaced else {})}}
        before, started = operator.cpu_seconds, time.monotonic()
        created = await client.create(obj)

        async def first_outcome() -> tuple[str, float]:
            """Return the first outcome and its time: a watch sees it even if the next run overwrites it immediately."""
            place = GVK.of_object(created), metadata_of(created).get("namespace"), resource_version_of(created)
            async for _, seen in client.watch(*place, timeout_seconds):
                if metadata_of(seen).get("name") == obj["metadata"]["name"] and (outcome := outcome_of(seen)):
                    return outcome, time.monotonic()
            return f"no outcome within {timeout_seconds:g} s", time.monotonic()

        watching = asyncio.create_task(first_outcome())
        memory = await operator.peak_mib(watching, _MEMORY_SECONDS)
        exited = f"the runner exited with {operator.process.poll()}", time.monotonic()
        outcome, seen_at = await watching if watching.done() else exited
        watching.cancel()
    return outcome, seen_at - started, operator.cpu_seconds - before, memory


if __name__ == "__main__":
    sys.exit(main())
