"""The sections in which contenders run side by side: single objects, and two hundred concurrently.

Every section starts all contenders, each with objects of its own, and lets their samples alternate. *Unchanged* means a
new generation that requests nothing new, so the role looks and finds nothing to do. Times go from the moment before the
request until the watch shows the status.
"""

import statistics
from collections.abc import Sequence

from bench.contenders import PEER, WORKERS, Contender, rings
from bench.report import Collection, Measure
from bench.stage import Stage, progress
from bench.subjects import PODS_EACH, SUBJECTS

GO_RUNNER_RATE = 12 / 18.4
"""Reconciles a second of the Go runner on two cores: twelve objects in 18.4 s, on which the goals are based."""


async def measure_single(stage: Stage, chosen: Sequence[Contender]) -> list[Measure]:
    """Take the time and the CPU time of a reconcile of one unchanged object."""
    measures = []
    async with rings(stage, "single", chosen) as all_rings:
        for subject in SUBJECTS:
            seconds, cpu = Collection(), Collection()
            for ring in all_rings:
                await ring.create_content(subject, ring.keys("single", 1), PODS_EACH)
                await ring.change(subject, ring.keys("single", 1))
                await ring.quiet()
            for _ in range(stage.effort.rounds):
                for ring in all_rings:
                    before = ring.operator.cpu_seconds
                    seconds.add(ring.contender.name, await ring.change(subject, ring.keys("single", 1)))
                    await ring.quiet()
                    cpu.add(ring.contender.name, ring.operator.cpu_seconds - before)
            progress(f"{subject.title}: one unchanged object: {seconds}")
            what = f"{subject.title}: unchanged reconcile, one object, from trigger to status written"
            measures.append(Measure(what, "s", seconds.samples, (0.30, 0.20)))
            # CPU time is counted in hundredths, so single samples are coarse.
            means = {name: [statistics.mean(values)] for name, values in cpu.samples.items()}
            what = f"{subject.title}: CPU of an unchanged reconcile, whole tree"
            measures.append(Measure(what, "CPU s", means, (0.28, 0.18), "mean of all rounds"))
    return measures


async def measure_many(stage: Stage, chosen: Sequence[Contender]) -> list[Measure]:
    """Change only the revision of many objects concurrently, and count reconciles per second."""
    measures, effort = [], stage.effort
    async with rings(stage, "many", chosen) as all_rings:
        for subject in SUBJECTS:
            rates = Collection()
            for ring in all_rings:
                count = effort.slow_objects if ring.contender.is_slow else effort.objects
                keys = ring.keys("many", count)
                await ring.create_content(subject, keys, 1)
                rates.add(ring.contender.name, count / await ring.change(subject, keys))
                await ring.quiet()
            what = f"{subject.title}: {effort.objects} unchanged objects"
            progress(f"{what}, a second: {rates}")
            reference = statistics.median(rates.samples.get(PEER, [GO_RUNNER_RATE]))
            goals = (10 * reference, 15 * reference)
            remark = f"{WORKERS} workers; {effort.slow_objects} objects only for contenders with a new process per play"
            measures.append(Measure(what, "reconciles/s", rates.samples, goals, remark, are_goals_least=True))
    return measures
