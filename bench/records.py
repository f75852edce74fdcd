"""What records cost: the same unchanged objects with records off, in memory (the default), and in files too.

The three operators run at the same time and take turns, so that what else the machine does meets all of them, and each
is the first as often as the others. A turn changes several objects immediately, because CPU time is counted in
hundredths of a second. The differences of turns that belong together are compared, not the totals. Time is that of
single objects, one after the other: it varies by tens of milliseconds, so there are many of them.
"""

import statistics
from collections.abc import Iterator, Sequence

from bench.contenders import WARM, Contender, Ring, contenders, rings
from bench.report import Row, Samples
from bench.stage import Stage, progress
from bench.subjects import SUBJECTS, Subject

from rolecall.kube.references import ObjectKey

OFF, MEMORY, FILES = "records-off", "records-memory", "records-files"
MOST_PERCENT, MOST_MILLISECONDS = 3.0, 3.0
TURNS, QUICK_TURNS = 12, 2
_OBJECTS, _PODS = 8, 4
_SINGLE = 6
"""Objects of a turn whose time is taken."""

_Samples = dict[str, list[float]]


async def measure(stage: Stage, turns: int) -> list[Row]:
    """Reconcile unchanged objects of each subject with and without records."""
    rows: list[Row] = []
    directory = stage.subdirectory("records")
    warm = next(each for each in contenders(None) if each.name == WARM)
    variants = {OFF: ("--record-memory=0",), MEMORY: (), FILES: ("--record-dir", str(directory))}
    chosen = [Contender(name, (*warm.command, *flags)) for name, flags in variants.items()]
    async with rings(stage, "cost", chosen) as all_rings:
        for subject in SUBJECTS:
            cpu, seconds = await turns_of(all_rings, subject, turns)
            rows += _rows(subject, cpu, seconds)
            progress(f"{subject.title}: " + ", ".join(f"{row.what} {row.value:.3g} {row.unit}" for row in rows[-5:]))
    return rows


async def turns_of(all_rings: Sequence[Ring], subject: Subject, turns: int) -> tuple[_Samples, _Samples]:
    """Return, by name, the CPU time of an unchanged reconcile in each turn, and the time of a single one."""
    cpu: _Samples = {ring.name: [] for ring in all_rings}
    seconds: _Samples = {ring.name: [] for ring in all_rings}
    keys = {ring.name: ring.keys("cost", _OBJECTS) for ring in all_rings}
    for ring in all_rings:
        await ring.create_content(subject, keys[ring.name], _PODS)
        await ring.change(subject, keys[ring.name])
        await ring.quiet()
    orders, single_orders = _orders(all_rings), _orders(all_rings)
    for _ in range(turns):
        for ring in next(orders):
            cpu[ring.name].append(await _cpu_of_a_turn(ring, subject, keys[ring.name]))
        for number in range(_SINGLE):
            for ring in next(single_orders):
                seconds[ring.name].append(await ring.change(subject, keys[ring.name][number : number + 1]))
                await ring.quiet()
    return cpu, seconds


def _orders(all_rings: Sequence[Ring]) -> Iterator[list[Ring]]:
    """Yield the operators in an order in which each is first as often as the others."""
    order = list(all_rings)
    while True:
        yield order
        order = [*order[1:], order[0]]


async def _cpu_of_a_turn(ring: Ring, subject: Subject, keys: Sequence[ObjectKey]) -> float:
    """Return the CPU time of one reconcile, the mean of all objects of a turn."""
    before = ring.cpu_seconds
    await ring.change(subject, keys)
    await ring.quiet()
    return (ring.cpu_seconds - before) / len(keys)


def _rows(subject: Subject, cpu: _Samples, seconds: _Samples) -> list[Row]:
    base = statistics.mean(cpu[OFF])
    remark = f"{len(cpu[OFF])} turns of {_OBJECTS} objects, {Samples(cpu[OFF]).spread} CPU s"
    rows = [Row(f"{subject.title}: CPU of an unchanged reconcile without records", base, "CPU s", remark=remark)]
    for name, title in ((MEMORY, "in memory"), (FILES, "in files")):
        goal = name == MEMORY
        more = [100 * (on - off) / base for on, off in zip(cpu[name], cpu[OFF], strict=True)]
        late = [1000 * (on - off) for on, off in zip(seconds[name], seconds[OFF], strict=True)]
        rows.append(_row(f"{subject.title}: … more with records {title}", more, "%", MOST_PERCENT if goal else None))
        what = f"{subject.title}: … later with records {title}"
        rows.append(_row(what, late, "ms", MOST_MILLISECONDS if goal else None))
    return rows


def _row(what: str, differences: Sequence[float], unit: str, goal: float | None) -> Row:
    remark = f"median of {len(differences)} differences, {Samples(differences).spread}"
    return Row(what, statistics.median(differences), unit, goal, remark)
