"""``python -m bench.judges DIR``: run the judges whose checkouts are below a directory, and print one table."""

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.isolation import IsolationError, check
from bench.judges import field
from bench.judges.judges import JUDGES, CheckoutError, Judge
from bench.judges.trial import Trial
from bench.judges.verdicts import Judged, report
from bench.stage import progress

from rolecall.workbench.controlplane import ControlPlaneError


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 for an undocumented difference, 2 if no judge can run, 130 when interrupted."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the control planes are stopped then too
    try:
        check()
        judged = [_judge(judge, checkout, options) for judge, checkout in _chosen(options)]
        projects = options.directory / field.FILE
        if projects.exists() and (not options.judge or field.NAME in options.judge):
            judged.append(field.run_projects(projects.absolute(), options))
    except (CheckoutError, IsolationError) as error:
        progress(f"No judge can run: {error}")
        return 2
    except KeyboardInterrupt:
        progress("Interrupted; everything is stopped")
        return 130
    sys.stdout.write(report(judged))
    return int(any(each.fails for each in judged))


def _parser() -> argparse.ArgumentParser:
    checkouts = ", ".join(sorted({each.directory for each in JUDGES if each.directory}))
    parser = argparse.ArgumentParser(
        prog="python -m bench.judges",
        description="Run tests of other projects directly and through the operator, cold and warm, and compare.",
        epilog=f"Checkouts, each below DIR: {checkouts}; {field.FILE} lists projects for bench.field. A judge without "
        "its checkout is left out, unless --judge names it. Exit code 1: a case that passes directly fails through the "
        "operator, and no documented difference explains it.",
    )
    add = parser.add_argument
    add("directory", type=Path, metavar="DIR", help="the directory with the checkouts")
    add(
        "--judge",
        action="append",
        default=[],
        metavar="NAME",
        help="run only this judge; repeatable: %(choices)s",
        choices=[*(each.name for each in JUDGES), field.NAME],
    )
    add("--case", action="append", default=[], metavar="NAME", help="run only these cases; repeatable")
    add("--timeout", type=float, default=900.0, metavar="SECONDS", help="the longest time for a case (%(default)g)")
    add(
        "--programs",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="in front of PATH, such as a directory with helm; repeatable",
    )
    add(
        "--peer",
        type=Path,
        metavar="PATH",
        help="the ansible-operator of the Operator SDK, for the direct column of its projects",
    )
    add(
        "--peer-programs", type=Path, metavar="DIR", help="where the peer finds ansible-runner (default: its directory)"
    )
    add("--keep", type=Path, metavar="DIR", help="keep the logs in this directory")
    return parser


def _chosen(options: argparse.Namespace) -> list[tuple[Judge, Path]]:
    """Return the judges to run with their checkouts. Raises CheckoutError."""
    if not options.directory.is_dir():
        raise CheckoutError(f"{options.directory} isn't a directory")
    found = []
    for judge in JUDGES:
        if options.judge and judge.name not in options.judge:
            continue
        try:
            found.append((judge, judge.checkout(options.directory.absolute())))
        except CheckoutError as error:
            if options.judge:
                raise
            progress(f"Left out: {error}")
    return found


def _judge(judge: Judge, checkout: Path, options: argparse.Namespace) -> Judged:
    """Run a judge's cases in all columns; what prevents this is the judge's error, so that the others still run."""
    progress(f"{judge.name}: {checkout}")
    try:
        with tempfile.TemporaryDirectory(prefix="judges-stage-") as directory:
            outcomes = Trial(judge, checkout, Path(directory), options).run()
    except (ControlPlaneError, CheckoutError, RuntimeError, OSError) as error:
        progress(f"{judge.name} can't run: {error}")
        return Judged(judge.name, {}, error=str(error))
    return Judged(judge.name, outcomes, judge.differences)


if __name__ == "__main__":
    sys.exit(main())
