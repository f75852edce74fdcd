"""What traces cost: the same unchanged objects without traces, and with a trace of each reconcile.

The two operators run at the same time and take turns. The spans are made and sent by the operator's own process, so
its CPU time is compared, which varies far less than that of the plays; the goal is a share of a whole reconcile.
A receiver of the official protocol runs in the benchmark's process, and the report states the number of received spans.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.contenders import WARM, Contender, Ring, contenders, rings
from bench.report import Row, Samples
from bench.stage import Stage, progress, until
from bench.subjects import SUBJECTS, Subject
from tests.collector import Collector, http_collector

OFF, ON = "traces-off", "traces-on"
MOST_PERCENT = 2.0
TURNS, QUICK_TURNS = 12, 2
_OBJECTS, _PODS = 8, 4
_SENT_SECONDS = 30.0


@dataclass(slots=True)
class _Times:
    """The CPU time of an unchanged reconcile in each turn: of the operator's process, and of the whole tree."""

    own: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)


async def measure(stage: Stage, turns: int) -> list[Row]:
    """Reconcile unchanged objects of each subject with and without traces."""
    rows: list[Row] = []
    warm = next(each for each in contenders(None) if each.name == WARM)
    with http_collector() as collector:
        traced = ("env", f"OTEL_EXPORTER_OTLP_ENDPOINT={collector.url}", *warm.command)
        chosen = [Contender(OFF, warm.command), Contender(ON, traced)]
        async with rings(stage, "cost", chosen) as both:
            for subject in SUBJECTS:
                rows += await _measure(both, subject, turns, collector)
                progress(
                    f"{subject.title}: " + ", ".join(f"{row.what} {row.value:.3g} {row.unit}" for row in rows[-3:])
                )
    return rows


async def _measure(both: Sequence[Ring], subject: Subject, turns: int, collector: Collector) -> list[Row]:
    times = {ring.name: _Times() for ring in both}
    for ring in both:
        keys = ring.keys("cost", _OBJECTS)
        await ring.create_content(subject, keys, _PODS)
        await ring.change(subject, keys)
        await ring.quiet()
    before = len(collector.spans())
    for turn in range(turns):
        for ring in both if turn % 2 else reversed(both):
            await _turn(ring, subject, times[ring.name])

    async def has_all() -> bool:
        names = [span.name for span in collector.spans()[before:]]
        return names.count(f"reconcile {subject.gvk.kind}") >= turns * _OBJECTS

    await until(has_all, _SENT_SECONDS, "the collector has all traces")
    return _rows(subject, times, (len(collector.spans()) - before) / (turns * _OBJECTS))


async def _turn(ring: Ring, subject: Subject, times: _Times) -> None:
    own, whole = ring.operator.cpu_seconds, ring.cpu_seconds
    keys = ring.keys("cost", _OBJECTS)
    await ring.change(subject, keys)
    await ring.quiet()
    times.own.append((ring.operator.cpu_seconds - own) / len(keys))
    times.whole.append((ring.cpu_seconds - whole) / len(keys))


def _rows(subject: Subject, times: dict[str, _Times], spans: float) -> list[Row]:
    off, on = times[OFF], times[ON]
    whole = statistics.median(off.whole)
    more = [1000 * (with_traces - without) for with_traces, without in zip(on.own, off.own, strict=True)]
    percent = [each / 10 / whole for each in more]
    differences = f"median of {len(more)} differences, {{}}"
    remark = f"{len(off.whole)} turns of {_OBJECTS} objects, {Samples(off.whole).spread} CPU s"
    return [
        Row(f"{subject.title}: CPU of an unchanged reconcile without traces", whole, "CPU s", remark=remark),
        Row(
            f"{subject.title}: … of it the operator's own process",
            1000 * statistics.median(off.own),
            "CPU ms",
            remark=f"{1000 * min(off.own):.3g} to {1000 * max(off.own):.3g}",
        ),
        Row(
            f"{subject.title}: … more in it with traces",
            statistics.median(more),
            "CPU ms",
            remark=f"{differences.format(Samples(more).spread)}; {spans:.1f} spans for each reconcile",
        ),
        Row(
            f"{subject.title}: … as a share of the reconcile",
            statistics.median(percent),
            "%",
            MOST_PERCENT,
            differences.format(Samples(percent).spread),
        ),
    ]
