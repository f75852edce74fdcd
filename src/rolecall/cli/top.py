"""``rolecall top``: the dashboard of an operator in a terminal.

Exit code 0 means that the list was printed; 1 that the page could not be read, which one line on standard error
explains; 2 an invalid command line; 130 an interruption, the way to leave the live view.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, Final

from rolecall.cli.parsing import FlagFormatter, Parser
from rolecall.cli.terminal import INTERRUPTED, interrupted_by_signals

_STATES: Final = ("running", "failed", "deleting", "paused", "pending", "succeeded")


def add_parser(commands: Any) -> None:
    """Add the command to the program."""
    parser: Parser = commands.add_parser(
        "top",
        help="show what an operator does, live in the terminal",
        description="Shows the objects of an operator in the terminal, updated every two seconds until Ctrl-C: state, "
        "last run, why it ran, and what an object waits for. Prints the table once if standard output is not a "
        "terminal. The operator must have been started with --ui-bind-address.",
        epilog="In a cluster: kubectl port-forward deployment/NAME 8090",
        formatter_class=FlagFormatter,
    )
    add = parser.add_argument
    add("--url", default="http://127.0.0.1:8090", metavar="URL", help="the page's address (default: %(default)s)")
    add("--token-file", type=Path, metavar="FILE", help="a file with the token of an account that may get the path /ui")
    add("--ca-file", type=Path, metavar="FILE", help="the operator's CA, in PEM (default: the system's)")
    add("--insecure-skip-tls-verify", action="store_true", help="skip TLS certificate verification")
    add("--kind", metavar="KIND", help="only objects of this kind, such as Foo")
    add("-n", "--namespace", metavar="NAMESPACE", help="only objects in this namespace")
    add("--search", metavar="TEXT", help="only objects with this text in their namespace/name")
    add("--state", choices=_STATES, help="only objects in this state")
    add("--sort", default="name", choices=("name", "recent"), help="the order; recent: last run first (default: name)")
    add("--once", action="store_true", help="print the table once, on a terminal too")
    parser.set_defaults(handler=lambda options: _top(options, parser))


def _top(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    # Importing rich and the page takes time that other commands don't need.
    from rolecall.runner.dashboard.views import Query  # noqa: PLC0415
    from rolecall.workbench.top import PageClient, PageError, show  # noqa: PLC0415

    client = PageClient(options.url, options.token_file, options.ca_file, not options.insecure_skip_tls_verify)
    if problem := client.problem:
        parser.error(problem)
    query = Query("", options.namespace or "", options.state or "", options.search or "", options.sort)
    try:
        with interrupted_by_signals():
            show(client, options.kind, query, once=options.once)
    except PageError as error:
        sys.stderr.write(f"rolecall top: {error}\n")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0
