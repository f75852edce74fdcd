"""Memory and disk usage over many runs, compared with the limits of the shipped Deployment.

The annotation repeatedly triggers real runs of many objects of the four kinds. After each round, the benchmark records
the memory of the process tree and the disk usage of all artifacts. Both grow with runs, not with time.
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
from rolecall.runner.runs.cleanup import size_on_disk

MEMORY_MIB = 768.0
"""``resources.limits.memory`` of deploy/operator/deployment.yaml."""

_MIB = 1024**2
_PAUSE_SECONDS, _REPORT_SECONDS = 0.5, 120.0
_GROWTH_MIB = 32.0


@dataclass(frozen=True, slots=True)
class SoakEffort:
    """Numbers of objects and rounds, and the limit of artifacts on disk."""

    objects: int = 1_000
    rounds: int = 10
    artifacts: str = "1Gi"


QUICK = SoakEffort(40, 8, "16Mi")


@dataclass(frozen=True, slots=True)
class Round:
    """Peak memory during a round, memory after it, and disk usage of artifacts."""

    peak_mib: float
    quiet_mib: float
    artifacts_mib: float


async def measure(stage: Stage, effort: SoakEffort) -> list[Row]:
    """Run all objects repeatedly, and report the largest values and the growth since the second round."""
    work = stage.subdirectory("soak-work")
    objects = await fleet(stage, "soak", effort.objects, most_in_namespace=100)
    await objects.create()
    async with objects.operator(*_flags(work, effort)) as operator, _reported(operator, work):
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


def _flags(work: Path, effort: SoakEffort) -> tuple[str, ...]:
    return (f"--work-dir={work}", f"--max-artifacts-size={effort.artifacts}", "--run-memory-limit=384Mi")


@asynccontextmanager
async def _reported(operator: Operator, work: Path) -> AsyncIterator[None]:
    """Print results every two minutes, so that they survive an interruption."""

    async def report() -> None:
        while True:
            await asyncio.sleep(_REPORT_SECONDS)
            artifacts = await asyncio.to_thread(_artifacts_mib, work)
            memory = await asyncio.to_thread(process_tree.memory_mib, operator.process.pid)
            progress(f"{runs_in(operator)} runs: {memory:.0f} MiB at work, {artifacts:.1f} MiB on disk")

    reporting = asyncio.create_task(report())
    try:
        yield
    finally:
        reporting.cancel()


async def _round(objects: Fleet, operator: Operator, work: Path, number: int) -> Round:
    peak = 0.0
    working = asyncio.create_task(objects.reconcile_all(operator, f"round {number}"))
    while not working.done():
        peak = max(peak, await asyncio.to_thread(process_tree.memory_mib, operator.process.pid))
        await asyncio.sleep(_PAUSE_SECONDS)
    await working
    artifacts = await asyncio.to_thread(_artifacts_mib, work)
    result = Round(peak, process_tree.memory_mib(operator.process.pid), artifacts)
    progress(
        f"Round {number}: {peak:.0f} MiB at work, {result.quiet_mib:.0f} MiB after it, {artifacts:.1f} MiB on disk"
    )
    return result


def _artifacts_mib(work: Path) -> float:
    """Return the disk usage of the artifacts of all runs, excluding the directory of each object."""
    runs = (directory for directory in work.rglob("artifacts/*") if directory.is_dir() and not directory.is_symlink())
    return sum(map(size_on_disk, runs)) / _MIB
