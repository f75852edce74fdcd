"""``rolecall validate``: a strict check of a project, for people and for CI, that runs nothing and needs no cluster.

Everything that is wrong is told at once, on standard output. Exit code 0 says that there is nothing to mend, 1 that
there is, 2 that the command line cannot be meant.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rolecall import logs
from rolecall.logs import LogSettings

if TYPE_CHECKING:
    from rolecall.validation.problem import Problem
    from rolecall.validation.validate import Report

_USUAL_FOLDERS = (Path("deploy/crds"), Path("config/crd/bases"))
_COLOURS = {"error": "31", "warning": "33"}

EPILOG = (
    "Roles and playbooks are found as by 'rolecall run': from the working directory, ANSIBLE_ROLES_PATH and "
    "ANSIBLE_COLLECTIONS_PATH. Exit code: 0 nothing is wrong, 1 something is, 2 the command line is wrong."
)


def add_parser(commands: Any) -> None:
    """Add the command to the program."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "validate",
        help="check watches.yaml, its roles and playbooks, without running anything",
        description="Checks watches.yaml strictly, every file of its roles and playbooks (YAML, tasks, names of "
        "modules, arguments), and compares the arguments with the definitions of the kinds. Needs no cluster, runs "
        "nothing, and tells everything that is wrong at once, on standard output.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "--watches-file",
        type=Path,
        default=Path("watches.yaml"),
        metavar="FILE",
        help="what to check (default: %(default)s)",
    )
    parser.add_argument(
        "--crds",
        type=Path,
        action="append",
        metavar="PATH",
        help="a file or folder with definitions of kinds, may be repeated (default: deploy/crds and config/crd/bases, "
        "where they exist)",
    )
    parser.add_argument("--strict", action="store_true", help="take warnings for errors")
    parser.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help="how to tell it: a line each, or a JSON object (default: %(default)s)",
    )
    parser.set_defaults(handler=lambda options: _validate(options, parser))


def _validate(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    # Loading what reads a project takes a while, which the other commands shall not pay for.
    from rolecall.config.errors import ConfigurationError  # noqa: PLC0415
    from rolecall.validation.validate import validate  # noqa: PLC0415

    for path in options.crds or []:
        if not path.exists():
            parser.error(f"argument --crds: {str(path)!r} is no file and no folder")
    crds = options.crds or [folder for folder in _USUAL_FOLDERS if folder.is_dir()]
    logs.configure(LogSettings(level="warning"))
    try:
        report = validate(options.watches_file, os.environ, crds)
    except ConfigurationError as error:
        sys.stderr.write(f"rolecall validate: {error}\n")
        return 1
    counted = {severity: sum(each.severity == severity for each in report.problems) for severity in _COLOURS}
    lines = _as_json(report, counted) if options.format == "json" else _as_text(report, counted, options.watches_file)
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 1 if counted["error"] or (options.strict and counted["warning"]) else 0


def _as_json(report: "Report", counted: dict[str, int]) -> Iterator[str]:
    found = {
        "kinds": report.kinds,
        "contents": report.contents,
        "errors": counted["error"],
        "warnings": counted["warning"],
        "problems": [each.to_json() for each in report.problems],
    }
    yield json.dumps(found, indent=2)


def _as_text(report: "Report", counted: dict[str, int], file: Path) -> Iterator[str]:
    is_coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    yield from (_line(each, is_coloured=is_coloured) for each in report.problems)
    if report.problems:
        yield f"{_number(counted['error'], 'error')}, {_number(counted['warning'], 'warning')}"
    else:
        contents = _number(report.contents, "role or playbook", "roles and playbooks")
        yield f"{file}: {_number(report.kinds, 'kind')}, {contents}, nothing is wrong"


def _line(problem: "Problem", *, is_coloured: bool) -> str:
    severity = str(problem.severity)
    if is_coloured:
        severity = f"\x1b[{_COLOURS[severity]}m{severity}\x1b[0m"
    return f"{problem.place}: {severity}: {problem.text}"


def _number(count: int, one: str, several: str = "") -> str:
    return f"{count} {one if count == 1 else several or f'{one}s'}"
