"""``rolecall generate``: writes files that follow from others.

``generate crds`` exits with 0 if all is written or in sync, with 1 after an error, and with 64 for an invalid command
line. With ``--check`` it writes nothing and exits with 2 if something would change.
"""

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rolecall.cli.parsing import OTHER_USAGE_EXIT_CODE, Parser
from rolecall.cli.validate import DEFAULT_CRD_DIRECTORIES
from rolecall.system import logs
from rolecall.system.logs import LogSettings

if TYPE_CHECKING:
    from rolecall.workbench.project.crd_schema import Finding

DIFFERENT = 2
EPILOG = (
    "Exit codes: 0 done, or in sync; 1 an error, and then nothing is written; 2 with --check, if something would "
    "change; 64 an invalid command line."
)


def add_parser(commands: Any) -> None:
    """Add the command and its subcommand."""
    generate = commands.add_parser(
        "generate", help="write CRDs from argument specs", description="Writes files that follow from others."
    )
    things = generate.add_subparsers(title="commands", metavar="COMMAND")
    crds: Parser = things.add_parser(
        "crds",
        help="write the fields of CRDs from the argument specs of roles",
        description="Makes the schema of each watched kind's spec match the argument specs of its role: types, "
        "required fields, defaults, choices, elements, nested options, descriptions, and rules between options. Then "
        "the API server itself rejects a spec that the role would reject. Everything else in the files stays: limits, "
        "patterns, columns, the status, rules of your own, comments.",
        epilog=EPILOG,
    )
    crds.add_argument("kinds", nargs="*", default=(), metavar="KIND", help="a kind in watches.yaml (default: all)")
    crds.add_argument("--check", action="store_true", help="write nothing, and print what would change")
    crds.add_argument(
        "--watches-file",
        type=Path,
        default=Path("watches.yaml"),
        metavar="FILE",
        help="the watches file (default: %(default)s)",
    )
    crds.add_argument(
        "--crds",
        type=Path,
        metavar="PATH",
        help="the directory or file with the CRDs (default: deploy/crds, or config/crd/bases if only that exists)",
    )
    crds.usage_exit_code = OTHER_USAGE_EXIT_CODE
    crds.set_defaults(handler=_generate_crds)


def _generate_crds(options: argparse.Namespace) -> int:
    # Imported late: other commands don't need the parsers.
    from rolecall.runner.config.watches import load_watches  # noqa: PLC0415
    from rolecall.runner.config.yaml_reader import ConfigurationError  # noqa: PLC0415
    from rolecall.workbench.project.crd_generation import generate_crds  # noqa: PLC0415

    logs.configure(LogSettings(level="warning"))
    existing = [each for each in DEFAULT_CRD_DIRECTORIES if each.is_dir()]
    directories = [options.crds] if options.crds else existing or [*DEFAULT_CRD_DIRECTORIES[:1]]
    try:
        watches = load_watches(options.watches_file, os.environ)
    except ConfigurationError as error:
        return _failed([str(error)])
    done = generate_crds(watches, options.kinds, directories, os.environ)
    sys.stdout.writelines(_line(each) for each in done.changes)
    sys.stdout.writelines(f"note: {_line(each)}" for each in done.notes)
    sys.stdout.writelines(f"left out: {each}\n" for each in done.skipped)
    if done.errors:
        return _failed(done.errors)
    if not done.changes:
        sys.stdout.write("The CRDs match the argument specs\n")
        return 0
    if options.check:
        sys.stdout.write(f"Out of sync: 'rolecall generate crds' would change {_listed(done.texts)}\n")
        return DIFFERENT
    try:
        for path, text in done.texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        return _failed([f"{path}: cannot be written: {error.strerror}"])
    sys.stdout.write(f"Written: {_listed(done.texts)}\n")
    return 0


def _failed(errors: Iterable[str]) -> int:
    sys.stderr.writelines(f"rolecall generate crds: {each}\n" for each in errors)
    return 1


def _line(finding: "Finding") -> str:
    place = f"{finding.file}:{finding.line}" if finding.line else str(finding.file)
    return f"{place}: {finding.kind} {finding.path}: {finding.text}\n"


def _listed(paths: Iterable[Path]) -> str:
    return ", ".join(sorted(map(str, paths)))
