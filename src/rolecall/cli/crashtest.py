"""``rolecall crashtest``: tests in a sandbox whether a role survives being killed after any write.

Each trial is a row on standard output as soon as it has ended; progress goes to standard error. Exit code 0 means that
all trials ended in the same state, 2 that one did not, 3 that not all could be tried, 1 that the test could not be
done; one line on standard error gives the reason. 64 means an invalid command line.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rolecall.cli.flags import is_number
from rolecall.cli.parsing import OTHER_USAGE_EXIT_CODE, FlagFormatter, Parser, add_flags
from rolecall.cli.plan import (
    FLAGS,
    add_cluster_crds,
    add_objects,
    add_output_format,
    add_run_commands,
    made,
    plan_request,
    print_document,
    require_one_object,
)
from rolecall.cli.terminal import (
    print_lines,
    progress_with_lines,
)
from rolecall.runner.config.settings import Settings
from rolecall.system.files import check_writable

if TYPE_CHECKING:
    from rolecall.workbench.crashtest.results import CrashTest

EPILOG = (
    "Give the flags and the environment that the operator has. Exit codes: 0 all trials ended in the same state, 2 one "
    "did not, 3 the role could be tested only up to a task, 1 the test could not be done, 64 an invalid command line."
)


def add_parser(commands: Any) -> None:
    """Add the command to the program."""
    parser: Parser = commands.add_parser(
        "crashtest",
        help="test whether a role survives being killed after any write, without changing anything",
        description="Runs the role of an object in a sandbox of the cluster, kills it and its operator after each of "
        "its writes in turn, lets another operator continue, and shows where the end state differs from that of an "
        "uninterrupted run. The cluster is only read.",
        epilog=EPILOG,
        formatter_class=FlagFormatter,
    )
    _add_subject(parser)
    parser.add_argument(
        "--writes", type=_numbers, metavar="N,N...", help="try only the writes with these numbers (default: all)"
    )
    add_output_format(parser)
    parser.add_argument(
        "--records",
        type=Path,
        metavar="DIR",
        help="the directory for the records of bad trials (default: a new temporary directory)",
    )
    add_cluster_crds(parser)
    add_run_commands(parser)
    add_flags(parser, Settings(), only=FLAGS)
    parser.usage_exit_code = OTHER_USAGE_EXIT_CODE
    parser.set_defaults(
        handler=lambda options: _crashtest(options, parser), only_kind=None, all=False, controllers=False
    )


def _add_subject(parser: argparse.ArgumentParser) -> None:
    add_objects(
        parser,
        namespace_help="the namespace of the object (default: default)",
        files_help="test the object in this file as if the file had been applied; other objects in the file are "
        "created first",
    )
    parser.add_argument("--deletion", action="store_true", help="test the deletion of the object, once it has settled")
    parser.add_argument(
        "--to", type=Path, metavar="FILE", help="test a change of the object to this file, once it has settled"
    )


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(int(part) for part in text.split(",") if is_number(part.strip()))
    if len(numbers) != len(text.split(",")) or 0 in numbers:
        raise argparse.ArgumentTypeError(f"expected numbers of writes such as 3,7, found {text!r}")
    return numbers


def _crashtest(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    require_one_object(options, parser)
    if options.deletion and options.to:
        parser.error("expected at most one of --deletion and --to FILE")
    found = made("crashtest", lambda: _made(options))
    if isinstance(found, int):
        return found
    # Imported late: this takes a second that other commands don't need.
    from rolecall.workbench.crashtest.results import document_of, summary_of  # noqa: PLC0415

    if options.output == "json":
        print_document(document_of(found))
    else:
        print_lines(summary_of(found))
    return found.exit_code


def _made(options: argparse.Namespace) -> "CrashTest":
    """Make the requested crash test, and print its rows. Raises the errors that ``made`` reports."""
    from rolecall.workbench.crashtest.results import rows_of  # noqa: PLC0415
    from rolecall.workbench.crashtest.tester import CrashTestRequest, crash_test  # noqa: PLC0415

    plan = plan_request(options)
    with _directory(options.records) as directory, progress_with_lines() as (report, show):
        request = CrashTestRequest(plan, directory, options.writes or (), deletes=options.deletion, edited=options.to)
        is_text = options.output == "text"
        return asyncio.run(crash_test(request, report, lambda trial: show(rows_of(trial) if is_text else ())))


@contextmanager
def _directory(given: Path | None) -> Iterator[Path]:
    """Yield the directory for records; a temporary one that stays empty is removed."""
    if given is not None:
        check_writable(given)  # the first bad trial may come after minutes
        yield given
        return
    made = Path(tempfile.mkdtemp(prefix="rolecall-crashtest-"))
    try:
        yield made
    finally:
        with suppress(OSError):
            made.rmdir()
