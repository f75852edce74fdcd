"""The sections in which contenders run side by side: single objects, and two hundred concurrently.

Every section starts all contenders, each with objects of its own, and lets their samples alternate. *Unchanged* means a
new generation that requests nothing new, so the role looks and finds nothing to do. Times go from the moment before the
request until the watch shows the status.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.contenders import PEER, WORKERS, Contender, rings
from bench.measures import Collection, Goal, Measure, at_most
from bench.report import Samples
from bench.stage import Stage, progress
from bench.subjects import SUBJECTS

PODS_EACH = 2
GO_RUNNER_RATE = 12 / 18.4
"""Reconciles a second of the Go runner on two cores, twelve objects in 18.4 s, on which the goals are based."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How often and with how much everything is measured; slow contenders get less where the report states so."""

    rounds: int = 8
    objects: int = 200
    slow_objects: int = 12
    starts: int = 3


QUICK = Effort(rounds=3, objects=40, slow_objects=8, starts=1)


async def measure_single(stage: Stage, chosen: Sequence[Contender], effort: Effort) -> list[Measure]:
    """Take the time and the CPU time of a reconcile of one unchanged object."""
    measures = []
    async with rings(stage, "single", chosen) as all_rings:
        for subject in SUBJECTS:
            for ring in all_rings:
                keys = ring.keys("single", 1)
                await ring.create_content(subject, keys, PODS_EACH)
                await ring.change(subject, keys)
                await ring.quiet()
            seconds, cpu = Collection(), Collection()
            for _ in range(effort.rounds):
                for ring in all_rings:
                    before = ring.cpu_seconds
                    seconds.add(ring.name, await ring.change(subject, ring.keys("single", 1)))
                    await ring.quiet()
                    cpu.add(ring.name, ring.cpu_seconds - before)
            _tell(f"{subject.title}: one unchanged object", seconds)
            what = f"{subject.title}: unchanged reconcile, one object, from trigger to status written"
            measures.append(Measure(what, "s", seconds.samples, at_most(0.30, 0.20)))
            what = f"{subject.title}: CPU of an unchanged reconcile, whole tree"
            measures.append(Measure(what, "CPU s", _means(cpu), at_most(0.28, 0.18), "mean of all rounds"))
    return measures


async def measure_many(stage: Stage, chosen: Sequence[Contender], effort: Effort) -> list[Measure]:
    """Change only the revision of many objects concurrently, and count reconciles per second."""
    measures = []
    async with rings(stage, "many", chosen) as all_rings:
        for subject in SUBJECTS:
            rates = Collection()
            for ring in all_rings:
                count = effort.slow_objects if ring.contender.is_slow else effort.objects
                keys = ring.keys("many", count)
                await ring.create_content(subject, keys, 1)
                rates.add(ring.name, count / await ring.change(subject, keys))
                await ring.quiet()
            _tell(f"{subject.title}: {effort.objects} unchanged objects, a second", rates)
            what = f"{subject.title}: {effort.objects} unchanged objects"
            remark = f"{WORKERS} workers; {effort.slow_objects} objects only for contenders with a new process per play"
            measures.append(Measure(what, "reconciles/s", rates.samples, _rate_goals(rates), remark))
    return measures


def _means(samples: Collection) -> dict[str, list[float]]:
    """Return the mean of each contender: CPU time is counted in hundredths, so single samples are coarse."""
    return {name: [sum(values) / len(values)] for name, values in samples.samples.items()}


def _rate_goals(rates: Collection) -> tuple[Goal, ...]:
    reference = Samples(rates.samples[PEER]).median if PEER in rates.samples else GO_RUNNER_RATE
    return Goal(least=10 * reference), Goal(least=15 * reference)


def _tell(what: str, samples: Collection) -> None:
    medians = ", ".join(f"{name} {Samples(values).median:.2f}" for name, values in samples.samples.items())
    progress(f"{what}: {medians}")
