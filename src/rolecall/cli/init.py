"""``rolecall init``: creates a project without kinds."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rolecall.workbench.project.scaffold import ProjectFiles


def add_parser(commands: Any) -> None:
    """Add the command to the program."""
    parser = commands.add_parser(
        "init",
        help="create a project",
        description="Creates a project without kinds: a Makefile with 'demo' and 'test', manifests of the operator, "
        "tests, a molecule scenario, a Dockerfile, a README. Existing files are never overwritten: if any are in the "
        "way, the command lists them and writes nothing.",
        epilog="Example: rolecall init --domain example.com web",
    )
    parser.add_argument(
        "project_name",
        metavar="NAME",
        help="the name of the project, such as web; the operator's objects in a cluster get this name",
    )
    parser.add_argument(
        "--domain", required=True, metavar="DOMAIN", help="the domain that API groups end in, such as example.com"
    )
    parser.add_argument("--directory", type=Path, metavar="DIR", help="the directory to write to (default: NAME)")
    parser.set_defaults(handler=_init)


def print_written_files(command: str, files: "ProjectFiles", next_steps: tuple[str, ...]) -> None:
    """Print the files that were written and the next steps."""
    rows = [
        f"rolecall {command}: in {files.directory}",
        *(f"  created  {path}" for path in sorted(files.created)),
        *(f"  extended {path}" for path in sorted(files.extended)),
        "Next:",
        *(f"  {step}" for step in next_steps),
    ]
    sys.stdout.write("\n".join(rows) + "\n")


def _init(options: argparse.Namespace) -> int:
    # Imported late: other commands don't need it.
    from rolecall.workbench.project.scaffold import (  # noqa: PLC0415
        ScaffoldError,
        init_project,
    )

    directory = options.directory or Path(options.project_name)
    try:
        files = init_project(directory, options.project_name, options.domain)
        files.write()
    except ScaffoldError as error:
        sys.stderr.write(f"rolecall init: {error}\n")
        return 1
    enter = () if directory.resolve() == Path.cwd() else (f"cd {directory}",)
    create = "rolecall create api --group apps --version v1 --kind Website"
    print_written_files("init", files, (*enter, create, "make demo"))
    return 0
