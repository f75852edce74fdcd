"""``rolecall record``: lists and shows the records of runs that ``rolecall run --record-dir`` has written.

Exit code 0 means that every record could be read, 2 an invalid command line. For a record that can't be read, one
line on standard error gives the reason, and the exit code is that of its ``RecordError``.
"""

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from rolecall.runner.record.reader import (
    RecordError,
    UnreadableRecordError,
    exit_codes_text,
    map_strings,
    read_ends,
    read_record,
)
from rolecall.system.logs import printable

CONFIDENTIAL = (
    "Records contain the data that a role works with. Secrets are masked, but treat the files as confidential."
)
EPILOG = f"{CONFIDENTIAL} Exit codes for a bad record: {exit_codes_text()}."


def add_parser(commands: Any) -> None:
    """Add the command and its subcommands to the program."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "record",
        help="list and show the records of runs",
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


def _list(options: argparse.Namespace) -> int:
    from rolecall.runner.record.files import SUFFIX  # noqa: PLC0415 - only this command needs it
    from rolecall.runner.record.timeline import table  # noqa: PLC0415

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
    sys.stdout.writelines(f"{printable(line)}\n" for line in table(records))
    return codes[0] if codes else 0


def _show(options: argparse.Namespace) -> int:
    from rolecall.runner.record.timeline import rendered  # noqa: PLC0415

    try:
        record = read_record(options.file)
    except RecordError as error:
        return _fail(error)
    head, end, exchanges, tasks = map_strings([record.head, record.end, record.exchanges, record.tasks], printable)
    record = replace(record, head=head, end=end, exchanges=tuple(exchanges), tasks=tuple(tasks))
    is_colored = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    sys.stdout.writelines(f"{line}\n" for line in rendered(record, is_colored=is_colored))
    return 0


def _fail(error: RecordError) -> int:
    sys.stderr.write(f"rolecall record: {printable(str(error))}\n")
    return error.exit_code
