"""``rolecall validate``: checks a project strictly, without running anything and without a cluster.

The command reports all problems together, on standard output. Exit code 0 means no errors, 1 means errors, 2 means an
invalid command line.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from rolecall.cli.run import ansible_operator_program, rolecall_program, settings_of_command
from rolecall.runner.config.settings import Settings
from rolecall.system import logs
from rolecall.system.logs import LogSettings, printable

if TYPE_CHECKING:
    from rolecall.workbench.project.problems import Problem
    from rolecall.workbench.project.validate import Report

DEFAULT_CRD_DIRECTORIES = (Path("deploy/crds"), Path("config/crd/bases"))
DEFAULT_MANIFEST_DIRECTORIES = (Path("deploy"), Path("config"))
_DOCKERFILES = (Path("Dockerfile"), Path("build/Dockerfile"))
_ENTRY_POINT = re.compile(r"^ENTRYPOINT\s+(\[.*\])\s*$", re.MULTILINE | re.IGNORECASE)
_REFERENCE = re.compile(r"\$\(([^)]+)\)")
_COLORS = {"error": "31", "warning": "33"}

EPILOG = (
    "Roles and playbooks are found as 'rolecall run' finds them: from the working directory, ANSIBLE_ROLES_PATH and "
    "ANSIBLE_COLLECTIONS_PATH. Exit codes: 0 no errors, 1 errors, 2 an invalid command line."
)


def add_parser(commands: Any) -> None:
    """Add the command to the program."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "validate",
        help="check watches.yaml, its roles and playbooks without running them",
        description="Checks watches.yaml strictly, checks every file of its roles and playbooks (YAML, tasks, module "
        "names, arguments), compares the arguments with the CRDs, samples, and recorded runs, and checks that the "
        "operator's manifests give it the time, CPUs, disk space, ports, and permissions that it needs. Needs no "
        "cluster, runs nothing, and reports all problems together on standard output.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "--watches-file",
        type=Path,
        default=Path("watches.yaml"),
        metavar="FILE",
        help="the watches file to check (default: %(default)s)",
    )
    parser.add_argument(
        "--crds",
        type=Path,
        action="append",
        metavar="PATH",
        help="a file or directory with CRDs; can be repeated (default: deploy/crds and config/crd/bases, if present)",
    )
    parser.add_argument(
        "--manifests",
        type=Path,
        action="append",
        metavar="PATH",
        help="a file or directory with the operator's manifests; can be repeated (default: deploy and config, if "
        "present)",
    )
    parser.add_argument("--strict", action="store_true", help="treat warnings as errors")
    parser.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help="the output format: one line for each problem, or one JSON object (default: %(default)s)",
    )
    parser.add_argument(
        "--schema", action="store_true", help="print the JSON Schema of watches.yaml for editors, and check nothing"
    )
    parser.set_defaults(handler=lambda options: _validate(options, parser))


def _validate(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    # Imported late: other commands don't need the parsers.
    from rolecall.cli.ansible_environment import check_ansible_core  # noqa: PLC0415
    from rolecall.runner.config.yaml_reader import ConfigurationError  # noqa: PLC0415
    from rolecall.workbench.project.manifests import check_manifests  # noqa: PLC0415
    from rolecall.workbench.project.stale_files import ProjectFiles  # noqa: PLC0415
    from rolecall.workbench.project.validate import validate  # noqa: PLC0415
    from rolecall.workbench.project.watches_schema import schema_text  # noqa: PLC0415

    if options.schema:
        sys.stdout.write(schema_text())
        return 0
    for flag, paths in (("--crds", options.crds), ("--manifests", options.manifests)):
        for path in paths or []:
            if not path.exists():
                parser.error(f"argument {flag}: {str(path)!r} does not exist")
    crds = options.crds or [path for path in DEFAULT_CRD_DIRECTORIES if path.is_dir()]
    manifests = options.manifests or [path for path in DEFAULT_MANIFEST_DIRECTORIES if path.is_dir()]
    logs.configure(LogSettings(level="warning"))
    try:
        check_ansible_core()
        found = check_manifests(manifests, container_settings)
        report = validate(options.watches_file, os.environ, crds, found, ProjectFiles.found_in(Path()))
    except ConfigurationError as error:
        sys.stderr.write(f"rolecall validate: {printable(str(error))}\n")
        return 1
    counted = {severity: sum(each.severity == severity for each in report.problems) for severity in _COLORS}
    lines = _as_json(report, counted) if options.format == "json" else _as_text(report, counted, options.watches_file)
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 1 if counted["error"] or (options.strict and counted["warning"]) else 0


def container_settings(container: Mapping[str, Any]) -> Settings | None:
    """Return the settings of a container that runs an operator, None for other containers and unknown command lines.

    Without a command, a container is an operator if all its arguments are flags of the operator, or if it has none and
    sets variables of Ansible. It then has the entry point of the Dockerfile, or of the runner image.
    """
    from rolecall.workbench.yaml_files import below, listed  # noqa: PLC0415 - as above

    command, arguments = ([str(each) for each in listed(container, key)] for key in ("command", "args"))
    values = {str(below(each).get("name")): below(each).get("value") for each in listed(container, "env")}
    if not command and not arguments and not any(name.startswith("ANSIBLE_") for name in values):
        return None
    words = [
        _REFERENCE.sub(lambda found: str(values.get(found[1]) or found[0]), word)
        for word in (*(command or _entry_point()), *arguments)
    ]
    names = [PurePosixPath(word).name for word in words]
    at = names.index("run") if "run" in names else 0
    programs = {"ansible-operator": ansible_operator_program, "rolecall": rolecall_program}
    if at == 0 or names[at - 1] not in programs or any(_REFERENCE.search(word) for word in words):
        return None
    return settings_of_command(words[at + 1 :], programs[names[at - 1]]())


def _entry_point() -> list[str]:
    """Return the last entry point of the Dockerfile, or that of the runner image."""
    texts = [file.read_text(encoding="utf-8", errors="replace") for file in _DOCKERFILES if file.is_file()]
    found = [each for text in texts for each in _ENTRY_POINT.findall(text)]
    with suppress(ValueError):
        return [str(each) for each in json.loads(found[-1])] if found else ["ansible-operator", "run"]
    return []


def _as_json(report: "Report", counted: dict[str, int]) -> Iterator[str]:
    found = {
        "kinds": report.kinds,
        "contents": report.contents,
        "errors": counted["error"],
        "warnings": counted["warning"],
        "problems": [asdict(each) for each in report.problems],
    }
    yield json.dumps(found, indent=2)


def _as_text(report: "Report", counted: dict[str, int], file: Path) -> Iterator[str]:
    is_colored = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    yield from (_line(each, is_colored=is_colored) for each in report.problems)
    if report.problems:
        yield f"{_number(counted['error'], 'error')}, {_number(counted['warning'], 'warning')}"
    else:
        contents = _number(report.contents, "role or playbook", "roles and playbooks")
        yield f"{file}: {_number(report.kinds, 'kind')}, {contents}, no problems found"


def _line(problem: "Problem", *, is_colored: bool) -> str:
    severity = str(problem.severity)
    if is_colored:
        severity = f"\x1b[{_COLORS[severity]}m{severity}\x1b[0m"
    return f"{problem.place}: {severity}: {problem.text}"


def _number(count: int, one: str, several: str = "") -> str:
    return f"{count} {one if count == 1 else several or f'{one}s'}"
