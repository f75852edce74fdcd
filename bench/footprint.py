"""The footprint of each contender: memory of its whole tree, idle and at work, and the time of its first reconcile.

Contenders run one after the other here, because processes that share pages would make each other look smaller. Memory
at work is read repeatedly while two workers are busy; the largest sum counts, and reading it slows the runs
down, so no time is taken in the meantime.

With ``--warm-idle``, rolecall is measured alone: the memory before and after its fork server ends, and the reconcile
that starts the next one, each time followed by a warm one.
"""

import asyncio
import dataclasses
from collections.abc import Sequence
from functools import partial

from bench.contenders import WARM, WORKERS, Contender, contenders, create_satisfied, ring
from bench.operator_process import Operator
from bench.report import Collection, Measure
from bench.stage import Stage, progress
from bench.subjects import PLAIN, PODS_EACH, SUBJECTS

from rolecall.kube.references import ObjectKey

_PAUSE_SECONDS = 0.02
_OBJECTS, _SLOW_OBJECTS = 12, 4
_FIRST_SECONDS = 60.0
_IDLE_SECONDS, _ENDED, _ENDED_SECONDS = 4, "Ending the fork server", 60.0


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


async def measure_idle(stage: Stage) -> list[Measure]:
    """Memory with and without the fork server, and an unchanged reconcile that starts it or finds it there."""
    plain = contenders(None)[0]
    idle = dataclasses.replace(plain, command=(*plain.command, f"--warm-idle={_IDLE_SECONDS}s"))
    before, after, first, first_cpu, warm, warm_cpu = (Collection() for _ in range(6))
    async with ring(stage, idle, await stage.namespace("idle")) as alone:
        operator, keys = alone.operator, alone.keys("idle", 1)
        await alone.create_content(PLAIN, keys, PODS_EACH)
        for number in range(1, stage.effort.rounds + 1):
            await operator.until(partial(_has_ended, operator, number), _ENDED_SECONDS, "the server ends")
            await alone.quiet()
            after.add(WARM, operator.memory_mib)
            for seconds, cpu in ((first, first_cpu), (warm, warm_cpu)):
                used = operator.cpu_seconds
                seconds.add(WARM, await alone.change(PLAIN, keys))
                await alone.quiet()
                cpu.add(WARM, operator.cpu_seconds - used)
            before.add(WARM, operator.memory_mib)
            if not _has_ended(operator, number):
                raise RuntimeError(f"the fork server ended within {_IDLE_SECONDS} s after a run")
            progress(f"{before} MiB, {after} MiB; {first} s, {warm} s")
    remark = f"`--warm-idle={_IDLE_SECONDS}s`"
    return [
        Measure("memory of the tree, idle with its fork server", "MiB PSS", before.samples, remark=remark),
        Measure("… after the fork server has ended", "MiB PSS", after.samples),
        Measure("plain: unchanged reconcile that starts the fork server, until status written", "s", first.samples),
        Measure("… the next one", "s", warm.samples),
        Measure("… CPU of the one that starts the fork server, whole tree", "CPU s", first_cpu.samples),
        Measure("… CPU of the next one", "CPU s", warm_cpu.samples),
    ]


def _has_ended(operator: Operator, times: int) -> bool:
    """Return whether the operator has ended a fork server so many times."""
    return operator.log.count(_ENDED) == times
