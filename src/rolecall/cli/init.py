"""``rolecall init``: a new project, ready for its first kind."""

import argparse
import sys
from pathlib import Path
from typing import Any

from rolecall.scaffold import ProjectFiles, ScaffoldError, init_project


def add_parser(commands: Any) -> None:
    """Add the command to the program."""
    parser = commands.add_parser(
        "init",
        help="start a project of your own",
        description="Writes a project without kinds: a Makefile with 'demo' and 'test', the manifests of the operator, "
        "tests, a molecule scenario, a Dockerfile, a README. Files that are there are never overwritten: if any stands "
        "in the way, all of them are named and nothing is written.",
        epilog="Example: rolecall init --domain example.com web",
    )
    parser.add_argument(
        "project_name",
        metavar="NAME",
        help="the name of the project, such as web; its objects in a cluster have it too",
    )
    parser.add_argument(
        "--domain", required=True, metavar="DOMAIN", help="what the API groups end in, such as example.com"
    )
    parser.add_argument("--directory", type=Path, metavar="DIR", help="where to write it (default: NAME)")
    parser.set_defaults(handler=_init)


def report(command: str, changes: ProjectFiles, next_steps: tuple[str, ...]) -> None:
    """Print what was written and what to do next."""
    rows = [
        f"rolecall {command}: in {changes.folder}",
        *(f"  created  {path}" for path in sorted(changes.created)),
        *(f"  extended {path}" for path in sorted(changes.extended)),
        "Next:",
        *(f"  {step}" for step in next_steps),
    ]
    sys.stdout.write("\n".join(rows) + "\n")


def _init(options: argparse.Namespace) -> int:
    folder = options.directory or Path(options.project_name)
    try:
        changes = init_project(folder, options.project_name, options.domain)
        changes.write()
    except ScaffoldError as error:
        sys.stderr.write(f"rolecall init: {error}\n")
        return 1
    enter = () if folder.resolve() == Path.cwd() else (f"cd {folder}",)
    create = "rolecall create api --group apps --version v1 --kind Website --generate-role"
    report("init", changes, (*enter, create, "make demo"))
    return 0
