"""``rolecall explore``: edits the spec of an object in a sandbox, and compares each end state with a fresh object's.

Each edit is a row on standard output as soon as it was tried; progress goes to standard error. Exit code 0 means that
nothing was found, 2 that something was, 3 that not all could be tried, 1 that the object could not be explored; one
line on standard error gives the reason. 64 means an invalid command line. Ctrl-C ends with what was found before, and
with 130.
"""

import argparse
import asyncio
import random
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
from rolecall.cli.terminal import INTERRUPTED, print_lines, progress_with_lines
from rolecall.runner.config.settings import Settings
from rolecall.system.files import check_writable

if TYPE_CHECKING:
    from rolecall.workbench.explore.results import Exploration

EPILOG = (
    "Give the flags and the environment that the operator has. Exit codes: 0 nothing was found, 2 something was, 3 not "
    "all could be tried, 1 the object could not be explored, 64 an invalid command line."
)
_MAX_SEED = 10_000


def add_parser(commands: Any) -> None:
    """Add the command to the program."""
    parser: Parser = commands.add_parser(
        "explore",
        help="test whether edits of a spec end as a fresh object, without changing anything",
        description="Runs the role of an object in a sandbox of the cluster, edits its spec in many ways, and shows "
        "where the end state differs from that of an object created with the same spec, where the role fails, and what "
        "remains after the deletion. The cluster is only read.",
        epilog=EPILOG,
        formatter_class=FlagFormatter,
    )
    add_objects(
        parser,
        namespace_help="the namespace of the object (default: default)",
        files_help="explore the object in this file; other objects in the file are created first",
    )
    _add_limits(parser)
    add_output_format(parser)
    parser.add_argument(
        "--examples",
        type=Path,
        default=Path("explore"),
        metavar="DIR",
        help="the directory for the shortest example of each finding (default: %(default)s)",
    )
    parser.add_argument(
        "--controllers",
        action="store_true",
        help="run the controllers of Kubernetes, instead of making workloads ready when they are written: slower",
    )
    add_cluster_crds(parser)
    add_run_commands(parser)
    add_flags(parser, Settings(), only=FLAGS)
    parser.usage_exit_code = OTHER_USAGE_EXIT_CODE
    parser.set_defaults(handler=lambda options: _explore(options, parser), only_kind=None, all=False)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--minutes", type=_positive, default=5.0, metavar="N", help="end after this time (default: %(default)g)"
    )
    parser.add_argument("--edits", type=_positive_integer, metavar="N", help="end after this number of edits")
    parser.add_argument("--seed", type=_integer, metavar="N", help="the seed of random choices (default: a random one)")
    parser.add_argument("--field", type=_field, metavar="PATH", help="edit only this field, such as tls.enabled")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="repeat the example in this file")


def _positive(text: str) -> float:
    value = float(text) if is_number(text.replace(".", "", 1)) else 0.0
    if value <= 0:
        raise argparse.ArgumentTypeError(f"expected a positive number, found {text!r}")
    return value


def _positive_integer(text: str) -> int:
    if not is_number(text) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a positive integer, found {text!r}")
    return int(text)


def _integer(text: str) -> int:
    if not is_number(text.removeprefix("-")):
        raise argparse.ArgumentTypeError(f"expected an integer, found {text!r}")
    return int(text)


def _field(text: str) -> str:
    if not (field := text.removeprefix("spec.")):
        raise argparse.ArgumentTypeError(f"expected a field of the spec, such as tls.enabled, found {text!r}")
    return field


def _explore(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    require_one_object(options, parser)
    found = made("explore", lambda: _made(options))
    if isinstance(found, int):
        return found
    # Imported late: this takes a second that other commands don't need.
    from rolecall.workbench.explore.results import document_of, summary_of  # noqa: PLC0415

    if options.output == "json":
        print_document(document_of(found))
    else:
        print_lines(summary_of(found, options.examples))
    return INTERRUPTED if found.was_interrupted else found.exit_code


def _made(options: argparse.Namespace) -> "Exploration":
    """Explore as requested, and print the rows. Raises the errors that ``made`` reports."""
    from rolecall.workbench.explore.explorer import ExploreRequest, explore  # noqa: PLC0415
    from rolecall.workbench.explore.results import Example, header, rows_of  # noqa: PLC0415

    example = Example.read(options.replay) if options.replay else None
    seed = example.seed if example else random.randrange(_MAX_SEED)  # noqa: S311 - a test, no secret
    request = ExploreRequest(
        plan_request(options),
        options.examples,
        seed if options.seed is None else options.seed,
        minutes=options.minutes,
        edits=options.edits or 0,
        only=options.field or "",
        example=example,
    )
    is_text = options.output == "text"
    with _directory(options.examples), progress_with_lines() as (report, show):
        show(header() if is_text else ())
        return asyncio.run(explore(request, report, lambda row: show(rows_of(row) if is_text else ())))


@contextmanager
def _directory(path: Path) -> Iterator[None]:
    """Create the directory for examples before the first one, which may come after minutes; remove it if none came."""
    exists = path.exists()
    try:
        check_writable(path)
    except OSError as error:
        raise OSError(f"--examples {path}: cannot be written: {error.strerror or error}") from error
    try:
        yield
    finally:
        if not exists:
            with suppress(OSError):
                path.rmdir()
