"""Whether an operator stays within the limits of the shipped Deployment, however long it works: counted, not timed.

Many objects of the four kinds are run again and again by their annotation, each a real run. After each round the memory
of the whole tree and the disk space of all artifacts are written down. Time does not matter for either: both grow with
runs.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import process_tree
from bench.fleet import Fleet, fleet, runs_in
from bench.operator_process import Operator
from bench.report import Row
from bench.stage import Stage, progress

from rolecall.kube.quantities import parse_bytes
from rolecall.runner.runs.artifacts import size_on_disk

MEMORY_MIB = 768.0
"""``resources.limits.memory`` of deploy/operator/deployment.yaml."""

_MIB = 1024**2
_PAUSE_SECONDS, _TELL_SECONDS = 0.5, 120.0
_GROWTH_MIB = 32.0


@dataclass(frozen=True, slots=True)
class Endurance:
    """How many objects, how often each is run again, and how much disk space all artifacts may take."""

    objects: int = 1_000
    rounds: int = 10
    artifacts: str = "1Gi"


QUICK = Endurance(40, 8, "16Mi")


@dataclass(frozen=True, slots=True)
class Round:
    """What was found after a round: memory at its largest and after it, and the disk space of artifacts."""

    peak_mib: float
    quiet_mib: float
    artifacts_mib: float


async def measure(stage: Stage, effort: Endurance) -> list[Row]:
    """Run all objects again and again, and report the largest values and what grew after the second round."""
    work = stage.subfolder("endurance-work")
    objects = await fleet(stage, "endurance", effort.objects, most_in_namespace=100)
    await objects.create()
    async with objects.operator(*_flags(work, effort)) as operator, _told(operator, work):
        await objects.done()
        progress(f"{len(objects.objects)} objects are reconciled, after {runs_in(operator)} runs")
        rounds = [await _round(objects, operator, work, number) for number in range(1, effort.rounds + 1)]
        runs = runs_in(operator)
    limit = parse_bytes(effort.artifacts) / _MIB
    title = f"{effort.objects:,} objects, {runs:,} runs"
    growth = rounds[-1].quiet_mib - rounds[1].quiet_mib
    largest = max(each.artifacts_mib for each in rounds)
    return [
        Row(f"{title}: artifacts on disk", largest, "MiB", limit, f"--max-artifacts-size={effort.artifacts}"),
        Row(f"{title}: memory of the tree at work", max(each.peak_mib for each in rounds), "MiB", MEMORY_MIB, "PSS"),
        Row(f"{title}: growth since the second round", growth, "MiB", _GROWTH_MIB, "PSS after each round"),
    ]


def _flags(work: Path, effort: Endurance) -> tuple[str, ...]:
    return (f"--work-dir={work}", f"--max-artifacts-size={effort.artifacts}", "--run-memory-limit=384Mi")


@asynccontextmanager
async def _told(operator: Operator, work: Path) -> AsyncIterator[None]:
    """Say every few minutes what was measured so far, so that a benchmark that is interrupted was not for nothing."""

    async def tell() -> None:
        while True:
            await asyncio.sleep(_TELL_SECONDS)
            artifacts = await asyncio.to_thread(_artifacts_mib, work)
            memory = await asyncio.to_thread(process_tree.memory_mib, operator.process.pid)
            progress(f"{runs_in(operator)} runs: {memory:.0f} MiB at work, {artifacts:.1f} MiB on disk")

    telling = asyncio.create_task(tell())
    try:
        yield
    finally:
        telling.cancel()


async def _round(objects: Fleet, operator: Operator, work: Path, number: int) -> Round:
    peak = 0.0
    working = asyncio.create_task(objects.reconcile_all(operator, f"round {number}"))
    while not working.done():
        peak = max(peak, await asyncio.to_thread(process_tree.memory_mib, operator.process.pid))
        await asyncio.sleep(_PAUSE_SECONDS)
    await working
    artifacts = await asyncio.to_thread(_artifacts_mib, work)
    found = Round(peak, process_tree.memory_mib(operator.process.pid), artifacts)
    progress(f"Round {number}: {peak:.0f} MiB at work, {found.quiet_mib:.0f} MiB after it, {artifacts:.1f} MiB on disk")
    return found


def _artifacts_mib(work: Path) -> float:
    """Return the disk space of the artifacts of all runs; the folder that each object has anyway does not count."""
    runs = (folder for folder in work.rglob("artifacts/*") if folder.is_dir() and not folder.is_symlink())
    return sum(map(size_on_disk, runs)) / _MIB
