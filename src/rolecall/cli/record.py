"""``rolecall record``: lists, shows and compares the records of runs that ``rolecall run --record-dir`` has written.

Exit code 0 means that every record could be read, 2 an invalid command line. For a record that could not be read, one
line on standard error says why, and the exit code is that of its ``RecordError``.
For ``compare``, 2 means that something was not as planned, and 64 an invalid command line.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from rolecall.cli.parsing import OTHER_USAGE_EXIT_CODE, Parser
from rolecall.record.reader import RecordError, UnreadableRecordError, exit_codes_text, read_ends, read_record

DIFFERENT = 2
CONFIDENTIAL = "Records of a run hold what a role works with. Secrets are masked, but treat the files as confidential."
EPILOG = f"{CONFIDENTIAL} Exit codes for a bad record: {exit_codes_text()}."


def add_parser(commands: Any) -> None:
    """Add the command and its subcommands to the program."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "record",
        help="list, show and compare the records of runs",
        description="Reads the records that 'rolecall run --record-dir DIR' writes.",
        epilog=EPILOG,
    )
    below = parser.add_subparsers(title="commands", metavar="COMMAND")
    lister = below.add_parser(
        "list",
        help="list the records in a directory",
        description="Lists the records in a directory, the oldest first.",
        epilog=f"{EPILOG} If several records are bad, the first one decides.",
    )
    lister.add_argument("directory", type=Path, metavar="DIR", help="the directory of --record-dir")
    lister.set_defaults(handler=_list)
    shower = below.add_parser(
        "show",
        help="show a record",
        description="Shows a record: what started the run, its tasks and their requests, writes as diffs, the end.",
        epilog=EPILOG,
    )
    shower.add_argument("file", type=Path, metavar="FILE", help="the record")
    shower.set_defaults(handler=_show)
    _add_compare(below)


def _add_compare(commands: Any) -> None:
    comparer: Parser = commands.add_parser(
        "compare",
        help="compare what runs wrote with what a plan has said before",
        description="Compares the writes of recorded runs with those of a plan that was made before, and says for each "
        "role how many objects were treated as planned. Of each object as many records count as the plan had rounds, "
        "the oldest first.",
        epilog=f"Exit codes: 0 everything was as planned, 2 something was not, 1 the plan cannot be read or no record "
        f"is of a planned object; {exit_codes_text()}; 64 an invalid command line.",
    )
    comparer.add_argument(
        "--against",
        type=Path,
        required=True,
        metavar="PLAN",
        help="a file with what 'rolecall plan --output json' has printed",
    )
    comparer.add_argument(
        "records", nargs="+", type=Path, metavar="RECORD", help="a record, or a directory with records"
    )
    comparer.usage_exit_code = OTHER_USAGE_EXIT_CODE
    comparer.set_defaults(handler=_compare)


def _list(options: argparse.Namespace) -> int:
    from rolecall.record.files import SUFFIX  # noqa: PLC0415 - the other commands need not pay for it
    from rolecall.record.rendering import table  # noqa: PLC0415

    directory: Path = options.directory
    try:
        paths = sorted(path for path in directory.iterdir() if path.name.endswith(SUFFIX))
    except OSError as error:
        hint = "expected the directory of 'rolecall run --record-dir'"
        return _fail(UnreadableRecordError(f"{directory}: cannot be read: {error.strerror}; {hint}"))
    records, codes = [], []
    for path in paths:
        try:
            records.append(read_ends(path))
        except RecordError as error:
            codes.append(_fail(error))
    sys.stdout.writelines(f"{line}\n" for line in table(records))
    return codes[0] if codes else 0


def _show(options: argparse.Namespace) -> int:
    from rolecall.record.rendering import Rendering  # noqa: PLC0415

    try:
        record = read_record(options.file)
    except RecordError as error:
        return _fail(error)
    is_coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    sys.stdout.writelines(f"{line}\n" for line in Rendering(record, is_coloured).lines())
    return 0


def _compare(options: argparse.Namespace) -> int:
    from rolecall.plan.agreement import AgreementError, agreement_of, read_plan  # noqa: PLC0415
    from rolecall.record.files import SUFFIX  # noqa: PLC0415

    try:
        plan = read_plan(options.against)
        paths = [found for path in options.records for found in (path.glob(f"*{SUFFIX}") if path.is_dir() else [path])]
        agreement = agreement_of(plan, [read_record(path) for path in paths])
    except RecordError as error:
        return _fail(error)
    except AgreementError as error:
        sys.stderr.write(f"rolecall record: {error}\n")
        return 1
    if not agreement.objects:
        sys.stderr.write(f"rolecall record: none of the records is of an object in {options.against}\n")
        return 1
    for each in agreement.objects:
        if not each.is_as_planned:
            sys.stdout.write(f"{each.name}: {each.agreed} of {each.total} writes as planned\n")
            sys.stdout.writelines(f"  {line}\n" for line in each.diffs)
    sys.stdout.writelines(f"{name}: no record\n" for name in agreement.unrecorded)
    for role, objects in agreement.by_role().items():
        agreed = sum(each.is_as_planned for each in objects)
        sys.stdout.write(f"{role}: {agreed} of {len(objects)} objects as planned ({agreed / len(objects):.0%})\n")
    return 0 if all(each.is_as_planned for each in agreement.objects) else DIFFERENT


def _fail(error: RecordError) -> int:
    sys.stderr.write(f"rolecall record: {error}\n")
    return error.exit_code
