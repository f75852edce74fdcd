"""The sections in which contenders run side by side: single objects, twelve concurrently, two hundred, and lost pods.

Every section starts all contenders, each with objects of its own, and lets their samples alternate. *Unchanged* means a
new generation that requests nothing new, so the role looks and finds nothing to do. Times go from the moment before the
request until the watch shows the status, or the pod.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.contenders import PEER, WORKERS, Contender, Ring, rings
from bench.measures import Collection, Goal, Measure, at_most
from bench.report import Samples
from bench.stage import Stage, progress
from bench.subjects import POD, SUBJECTS, Subject

from rolecall.kube.references import ObjectKey

AT_A_TIME = 12
PODS_EACH = 2
GO_RUNNER_RATE = 12 / 18.4
"""Reconciles a second of the Go runner on two cores, as the issue that set the goals measured it."""

_REPLACED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Effort:
    """How often and with how much everything is measured; slow contenders get less where the report states so."""

    rounds: int = 8
    repeats: int = 3
    slow_repeats: int = 1
    objects: int = 200
    slow_objects: int = 12
    words: int = 40
    slow_words: int = 6
    lost: int = 3
    starts: int = 3


QUICK = Effort(rounds=3, repeats=1, objects=40, slow_objects=8, words=15, slow_words=4, lost=1, starts=1)


async def measure_single(stage: Stage, chosen: Sequence[Contender], effort: Effort) -> list[Measure]:
    """Take the time and the CPU time of a reconcile of one unchanged object."""
    measures = []
    async with rings(stage, "single", chosen) as all_rings:
        for subject in SUBJECTS:
            keys = await _settled(all_rings, subject, "single", 1)
            seconds, cpu = Collection(), Collection()
            for _ in range(effort.rounds):
                for ring in all_rings:
                    await _change_once(ring, subject, keys[ring.name], (seconds, cpu))
            _tell(f"{subject.title}: one unchanged object", seconds)
            what = f"{subject.title}: unchanged reconcile, one object, from trigger to status written"
            measures.append(Measure(what, "s", seconds.samples, at_most(0.30, 0.20)))
            what = f"{subject.title}: CPU of an unchanged reconcile, whole tree"
            measures.append(Measure(what, "CPU s", _means(cpu), at_most(0.28, 0.18), "mean of all rounds"))
    return measures


async def measure_twelve(stage: Stage, chosen: Sequence[Contender], effort: Effort) -> list[Measure]:
    """Create twelve objects concurrently with two pods each, then change only their revision."""
    measures = []
    async with rings(stage, "twelve", chosen) as all_rings:
        for subject in SUBJECTS:
            await _settled(all_rings, subject, "first", 1)
            new, unchanged = Collection(), Collection()
            for repeat in range(effort.repeats):
                for ring in all_rings:
                    if repeat < effort.slow_repeats or not ring.contender.is_slow:
                        await _twelve_once(ring, subject, f"r{repeat}", (new, unchanged))
            _tell(f"{subject.title}: {AT_A_TIME} new objects", new)
            _tell(f"{subject.title}: {AT_A_TIME} unchanged objects", unchanged)
            what = f"{subject.title}: {AT_A_TIME} objects creating {PODS_EACH} pods each, until all are Successful"
            measures.append(Measure(what, "s", new.samples, at_most(2.9, 2.0), f"{WORKERS} workers"))
            what = f"{subject.title}: the same {AT_A_TIME} objects, unchanged"
            measures.append(Measure(what, "s", unchanged.samples, at_most(1.8, 1.2), f"{WORKERS} workers"))
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


async def measure_replacement(stage: Stage, chosen: Sequence[Contender], effort: Effort) -> list[Measure]:
    """Delete pods by hand and take the time until each has been replaced."""
    measures = []
    async with rings(stage, "lost", chosen) as all_rings:
        for subject in SUBJECTS:
            seconds = Collection()
            for number in range(effort.lost):
                for ring in all_rings:
                    await _replace_once(ring, subject, ring.keys(f"lost-{number}", 1), seconds)
            _tell(f"{subject.title}: a pod deleted by hand", seconds)
            what = f"{subject.title}: a pod deleted by hand, until its replacement exists"
            measures.append(Measure(what, "s", seconds.samples, at_most(1.0)))
    return measures


async def _settled(
    all_rings: Sequence[Ring], subject: Subject, prefix: str, count: int
) -> dict[str, Sequence[ObjectKey]]:
    """Give each contender objects that have all they request, and return where they lie."""
    keys: dict[str, Sequence[ObjectKey]] = {}
    for ring in all_rings:
        keys[ring.name] = ring.keys(prefix, count)
        await ring.create_content(subject, keys[ring.name], PODS_EACH)
        await ring.change(subject, keys[ring.name])
        await ring.quiet()
    return keys


async def _change_once(
    ring: Ring, subject: Subject, keys: Sequence[ObjectKey], into: tuple[Collection, Collection]
) -> None:
    seconds, cpu = into
    before = ring.cpu_seconds
    seconds.add(ring.name, await ring.change(subject, keys))
    await ring.quiet()
    cpu.add(ring.name, ring.cpu_seconds - before)


async def _twelve_once(ring: Ring, subject: Subject, prefix: str, into: tuple[Collection, Collection]) -> None:
    new, unchanged = into
    keys = ring.keys(prefix, AT_A_TIME)
    new.add(ring.name, await ring.create(subject, keys, PODS_EACH))
    await ring.quiet()
    unchanged.add(ring.name, await ring.change(subject, keys))
    await ring.quiet()


async def _replace_once(ring: Ring, subject: Subject, keys: Sequence[ObjectKey], seconds: Collection) -> None:
    pods = ring.observers[POD]
    await ring.create(subject, keys, PODS_EACH)
    await ring.quiet()
    before = len(pods.arrivals)
    started = time.monotonic()
    await ring.stage.client.delete(POD, await _a_pod_of(ring, subject, keys[0]))
    try:
        await pods.wait(lambda: len(pods.arrivals) > before, _REPLACED_SECONDS)
    except TimeoutError:
        if ring.name != PEER:
            raise
        progress(f"{ring.name}: a pod of {subject.title} was not replaced within {_REPLACED_SECONDS:g} s")
        return
    seconds.add(ring.name, pods.arrivals[before] - started)
    await ring.quiet()


async def _a_pod_of(ring: Ring, subject: Subject, key: ObjectKey) -> ObjectKey:
    async for page, _ in ring.stage.client.list_pages(POD, ring.namespace):
        for pod in page:
            if (pod["metadata"].get("labels") or {}).get(subject.label) == key.name:
                return ObjectKey.of_object(pod)
    raise RuntimeError(f"no pod of {subject.gvk.kind} {key}")


def _means(samples: Collection) -> dict[str, list[float]]:
    """Return the mean of each contender: CPU time is counted in hundredths, so single samples are coarse."""
    return {name: [sum(values) / len(values)] for name, values in samples.samples.items()}


def _rate_goals(rates: Collection) -> tuple[Goal, ...]:
    reference = Samples(rates.samples[PEER]).median if PEER in rates.samples else GO_RUNNER_RATE
    return Goal(least=10 * reference), Goal(least=15 * reference)


def _tell(what: str, samples: Collection) -> None:
    medians = ", ".join(f"{name} {Samples(values).median:.2f}" for name, values in samples.samples.items())
    progress(f"{what}: {medians}")
