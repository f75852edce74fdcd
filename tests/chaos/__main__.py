"""``make chaos``: inject faults, check invariants, and measure recovery (``--help`` lists the options).

It starts its own control plane, prints a Markdown table to standard output, and progress to standard error. The exit
code is 0 without violations, 1 with violations, and 2 for invalid arguments. When interrupted, it prints the results so
far.
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
from tests.chaos.campaign import NAMES, progress, run_campaign
from tests.chaos.outcome import Result
from tests.chaos.plan import GROUPS, Plan, counted, timed

_INTERRUPTED = 130
_EPILOG = f"Groups: {', '.join(GROUPS)}. Example: kills=100 outages=30 leaders=30 --seed 7"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign, print the table, and return the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM also stops the control plane
    plan = _plan(options)
    if not any(plan.by_replicas.values()):
        parser.error(f"no fault of these groups contains {options.only!r} in its name")
    directory = Path(tempfile.mkdtemp(prefix="rolecall-chaos-"))
    result = Result(plan.seed)
    try:
        asyncio.run(_run(plan, directory, result))
    except ControlPlaneError as error:
        progress(f"The control plane failed: {error}")
        return 1
    except KeyboardInterrupt:
        sys.stdout.write(_report(result))
        progress(f"Interrupted after {len(result.outcomes)} faults; everything is stopped, no footprints were compared")
        return _INTERRUPTED
    sys.stdout.write(_report(result))
    if not result.violations:
        shutil.rmtree(directory)
        return 0
    progress(f"Operator logs: {directory}")
    return 1


async def _run(plan: Plan, directory: Path, result: Result) -> None:
    plane = ControlPlane("chaos", state_directory=directory / "control-planes", nodes=3, report=progress)
    await asyncio.to_thread(plane.start)
    try:
        await run_campaign(plan, plane, directory, result)
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
        description="Injects faults into operators on a separate control plane and checks whether everything recovers.",
        epilog=_EPILOG,
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the random choices (default: 1)")
    parser.add_argument("--seconds", type=float, default=300.0, help="duration, without GROUP=N (default: 300)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only faults whose names contain TEXT")
    parser.add_argument(
        "counts", nargs="*", type=_count, metavar="GROUP=N", help="inject each fault of a group N times"
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
