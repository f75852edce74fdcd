"""Play histories of the whole operator in virtual time.

``python -m tests.simulation --help`` describes the options, and the README of the package the design.

The last line on standard output is for people and programs: ``500 histories, 4,012 runs, …; stories 785c603c0b25``.
The last word is a digest of all stories. The exit code is 0 without findings, 1 with findings, and 2 for invalid
arguments.
"""

import argparse
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.simulation import mutants
from tests.simulation.history import Make, Options, Report, play
from tests.simulation.mutants import MUTANTS, find_all
from tests.simulation.pruning import mutants as pruning_mutants
from tests.simulation.pruning.history import FAULTS, PruningHistory
from tests.simulation.pruning.kept import KEPT, play_kept
from tests.simulation.pruning.mutants import PRUNE_MUTANTS
from tests.simulation.pruning.plain import CASES, play_case

_MEMORY = Path("/dev/shm")  # noqa: S108 - files in memory, if there is such a directory


def main(arguments: list[str] | None = None) -> int:
    """Play histories, and return the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    faults = options.faults if options.faults is not None else FAULTS if options.prune else Options().fault_rate
    make = PruningHistory if options.prune else None
    known = PRUNE_MUTANTS if options.prune else MUTANTS
    if options.only not in (None, *known):
        parser.error(f"argument --only: invalid choice: {options.only!r} (choose from {', '.join(sorted(known))})")
    play_options = Options(faults, options.replicas)
    with _directory() as root:
        if options.story is not None:
            return _tell(play(options.story, root / "story", play_options, make))
        if options.mutants:
            mutant_of = (pruning_mutants if options.prune else mutants).mutant_of
            return find_all(root, options.jobs, [options.only] if options.only else list(known), mutant_of)
        missed = _play_cases(root) if options.prune else 0
        return max(missed, _play_all(options.seeds, options.jobs, root, play_options, make))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--seeds", type=_seeds, default=range(1, 101), metavar="1-100", help="the histories to play")
    parser.add_argument("--jobs", type=_positive, default=os.cpu_count() or 1, help="processes (default: one per CPU)")
    parser.add_argument(
        "--faults", type=_share, help=f"share of requests with a fault (default: 0.15, with --prune {FAULTS:g})"
    )
    parser.add_argument("--prune", action="store_true", help="histories and mutants about prune, and its plain cases")
    parser.add_argument("--replicas", type=int, choices=(0, 1, 2, 3), default=0, help="operators; 0: drawn by the seed")
    parser.add_argument("--story", type=int, metavar="SEED", help="print the story of one history")
    parser.add_argument("--mutants", action="store_true", help="plant faults in the operator, and show what finds them")
    names = ", ".join([*sorted(MUTANTS), *sorted(PRUNE_MUTANTS)])
    parser.add_argument("--only", metavar="MUTANT", help=f"with --mutants: only one of {names}")
    return parser


def _seeds(text: str) -> range:
    first, separator, last = text.partition("-")
    try:
        found = range(int(first), int(last if separator else first) + 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a seed or a range such as 1-500, found {text!r}") from None
    if not found:
        raise argparse.ArgumentTypeError(f"expected a range such as 1-500, found {text!r}")
    return found


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"expected a number of at least 1, found {text!r}")
    return int(text)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 1, found {text!r}")
    return share


@contextmanager
def _directory() -> Iterator[Path]:
    """Yield a temporary directory, in memory if possible: a run writes some twenty small files."""
    with tempfile.TemporaryDirectory(prefix="simulation-", dir=_MEMORY if _MEMORY.is_dir() else None) as path:
        yield Path(path)


def _play_cases(root: Path) -> int:
    """Play the cases of prune, those that delete and those that keep, and return the exit code."""
    failed = 0
    tables = (("plain case", CASES, play_case), ("case that keeps an object", KEPT, play_kept))
    for what, table, play_one in tables:
        for number, name in enumerate(table):
            report = play_one(name, root / f"case-{number}")
            failed += bool(report.findings)
            for text in report.findings:
                print(f"{what} {name!r}: {text}")
    print(f"{len(CASES)} plain cases, {len(KEPT)} cases that keep an object; {failed} with findings")
    return 1 if failed else 0


def play_quietly(root: Path, options: Options, make: Make | None, seed: int) -> Report:
    """Play a history; an exception of the history itself is a finding."""
    try:
        return play(seed, root / str(seed), options, make)
    except Exception as error:  # noqa: BLE001 - it is reported
        return Report(seed, [f"the history ended with {error!r}"], [], 0, 0, 0.0, {})


def _play_all(seeds: range, jobs: int, root: Path, options: Options, make: Make | None) -> int:
    digest, runs, requests, failed, virtual_seconds, cpu_seconds = hashlib.sha256(), 0, 0, 0, 0.0, 0.0
    deletions = 0
    started = time.perf_counter()
    with ProcessPoolExecutor(jobs) as pool:
        reports = pool.map(partial(_timed, root, options, make), seeds, chunksize=max(1, min(20, len(seeds) // jobs)))
        for number, (report, seconds) in enumerate(reports, 1):
            digest.update(report.digest.encode())
            cpu_seconds += seconds
            virtual_seconds += report.seconds
            deletions += report.faults.get("deletions", 0)
            runs, requests = runs + report.runs, requests + report.requests
            if report.findings:
                failed += 1
                _progress("")
                for text in report.findings:
                    print(f"seed {report.seed}: {text}")
                print(f"  python -m tests.simulation {_flags(options, make)}--story {report.seed}")
            elapsed = time.perf_counter() - started
            _progress(f"{number} of {len(seeds)} histories, {elapsed:.0f} s")
    _progress("")
    pruned = f"{deletions:,} deletions by prune; " if make else ""
    rate = runs / cpu_seconds if cpu_seconds else 0
    found = f"{failed} with findings; " if failed else ""
    print(
        f"{len(seeds):,} histories, {runs:,} runs, {requests:,} requests, {virtual_seconds:,.0f} virtual s; "
        f"{pruned}{found}"
        f"{rate:.0f} runs/s for each core; stories {digest.hexdigest()[:12]}"
    )
    return 1 if failed else 0


def _timed(root: Path, options: Options, make: Make | None, seed: int) -> tuple[Report, float]:
    started = time.process_time()
    report = play_quietly(root, options, make, seed)
    return report, time.process_time() - started


def _flags(options: Options, make: Make | None) -> str:
    usual = FAULTS if make else Options().fault_rate
    found = "--prune " if make else ""
    found += f"--faults {options.fault_rate:g} " if options.fault_rate != usual else ""
    return found + (f"--replicas {options.replicas} " if options.replicas else "")


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    elif text and text.partition(" ")[0].endswith("00"):
        print(text, file=sys.stderr)


def _tell(report: Report) -> int:
    print("\n".join(report.story))
    for text in report.findings:
        print(f"seed {report.seed}: {text}")
    print(f"story {report.digest}, {report.runs} runs, faults: {report.faults}")
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
