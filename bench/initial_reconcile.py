"""Latency of changes during the initial reconcile of all objects after the start.

The objects have the status of an earlier success, so the initial reconcile finds them unchanged and writes nothing. In
the meantime, the benchmark changes some of the last objects. An operator without priorities takes turns with it, so
that other work on the machine affects both. Plays end immediately, so a worker is free
every few milliseconds.
"""

import asyncio
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench import widgets
from bench.instant_operator import ONE_PRIORITY
from bench.operator_process import Operator, running
from bench.report import Row, Samples, number
from bench.stage import Stage, progress, until

from rolecall.kube.references import ObjectKey

OBJECTS, QUICK_OBJECTS = 10_000, 1_000
TURNS = 2
CHANGES = 20
LATENCY_GOAL_MS, LONGER_GOAL_PERCENT = 500.0, 5.0
_PROGRAM = (sys.executable, str(Path(__file__).with_name("instant_operator.py")))
_WORKERS = {"MAX_CONCURRENT_RECONCILES_WIDGET_BENCH_ROLECALL_DEV": "2"}
_SETTLED_SECONDS, _PER_OBJECT_SECONDS = 60.0, 0.1
_ROUND_PER_OBJECT_SECONDS = 0.005  # an initial reconcile takes longer, so all changes are made during it


@dataclass(slots=True)
class Variant:
    """An operator that is measured, and its initial reconciles."""

    title: str
    command: tuple[str, ...]
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    """From the answer to a change to the start of the play, in milliseconds."""

    def rows(self, count: int) -> list[Row]:
        """Tell of the rounds; the goal is for the operator as it is."""
        goal = None if ONE_PRIORITY in self.command else LATENCY_GOAL_MS
        latencies = Samples(self.latencies)
        remark = f"{len(self.latencies)} changes, median {number(latencies.median)} ms"
        what = f"{count:,} objects, initial reconcile, {self.title}"
        spread = f"median of {len(self.seconds)}, {Samples(self.seconds).spread}"
        cpu = f"median of {len(self.cpu_seconds)}, {Samples(self.cpu_seconds).spread}"
        return [
            Row(f"{what}: from a change to the start of its play, at most", max(self.latencies), "ms", goal, remark),
            Row(f"{what}: until all were reconciled", statistics.median(self.seconds), "s", remark=spread),
            Row(f"{what}: the operator's CPU until then", statistics.median(self.cpu_seconds), "s", remark=cpu),
        ]


async def measure(stage: Stage, *, is_quick: bool) -> list[Row]:
    """Measure initial reconciles with and without priorities in turns."""
    count = QUICK_OBJECTS if is_quick else OBJECTS
    directory = stage.subdirectory("initial-reconcile")
    widgets.write_project(directory)
    namespace = await stage.namespace("bench-initial-reconcile")
    where = widgets.keys(namespace, count)
    progress(f"{count:,} objects: creating them")
    await widgets.create(stage.client, where)
    progress(f"{count:,} objects: giving them a status")
    await widgets.report(stage.client, where, widgets.success())
    variants = [Variant("first in, first out", (*_PROGRAM, ONE_PRIORITY)), Variant("priorities", _PROGRAM)]
    for turn in range(TURNS):
        for variant in variants if turn % 2 else reversed(variants):
            await _round(stage, directory, variant, where)
    return [row for variant in variants for row in variant.rows(count)] + _longer(count, *variants)


async def _round(stage: Stage, directory: Path, variant: Variant, where: list[ObjectKey]) -> None:
    """Start an operator, change objects during its initial reconcile, and wait until all have been reconciled."""
    namespace, count = where[0].namespace, len(where)
    environment = {"KUBECONFIG": str(stage.kubeconfig), "WATCH_NAMESPACE": namespace, **_WORKERS}
    async with running(variant.command, directory, environment) as operator:
        await operator.ready()
        cpu = operator.cpu_seconds
        answered = await _change(stage, where)
        plays = operator.plays
        within = _SETTLED_SECONDS + count * _PER_OBJECT_SECONDS
        await plays.wait(lambda: len(plays.last) == count and _have_started(operator, answered), within)
        variant.cpu_seconds.append(operator.cpu_seconds - cpu)
        variant.seconds.append(max(plays.last.values()) - plays.first)
        variant.latencies += [1000 * (plays.last[name] - moment) for name, moment in answered.items()]
        waited = f"a change waited {max(variant.latencies[-CHANGES:]):,.0f} ms at most"
        progress(f"{variant.title}: {count:,} objects in {variant.seconds[-1]:.1f} s; {waited}")
        await until(lambda: widgets.are_settled(stage.client, namespace), _SETTLED_SECONDS, "every status is written")


async def _change(stage: Stage, where: list[ObjectKey]) -> dict[str, float]:
    """Change some of the last objects, spread over the round; return when each change was answered."""
    answered = {}
    for key in where[-CHANGES:]:
        await asyncio.sleep(len(where) * _ROUND_PER_OBJECT_SECONDS / CHANGES)
        await widgets.change(stage.client, key, time.monotonic_ns())
        answered[str(key)] = time.monotonic()
    return answered


def _have_started(operator: Operator, answered: dict[str, float]) -> bool:
    return all(operator.plays.last[name] > moment for name, moment in answered.items())


def _longer(count: int, before: Variant, after: Variant) -> list[Row]:
    """Compare the rounds of turns that belong together."""
    seconds, cpu = (_more(before.seconds, after.seconds), _more(before.cpu_seconds, after.cpu_seconds))
    what = f"{count:,} objects: with priorities, the initial reconcile"
    return [
        Row(f"{what} takes longer by", statistics.median(seconds), "%", LONGER_GOAL_PERCENT, Samples(seconds).spread),
        Row(f"{what} takes more CPU of the operator by", statistics.median(cpu), "%", remark=Samples(cpu).spread),
    ]


def _more(before: list[float], after: list[float]) -> list[float]:
    return [100 * (new / old - 1) for old, new in zip(before, after, strict=True)]
