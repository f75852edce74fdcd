"""``rolecall top``: the live page of an operator in a terminal.

Exit code 0 means that it was left, or printed; 1 that the page could not be read, which one line on standard error
explains; 2 an invalid command line.
"""

import argparse
import asyncio
import io
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rolecall.cli.flags.command_line import FlagFormatter
from rolecall.cli.interruption import INTERRUPTED, interrupted_by_signals
from rolecall.cli.parsing import Parser

if TYPE_CHECKING:
    from rolecall.page.views import ListView
    from rolecall.top.client import Access

URL: Final = "http://127.0.0.1:8090"
_STATES: Final = ("running", "failed", "deleting", "paused", "pending", "succeeded")
_UNLIMITED: Final = 1000
"""How wide lines may be where nothing says how wide the output is."""


def add_parser(commands: Any) -> None:
    """Add the command to the program."""
    parser: Parser = commands.add_parser(
        "top",
        help="show what an operator does, live in the terminal",
        description="Shows the live page of an operator in the terminal: the objects with their states, an object with "
        "its conditions and runs, a run as a waterfall. Prints the list once if standard output is not a terminal. The "
        "operator must have been started with --ui-bind-address.",
        epilog="Press ? to see the keys. In a cluster: kubectl port-forward deployment/NAME 8090",
        formatter_class=FlagFormatter,
    )
    _add_access(parser)
    _add_filters(parser)
    parser.add_argument("--once", action="store_true", help="print the list once, on a terminal too")
    parser.set_defaults(handler=lambda options: _top(options, parser))


def _add_access(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", default=URL, metavar="URL", help="the address of the live page (default: %(default)s)")
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="a file with the token of an account that may get the path /ui"
    )
    parser.add_argument(
        "--ca-file",
        type=Path,
        metavar="FILE",
        help="the CA of the operator's certificate, in PEM (default: the system's)",
    )
    parser.add_argument(
        "--insecure-skip-tls-verify", action="store_true", help="accept every certificate, that of an impostor too"
    )


def _add_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kind", metavar="KIND", help="only objects of this kind, such as Foo")
    parser.add_argument("-n", "--namespace", metavar="NAMESPACE", help="only objects in this namespace")
    parser.add_argument("--search", metavar="TEXT", help="only objects with this text in their namespace/name")
    parser.add_argument("--state", choices=_STATES, help="only objects in this state")
    parser.add_argument(
        "--sort",
        default="name",
        choices=("name", "recent"),
        help="the order: recent is the last run first (default: name)",
    )


def _top(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    # Importing rich and aiohttp takes time; the other commands should not pay for it.
    from rolecall.page.views import Query  # noqa: PLC0415
    from rolecall.top.client import Access, PageError, problem_of  # noqa: PLC0415
    from rolecall.top.session import first_list  # noqa: PLC0415

    access = Access(options.url, options.token_file, options.ca_file, not options.insecure_skip_tls_verify)
    if problem := problem_of(access):
        parser.error(problem)
    query = Query(
        kind=options.kind or "",
        namespace=options.namespace or "",
        state=options.state or "",
        text=options.search or "",
        sort=options.sort,
    )
    try:
        with interrupted_by_signals():
            _show(options, access, asyncio.run(first_list(access, query)))
    except PageError as error:
        sys.stderr.write(f"rolecall top: {error}\n")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _show(options: argparse.Namespace, access: "Access", first: "ListView") -> None:
    if options.once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        _print(access, first)
        return
    from rolecall.top.session import show  # noqa: PLC0415

    show(access, first)


def _print(access: "Access", view: "ListView") -> None:
    from rich.console import Console  # noqa: PLC0415

    from rolecall.top.frame import printed  # noqa: PLC0415

    is_terminal = sys.stdout.isatty()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an old encoding has no signs for states
    console = Console(highlight=False, markup=False, emoji=False)
    width = console.width if is_terminal or os.environ.get("COLUMNS") else _UNLIMITED
    for text in printed(access.url, view, width, time.time()):
        if is_terminal:
            console.print(text, soft_wrap=True)
        else:
            sys.stdout.write(f"{text.plain}\n")
