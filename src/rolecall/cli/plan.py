"""``rolecall plan``: previews the changes that the roles would make, without changing anything.

Exit code 0 means that nothing would change, 2 that something would, 3 that the plan is only complete up to a task, 1
that there is no plan or that a role would fail; one line on standard error gives the reason. 64 means an invalid
command line. Progress goes to standard error, so that standard output has only the plan.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rolecall.cli.ansible_environment import ansible_defaults_for, check_ansible_core, search_paths
from rolecall.cli.parsing import (
    OTHER_USAGE_EXIT_CODE,
    FlagFormatter,
    Parser,
    add_flags,
    settings_of,
)
from rolecall.cli.terminal import INTERRUPTED, configure_quiet_logs, interrupted_by_signals, print_lines, progress
from rolecall.cli.validate import DEFAULT_CRD_DIRECTORIES
from rolecall.kube.errors import KubeError
from rolecall.kube.references import RawObject
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.yaml_reader import ConfigurationError
from rolecall.system.logs import printable
from rolecall.workbench.controlplane.errors import ControlPlaneError

if TYPE_CHECKING:
    from rolecall.workbench.plan.model import Plan, PlanRequest
    from rolecall.workbench.plan.shown_changes import Findings

ResultT = TypeVar("ResultT")
WatchesT = TypeVar("WatchesT")

FLAGS = frozenset(
    {
        "ansible-args",
        "ansible-collections-path",
        "ansible-roles-path",
        "drop-unknown-options",
        "inject-owner-ref",
        "kubeconfig",
        "mark-unsafe",
        "max-object-values",
        "ready-conditions",
        "reconcile-period",
        "run-timeout",
        "unreachable-ok",
        "warm",
        "watches-file",
    }
)
"""The flags of ``rolecall run`` that decide what a run does."""

EPILOG = (
    "Give the flags and the environment that the operator has. Exit codes: 0 nothing would change, 2 something would, "
    "3 the plan is only complete up to a task, 1 a role would fail or there is no plan, 64 an invalid command line."
)


def add_parser(commands: Any) -> None:
    """Add the command to the program."""
    parser: Parser = commands.add_parser(
        "plan",
        help="preview what the roles would change, without changing anything",
        description="Runs the roles of this directory in a sandbox of the cluster, and shows what they would "
        "change: for one object, for the objects in files as if they had been applied, or for all objects. The "
        "cluster is only read.",
        epilog=EPILOG,
        formatter_class=FlagFormatter,
    )
    _add_subjects(parser)
    _add_output(parser)
    add_flags(parser, Settings(), only=FLAGS)
    parser.usage_exit_code = OTHER_USAGE_EXIT_CODE
    parser.set_defaults(handler=lambda options: _plan(options, parser))


def add_objects(parser: argparse.ArgumentParser, *, namespace_help: str, files_help: str) -> None:
    """Add the arguments that name one object, or files."""
    parser.add_argument("kind", nargs="?", metavar="KIND", help="the kind of the object, or its plural")
    parser.add_argument("name", nargs="?", metavar="NAME", help="the name of the object")
    parser.add_argument("-n", "--namespace", metavar="NAMESPACE", help=namespace_help)
    parser.add_argument(
        "-f", "--file", dest="files", type=Path, nargs="+", action="extend", metavar="FILE", help=files_help
    )


def require_one_object(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """End with a usage error unless the arguments of ``add_objects`` name one object, or files."""
    if bool(options.kind) == bool(options.files):
        parser.error("expected either KIND NAME or -f FILE")
    if options.kind and not options.name:
        parser.error(f"expected the name of the object after {options.kind!r}")


def add_output_format(parser: argparse.ArgumentParser) -> None:
    """Add the flag for the format of the output."""
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="the output format (default: %(default)s)"
    )


def _add_subjects(parser: argparse.ArgumentParser) -> None:
    add_objects(
        parser,
        namespace_help="the namespace of the object, of objects in files that name none, or of all objects "
        "(default: default; WATCH_NAMESPACE for all objects)",
        files_help="plan the objects in this file; can be repeated",
    )
    parser.add_argument("--all", action="store_true", help="plan all objects of the kinds in the watches file")
    parser.add_argument("--kind", dest="only_kind", metavar="KIND", help="with --all: only the objects of this kind")


def _add_output(parser: argparse.ArgumentParser) -> None:
    add_output_format(parser)
    parser.add_argument("--verbose", action="store_true", help="show all findings about unchanged objects, too")
    parser.add_argument(
        "--controllers",
        action="store_true",
        help="also show objects that Kubernetes controllers create and delete as a result, such as pods",
    )
    add_cluster_crds(parser)
    add_run_commands(parser)


def add_cluster_crds(parser: argparse.ArgumentParser) -> None:
    """Add the flag for the definitions of the cluster."""
    parser.add_argument(
        "--cluster-crds",
        action="store_true",
        help="use the CustomResourceDefinitions of the cluster, instead of those in deploy/crds or config/crd/bases",
    )


def add_run_commands(parser: argparse.ArgumentParser) -> None:
    """Add the flag that runs what a planned run would withhold."""
    parser.add_argument(
        "--run-commands",
        action="store_true",
        help="run commands and other actions outside Kubernetes for real, instead of stopping before them",
    )


def _plan(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    _check(options, parser)
    plan = made("plan", lambda: _made(options))
    if isinstance(plan, int):
        return plan
    # Imported late: this takes a second that other commands don't need.
    from rolecall.workbench.comparison.reports import worst_of  # noqa: PLC0415
    from rolecall.workbench.plan.shown_changes import findings_of  # noqa: PLC0415

    findings = findings_of(plan)
    _print(plan, findings, options)
    return worst_of(found.exit_code for found in findings)


def made(command: str, make: Callable[[], ResultT]) -> ResultT | int:
    """Return the result of a command in a sandbox; if there is none, report one line, and return the exit code."""
    from rolecall.workbench.plan.model import PlanError  # noqa: PLC0415
    from rolecall.workbench.plan.sandbox_sources import SourceError  # noqa: PLC0415

    configure_quiet_logs()
    try:
        with interrupted_by_signals():
            return make()
    except (ConfigurationError, ControlPlaneError, KubeError, PlanError, SourceError, OSError) as error:
        sys.stderr.write(f"rolecall {command}: {printable(' '.join(str(error).split()))}\n")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def print_document(document: dict[str, Any]) -> None:
    """Print a JSON document."""
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def _check(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Exit unless the options name exactly one of an object, files, and all objects."""
    asked = [bool(options.kind), bool(options.files), options.all]
    if sum(asked) != 1:
        parser.error("expected one of KIND NAME, -f FILE and --all")
    if options.kind and not options.name:
        parser.error(f"expected the name of the object after {options.kind!r}, or --all --kind {options.kind}")
    if options.only_kind and not options.all:
        parser.error("argument --kind: only with --all; the kind of one object stands before its name")


def _made(options: argparse.Namespace) -> "Plan":
    """Return the requested plan. Raises the errors that ``made`` reports."""
    from rolecall.workbench.plan.planner import make_plan  # noqa: PLC0415

    request = plan_request(options)
    with progress() as report:
        return asyncio.run(make_plan(request, report))


def _project_definitions(*, must_be_valid: bool) -> tuple[RawObject, ...]:
    """Return the CustomResourceDefinitions of the project in the working directory. Raises PlanError."""
    from rolecall.workbench.plan.model import PlanError  # noqa: PLC0415
    from rolecall.workbench.plan.project_source import read_definitions  # noqa: PLC0415
    from rolecall.workbench.project.validate import CrdFiles  # noqa: PLC0415

    files = CrdFiles.read(path for path in DEFAULT_CRD_DIRECTORIES if path.is_dir())
    if files.problems and must_be_valid:
        problem = files.problems[0]
        raise PlanError(f"{problem.place}: {problem.message}; fix it, or use --cluster-crds")
    return read_definitions(json.loads(json.dumps(definition)) for _, definition in files.found)


def settings_and_watches(
    options: argparse.Namespace, read: Callable[[Path, Mapping[str, str]], WatchesT]
) -> tuple[Settings, WatchesT]:
    """Return the settings of a command line, and the watches; prepare the environment for runs.

    Raises ConfigurationError.
    """
    check_ansible_core()
    settings = settings_of(options, Settings(), os.environ)
    os.environ.update(search_paths(settings))
    watches = read(settings.watches_file, os.environ)
    os.environ.update(ansible_defaults_for(settings, os.environ))
    return settings, watches


def plan_request(options: argparse.Namespace) -> "PlanRequest":
    """Return the request of a command line. Raises ConfigurationError, PlanError."""
    from rolecall.runner.config.watches import load_watches  # noqa: PLC0415
    from rolecall.workbench.plan.model import PlanRequest  # noqa: PLC0415

    settings, watches = settings_and_watches(options, load_watches)
    request = PlanRequest(
        settings,
        watches,
        kind=options.kind or options.only_kind or "",
        name=options.name or "",
        namespace=options.namespace or "",
        runs_commands=options.run_commands,
        follows_controllers=options.controllers,
        definitions=_project_definitions(must_be_valid=not options.cluster_crds),
        uses_cluster_definitions=options.cluster_crds,
    )
    return replace(request, files=tuple(options.files or ()), everything=options.all)


def _print(plan: "Plan", findings: "tuple[Findings, ...]", options: argparse.Namespace) -> None:
    from rolecall.workbench.plan.output import document_of, lines_of  # noqa: PLC0415

    if options.output == "json":
        print_document(document_of(plan, findings))
        return
    print_lines(lines_of(plan, findings, lists_unchanged=not options.all, is_verbose=options.verbose))
