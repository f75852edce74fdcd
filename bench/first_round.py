"""How soon a change reaches a play while an operator goes through all objects after its start.

The objects have been reconciled before, so the first round finds them unchanged. While it lasts, some of those that it
would reach last are changed. The same is done with an operator whose requests have no priorities; the two take turns,
so that what else the machine does meets both. Plays end at once, so a worker is free every few milliseconds.
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
TURNS, QUICK_TURNS = 3, 1
CHANGES = 20
LATENCY_GOAL_MS, LONGER_GOAL_PERCENT = 500.0, 5.0
_PROGRAM = (sys.executable, str(Path(__file__).with_name("instant_operator.py")))
_WORKERS = {"MAX_CONCURRENT_RECONCILES_WIDGET_BENCH_ROLECALL_DEV": "2"}
_SETTLED_SECONDS, _PER_OBJECT_SECONDS = 60.0, 0.1
_ROUND_PER_OBJECT_SECONDS = 0.005  # a first round takes longer than that, so all changes are made in it


@dataclass(slots=True)
class Variant:
    """An operator that is measured, and what its first rounds took."""

    title: str
    command: tuple[str, ...]
    seconds: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    """From the answer to a change to the start of the play, in milliseconds."""

    def rows(self, count: int) -> list[Row]:
        """Tell of the rounds; the goal is for the operator as it is."""
        goal = None if ONE_PRIORITY in self.command else LATENCY_GOAL_MS
        latencies = Samples(self.latencies)
        remark = f"{len(self.latencies)} changes, median {number(latencies.median)} ms"
        what = f"{count:,} objects, first round, {self.title}"
        spread = f"median of {len(self.seconds)}, {Samples(self.seconds).spread}"
        return [
            Row(f"{what}: from a change to the start of its play, at most", max(self.latencies), "ms", goal, remark),
            Row(f"{what}: until all were reconciled", statistics.median(self.seconds), "s", remark=spread),
        ]


async def measure(stage: Stage, *, is_quick: bool) -> list[Row]:
    """Measure first rounds with and without priorities in turns."""
    count, turns = (QUICK_OBJECTS, QUICK_TURNS) if is_quick else (OBJECTS, TURNS)
    folder = stage.subfolder("first-round")
    widgets.write_project(folder)
    namespace = await stage.namespace("bench-first-round")
    where = widgets.keys(namespace, count)
    progress(f"{count:,} objects: creating them")
    await widgets.create(stage.client, where)
    variants = [Variant("first in, first out", (*_PROGRAM, ONE_PRIORITY)), Variant("priorities", _PROGRAM)]
    first = Variant("new objects", _PROGRAM)
    await _round(stage, folder, first, where, changes=0)
    for turn in range(turns):
        for variant in variants if turn % 2 else reversed(variants):
            await _round(stage, folder, variant, where, changes=CHANGES)
    return [row for variant in variants for row in variant.rows(count)] + [_longer(count, *variants)]


async def _round(stage: Stage, folder: Path, variant: Variant, where: list[ObjectKey], *, changes: int) -> None:
    """Start an operator, change objects during its first round, and wait until all have been reconciled."""
    namespace, count = where[0].namespace, len(where)
    environment = {"KUBECONFIG": str(stage.kubeconfig), "WATCH_NAMESPACE": namespace, **_WORKERS}
    async with running(variant.command, folder, environment) as operator:
        await operator.ready()
        answered = await _change(stage, where, changes)
        plays = operator.plays
        within = _SETTLED_SECONDS + count * _PER_OBJECT_SECONDS
        await plays.wait(lambda: len(plays.last) == count and _have_started(operator, answered), within)
        variant.seconds.append(max(plays.last.values()) - plays.first)
        variant.latencies += [1000 * (plays.last[name] - moment) for name, moment in answered.items()]
        await until(lambda: widgets.are_settled(stage.client, namespace), _SETTLED_SECONDS, "every status is written")
    told = f"; a change waited {max(variant.latencies):,.0f} ms at most" if changes else ""
    progress(f"{variant.title}: {count:,} objects in {variant.seconds[-1]:.1f} s{told}")


async def _change(stage: Stage, where: list[ObjectKey], changes: int) -> dict[str, float]:
    """Change some of the last objects, spread over the round; return when each change was answered."""
    answered = {}
    for key in where[len(where) - changes :]:
        await asyncio.sleep(len(where) * _ROUND_PER_OBJECT_SECONDS / changes)
        await widgets.change(stage.client, key, time.monotonic_ns())
        answered[str(key)] = time.monotonic()
    return answered


def _have_started(operator: Operator, answered: dict[str, float]) -> bool:
    return all(operator.plays.last[name] > moment for name, moment in answered.items())


def _longer(count: int, before: Variant, after: Variant) -> Row:
    more = [100 * (new / old - 1) for old, new in zip(before.seconds, after.seconds, strict=True)]
    remark = f"median of {len(more)} turns, {Samples(more).spread}"
    what = f"{count:,} objects: the first round takes longer with priorities by"
    return Row(what, statistics.median(more), "%", LONGER_GOAL_PERCENT, remark)
