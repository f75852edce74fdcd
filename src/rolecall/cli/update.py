"""``rolecall update``: brings a project to the scaffold of the installed version.

It exits with 0 if the project is up to date, with 1 after an error, with 2 if conflicts remain or, with ``--dry-run``,
if something would change, and with 64 for an invalid command line.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rolecall.cli.parsing import OTHER_USAGE_EXIT_CODE, Parser

if TYPE_CHECKING:
    from rolecall.workbench.project.update import FileUpdate

DIFFERENT = 2
EPILOG = (
    "Exit codes: 0 up to date; 1 an error; 2 conflicts remain, or with --dry-run, something would change; 64 an "
    "invalid command line."
)


def add_parser(commands: Any) -> None:
    """Add the command to the program."""
    parser: Parser = commands.add_parser(
        "update",
        help="bring a project to the files of the installed version",
        description="Merges the changes of the scaffold since 'rolecall init' into the files of the project. Your "
        "changes stay: files that you deleted stay deleted, and where both changed the same lines, conflict markers "
        "show both. Requires Git, with all changes committed.",
        epilog=EPILOG,
    )
    parser.add_argument("--dry-run", action="store_true", help="write nothing, and print the changes")
    parser.add_argument("--force", action="store_true", help="update files with changes that aren't committed")
    parser.add_argument(
        "--project",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="the directory of the project (default: the current directory)",
    )
    parser.usage_exit_code = OTHER_USAGE_EXIT_CODE
    parser.set_defaults(handler=_update)


def _update(options: argparse.Namespace) -> int:
    # Imported late: other commands don't need it.
    from rolecall.workbench.project.scaffold import ScaffoldError  # noqa: PLC0415
    from rolecall.workbench.project.update import Action, check_committed, plan_update, write_update  # noqa: PLC0415

    try:
        update = plan_update(options.project)
        if update.files and not (options.dry_run or options.force):
            check_committed(options.project)
        if not options.dry_run:
            write_update(update)
    except (ScaffoldError, OSError) as error:
        sys.stderr.write(f"rolecall update: {error}\n")
        return 1
    if not update.files:
        sys.stdout.write(f"The project has the files of rolecall {update.after}\n")
        return 0
    sys.stdout.write(f"From rolecall {update.before} to {update.after}, in {options.project}\n")
    sys.stdout.writelines(map(_line, update.files))
    if options.dry_run:
        sys.stdout.writelines(each.difference() for each in update.files)
        return DIFFERENT
    conflicts = [each.path for each in update.files if each.action is Action.CONFLICT]
    if conflicts:
        sys.stderr.write(f"rolecall update: resolve the conflicts, marked with '<<<<<<<', in {', '.join(conflicts)}\n")
        return DIFFERENT
    return 0


def _line(each: "FileUpdate") -> str:
    return f"  {each.action:<8} {each.path}{f': {each.reason}' if each.reason else ''}\n"
