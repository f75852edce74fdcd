"""``rolecall demo``: runs a project's operator and samples on a temporary control plane."""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from rolecall.cli.cluster import STATE_VARIABLE
from rolecall.cli.flags import DURATION
from rolecall.cli.terminal import INTERRUPTED, interrupted_by_signals
from rolecall.kube.errors import KubeError
from rolecall.workbench.controlplane.errors import ControlPlaneError


def add_parser(commands: Any) -> None:
    """Add the command to the program."""
    parser = commands.add_parser(
        "demo",
        help="run a project's samples on an embedded control plane until all are reconciled",
        description="Starts a control plane, applies the definitions that demo.yaml lists, runs the operator with the "
        "service account from these definitions, applies the samples, and shows a table until every object has reached "
        "the goal in demo.yaml. The exit code is 0 only if every object reaches its goal.",
    )
    parser.add_argument(
        "--project",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="the directory of the project (default: the current directory)",
    )
    parser.add_argument("--name", default="demo", help="the name of the control plane (default: %(default)s)")
    parser.add_argument(
        "--keep", action="store_true", help="leave everything running, with its dashboard, and print how to use it"
    )
    parser.add_argument(
        "--timeout",
        type=DURATION.parse,
        default="5m",
        metavar="DURATION",
        help="give up after this time (default: %(default)s)",
    )
    parser.add_argument(
        "--record-dir",
        type=Path,
        metavar="DIR",
        help="write records of the runs into this directory, for 'rolecall rbac': the operator gets all permissions, "
        "and each object has a second run",
    )
    parser.set_defaults(handler=_demo)


def _demo(options: argparse.Namespace) -> int:
    # Importing the client libraries takes a second, and only this command needs them.
    from rich.console import Console  # noqa: PLC0415

    from rolecall.workbench.project.demo import Options, run_demo  # noqa: PLC0415

    demo_file = options.project.resolve() / "demo.yaml"
    if not demo_file.is_file():
        hint = "run this command in the directory of a project, or use --project"
        sys.stderr.write(f"rolecall demo: file {str(demo_file)!r} not found; {hint}\n")
        return 1
    # Without a terminal (in a CI log), eighty columns would break every row.
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    try:
        state = os.environ.get(STATE_VARIABLE)
        with interrupted_by_signals():
            return run_demo(
                Options(
                    options.project.resolve(),
                    options.name,
                    options.keep,
                    options.timeout,
                    options.record_dir and options.record_dir.resolve(),
                    state_directory=Path(state) if state else None,
                ),
                console,
            )
    except (ControlPlaneError, KubeError, OSError, ValueError) as error:
        sys.stderr.write(f"rolecall demo: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("rolecall demo: interrupted\n")
        return INTERRUPTED
