"""``rolecall replay``: runs the roles of this directory on the records of runs, and compares their writes.

Exit code 0 means that each run would be the same today, 2 that one would write something else, 3 that one is only
complete up to a task, 1 that a role would fail. Standard error has one line for each record that can't be replayed; the
others continue, and the first such record decides the exit code. 64 means an invalid command line. Progress goes to
standard error.
"""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rolecall.cli.parsing import (
    OTHER_USAGE_EXIT_CODE,
    FlagFormatter,
    Parser,
    add_flags,
)
from rolecall.cli.plan import FLAGS, add_output_format, made, print_document, settings_and_watches
from rolecall.cli.terminal import print_lines, progress
from rolecall.runner.config.settings import Settings
from rolecall.runner.record.reader import exit_codes_text
from rolecall.system.logs import printable

if TYPE_CHECKING:
    from rolecall.workbench.replay.comparison import Replays

EPILOG = (
    "Nothing is sent to a cluster. Exit codes: 0 the same writes, 2 other writes, 3 only complete up to a task, 1 a "
    f"role fails today, a kind or role is not there; {exit_codes_text()}; 64 an invalid command line. If some records "
    "cannot be replayed, the first of these decides."
)


def add_parser(commands: Any) -> None:
    """Add the command to the program."""
    parser: Parser = commands.add_parser(
        "replay",
        help="run the roles on the records of runs, and compare what they write",
        description="Runs the roles of this directory again on the records of 'rolecall run --record-dir DIR', each in "
        "a sandbox built from the record, and shows how their writes differ from the recorded ones.",
        epilog=EPILOG,
        formatter_class=FlagFormatter,
    )
    parser.add_argument("records", nargs="+", type=Path, metavar="RECORD", help="a record, or a directory with records")
    parser.add_argument("--summary", action="store_true", help="print one line for each record, without differences")
    add_output_format(parser)
    parser.add_argument(
        "--run-commands",
        action="store_true",
        help="run commands and other actions outside Kubernetes for real, instead of ending the replay there",
    )
    add_flags(parser, Settings(), only=FLAGS - {"kubeconfig", "ready-conditions"})
    parser.usage_exit_code = OTHER_USAGE_EXIT_CODE
    parser.set_defaults(handler=_replay)


def _replay(options: argparse.Namespace) -> int:
    replays = made("replay", lambda: _made(options))
    if isinstance(replays, int):
        return replays
    _print(replays, options)
    return replays.exit_code


def _made(options: argparse.Namespace) -> "Replays":
    """Return the requested replays. Raises the errors that ``made`` reports."""
    # Imported late: this takes a second that other commands don't need.
    from rolecall.runner.config.watches import parse_watches  # noqa: PLC0415
    from rolecall.workbench.replay.replayer import ReplayRequest, replay_all  # noqa: PLC0415

    with progress() as report:
        settings, parsed = settings_and_watches(options, parse_watches)
        request = ReplayRequest(settings, parsed, Path.cwd(), runs_commands=options.run_commands)
        return asyncio.run(replay_all(request, options.records, report))


def _print(replays: "Replays", options: argparse.Namespace) -> None:
    from rolecall.workbench.replay.comparison import BadRecord  # noqa: PLC0415
    from rolecall.workbench.replay.output import document_of, lines_of  # noqa: PLC0415

    for each in replays.found:
        if isinstance(each, BadRecord):
            sys.stderr.write(f"rolecall replay: {printable(' '.join(each.text.split()))}\n")
    if options.output == "json":
        print_document(document_of(replays))
        return
    print_lines(lines_of(replays, is_summary=options.summary))
