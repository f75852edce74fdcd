"""The footprint of each contender: memory of its whole tree, idle and at work, and the time of its first reconcile.

Contenders run one after the other here, because processes that share pages would make each other look smaller. Memory
at work is read repeatedly while two workers are busy; the largest sum counts, and reading it slows the runs
down, so no time is taken in the meantime.
"""

import asyncio
from collections.abc import Sequence

from bench.contenders import WORKERS, Contender, create_satisfied, ring
from bench.report import Collection, Measure
from bench.stage import Stage, progress
from bench.subjects import PLAIN, PODS_EACH, SUBJECTS

from rolecall.kube.references import ObjectKey

_PAUSE_SECONDS = 0.02
_OBJECTS, _SLOW_OBJECTS = 12, 4
_FIRST_SECONDS = 60.0


async def measure_memory(stage: Stage, chosen: Sequence[Contender]) -> list[Measure]:
    """Memory of the tree while nothing happens, and what each concurrent run adds at most."""
    idle, added = Collection(), {subject.title: Collection() for subject in SUBJECTS}
    for each in chosen:
        async with ring(stage, each, await stage.namespace(f"memory-{each.name}")) as alone:
            keys = alone.keys("memory", _SLOW_OBJECTS if each.is_slow else _OBJECTS)
            for subject in SUBJECTS:
                await alone.create_content(subject, keys, PODS_EACH)
            base = alone.operator.memory_mib
            idle.add(each.name, base)
            for subject in SUBJECTS:
                working = asyncio.create_task(alone.change(subject, keys))
                peak = await alone.operator.peak_mib(working, _PAUSE_SECONDS)
                await working
                await alone.quiet()
                added[subject.title].add(each.name, (peak - base) / WORKERS)
                progress(f"{each.name}: {base:.0f} MiB idle, {peak:.0f} MiB with {WORKERS} runs of {subject.title}")
    measures = [Measure("memory of the tree, idle after its first reconciles", "MiB PSS", idle.samples, (200.0,))]
    for title, each_added in added.items():
        what = f"{title}: memory for each concurrent run, above idle"
        measures.append(Measure(what, "MiB PSS", each_added.samples, (40.0,)))
    return measures


async def measure_start(stage: Stage, chosen: Sequence[Contender]) -> list[Measure]:
    """From the start of the operator's process until the status of a changed object is written."""
    seconds = Collection()
    namespaces = {each.name: await stage.namespace(f"start-{each.name}") for each in chosen}
    for number in range(stage.effort.starts):
        for each in chosen:
            key = ObjectKey(namespaces[each.name], f"n-{number}")
            created = await create_satisfied(stage, PLAIN, key)
            async with ring(stage, each, key.namespace) as alone:
                seconds.add(each.name, await alone.seconds_from_start(PLAIN, created, _FIRST_SECONDS))
                await alone.quiet()
            await stage.client.delete(PLAIN.gvk, key)
    for name, values in seconds.samples.items():
        progress(f"{name}: first reconcile done after {', '.join(f'{value:.2f}' for value in values)} s")
    what = "start of the operator, until its first reconcile is done"
    return [Measure(what, "s", seconds.samples, (3.0,), "an unchanged object of the plain role")]
