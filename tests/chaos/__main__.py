"""``make chaos``: disorder, measured. ``python -m tests.chaos --help`` says what can be asked for.

It starts a control plane of its own and prints a table as Markdown to standard output; progress goes to standard error.
The exit code is 0 if nothing was violated, 1 if something was, 2 if the request cannot be understood. Interrupted, it
prints what it has by then.
"""

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rolecall.workbench.controlplane import ControlPlane, ControlPlaneError
from tests.chaos.campaign import NAMES, carry_out, progress
from tests.chaos.catalogue import GROUPS
from tests.chaos.outcome import Result
from tests.chaos.plan import Plan, counted, timed

_INTERRUPTED = 130
_EPILOG = f"Groups: {', '.join(GROUPS)}. Example: kills=100 outages=30 leaders=30 --seed 7"


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what is asked for, print the table, return the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # being ended shall stop the control plane too
    plan = _plan(options)
    if not any(plan.by_replicas.values()):
        parser.error(f"no disturbance of these groups has {options.only!r} in its name")
    folder = Path(tempfile.mkdtemp(prefix="rolecall-chaos-"))
    result = Result(plan.seed)
    try:
        asyncio.run(_run(plan, folder, result))
    except ControlPlaneError as error:
        progress(f"The control plane could not be used: {error}")
        return 1
    except KeyboardInterrupt:
        sys.stdout.write(_report(result))
        progress(f"Interrupted after {len(result.outcomes)} disturbances; everything is stopped, nothing was compared")
        return _INTERRUPTED
    sys.stdout.write(_report(result))
    if not result.violations:
        shutil.rmtree(folder)
        return 0
    progress(f"The logs of the operators are in {folder}")
    return 1


async def _run(plan: Plan, folder: Path, result: Result) -> None:
    plane = ControlPlane("chaos", state_directory=folder / "control-planes", nodes=3, report=progress)
    await asyncio.to_thread(plane.start)
    try:
        await carry_out(plan, plane, folder, result)
    finally:
        await asyncio.to_thread(plane.stop)


def _report(result: Result) -> str:
    parts = [f"Seed {result.seed}\n", result.table(NAMES), ""]
    parts += [f"- {text}" for text in result.remarks]
    parts += ["", "Violated:", *(f"- {text}" for text in result.violations)] if result.violations else []
    return "\n".join(parts) + "\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make chaos",
        description="Disturbs operators on a control plane of its own and looks whether everything becomes well again.",
        epilog=_EPILOG,
    )
    parser.add_argument("--seed", type=int, default=1, help="what is drawn (default: 1)")
    parser.add_argument("--seconds", type=float, default=300.0, help="how long, unless it is counted (default: 300)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only disturbances whose names contain this")
    parser.add_argument(
        "counts", nargs="*", type=_count, metavar="GROUP=N", help="how often each disturbance of a group happens"
    )
    return parser


def _plan(options: argparse.Namespace) -> Plan:
    if options.counts:
        return counted(options.seed, dict(options.counts), options.only)
    return timed(options.seed, options.seconds, options.only)


def _count(text: str) -> tuple[str, int]:
    group, _, number = text.partition("=")
    if group not in GROUPS or not number.isdecimal():
        raise argparse.ArgumentTypeError(f"expected GROUP=N with one of {', '.join(GROUPS)}, found {text!r}")
    return group, int(number)


if __name__ == "__main__":
    sys.exit(main())
