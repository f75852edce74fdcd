"""``rolecall record``: lists and shows the records of runs that ``rolecall run --record-dir`` has written.

Exit code 0 means that every record could be read, 1 that one could not (one line on standard error says why), 2 an
invalid command line.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

EPILOG = "Records of a run hold what a role works with. Secrets are masked, but treat the files as confidential."


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
        epilog=EPILOG,
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
    from rolecall.record.files import SUFFIX  # noqa: PLC0415 - the other commands need not pay for it
    from rolecall.record.reader import RecordError, read_record  # noqa: PLC0415
    from rolecall.record.rendering import table  # noqa: PLC0415

    directory: Path = options.directory
    if not directory.is_dir():
        return _fail(f"{directory}: not a directory; expected that of 'rolecall run --record-dir'")
    records, code = [], 0
    for path in sorted(directory.glob(f"*{SUFFIX}")):
        try:
            records.append(read_record(path))
        except RecordError as error:
            code = _fail(str(error))
    sys.stdout.writelines(f"{line}\n" for line in table(records))
    return code


def _show(options: argparse.Namespace) -> int:
    from rolecall.record.reader import RecordError, read_record  # noqa: PLC0415
    from rolecall.record.rendering import Rendering  # noqa: PLC0415

    try:
        record = read_record(options.file)
    except RecordError as error:
        return _fail(str(error))
    is_coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    sys.stdout.writelines(f"{line}\n" for line in Rendering(record, is_coloured).lines())
    return 0


def _fail(message: str) -> int:
    sys.stderr.write(f"rolecall record: {message}\n")
    return 1
