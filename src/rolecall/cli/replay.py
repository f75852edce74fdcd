"""``rolecall replay``: runs the roles of this directory on the records of runs, and compares their writes.

Exit code 0 means that each run would be the same today, 2 that one would write something else, 3 that one is only
complete up to a task, 1 that a role would fail. Standard error has one line for each record that can't be replayed; the
others continue, and the first such record decides the exit code. 64 means an invalid command line. Progress goes to
standard error.
"""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rolecall.cli.parsing import (
    OTHER_USAGE_EXIT_CODE,
    FlagFormatter,
    Parser,
    add_flags,
    ansible_defaults_for,
    search_paths,
    settings_of,
)
from rolecall.cli.plan import FLAGS
from rolecall.cli.terminal import INTERRUPTED, configure_quiet_logs, interrupted_by_signals, print_lines, progress
from rolecall.kube.errors import KubeError
from rolecall.runner.config.ansible_config import check_ansible_core
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.yaml_reader import ConfigurationError
from rolecall.runner.record.reader import exit_codes_text
from rolecall.system.logs import printable
from rolecall.workbench.controlplane.errors import ControlPlaneError

if TYPE_CHECKING:
    from collections.abc import Callable

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
        description="Runs the roles of this directory again on the records that 'rolecall run --record-dir DIR' has "
        "written, in a sandbox of the cluster that each record shows, and shows how their writes differ from those "
        "in the record.",
        epilog=EPILOG,
        formatter_class=FlagFormatter,
    )
    parser.add_argument("records", nargs="+", type=Path, metavar="RECORD", help="a record, or a directory with records")
    parser.add_argument("--summary", action="store_true", help="print one line for each record, without differences")
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="the output format (default: %(default)s)"
    )
    parser.add_argument(
        "--run-commands",
        action="store_true",
        help="really run commands and other actions outside Kubernetes, instead of ending the replay there",
    )
    add_flags(parser, Settings(), only=FLAGS - {"kubeconfig", "ready-conditions"})
    parser.usage_exit_code = OTHER_USAGE_EXIT_CODE
    parser.set_defaults(handler=_replay)


def _replay(options: argparse.Namespace) -> int:
    # Imported late: this takes a second that other commands don't need.
    from rolecall.workbench.plan.sandbox_sources import SourceError  # noqa: PLC0415

    configure_quiet_logs()
    try:
        with interrupted_by_signals(), progress() as report:
            replays = asyncio.run(_replays(options, report))
    except (ConfigurationError, ControlPlaneError, KubeError, SourceError, OSError) as error:
        sys.stderr.write(f"rolecall replay: {printable(' '.join(str(error).split()))}\n")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    _print(replays, options)
    return replays.exit_code


async def _replays(options: argparse.Namespace, report: "Callable[[str], None]") -> "Replays":
    from rolecall.runner.config.watches import parse_watches  # noqa: PLC0415
    from rolecall.workbench.replay.replayer import (  # noqa: PLC0415
        ReplayRequest,
        replay_all,
    )

    check_ansible_core()
    settings = settings_of(options, Settings(), os.environ)
    os.environ.update(search_paths(settings))
    parsed = parse_watches(settings.watches_file, os.environ)
    os.environ.update(ansible_defaults_for(settings, os.environ))
    request = ReplayRequest(settings, parsed, Path.cwd(), runs_commands=options.run_commands)
    return await replay_all(request, options.records, report)


def _print(replays: "Replays", options: argparse.Namespace) -> None:
    from rolecall.workbench.replay.comparison import BadRecord  # noqa: PLC0415
    from rolecall.workbench.replay.output import document_of, lines_of  # noqa: PLC0415

    for each in replays.found:
        if isinstance(each, BadRecord):
            sys.stderr.write(f"rolecall replay: {printable(' '.join(each.text.split()))}\n")
    if options.output == "json":
        sys.stdout.write(json.dumps(document_of(replays), indent=2, ensure_ascii=False) + "\n")
        return
    print_lines(lines_of(replays, is_summary=options.summary))
