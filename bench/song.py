"""Intervals between words of a Hikawa at 500 ms, seen by a watch, and runs per word.

The role says a word and requests the next run for the time of the next word, so the intervals show the duration of a
whole reconcile. Only contenders that run the role take part; one with a new process per play can't keep the interval
and gets fewer words.
"""

from collections.abc import Sequence
from itertools import pairwise

from bench.comparison import Effort
from bench.contenders import Contender, Ring, rings
from bench.measures import Collection, Goal, Measure
from bench.observer import Observer, observing
from bench.report import Samples
from bench.stage import Stage, progress

from rolecall.kube.references import GVK, ObjectKey

HIKAWA = GVK("zundokokiyoshi.kaitoy.github.com", "v1beta1", "Hikawa")
ZUNDOKO = GVK(HIKAWA.group, HIKAWA.version, "Zundoko")
INTERVAL_MILLIS = 500
_TOLERANCE_MILLIS = 10
_FIRST_WORD_SECONDS, _WORD_SECONDS = 30.0, 10.0


async def measure_song(stage: Stage, chosen: Sequence[Contender], effort: Effort) -> list[Measure]:
    """Let each contender sing alone and record the times of the words."""
    gaps, least, runs = Collection(), Collection(), Collection()
    async with rings(stage, "song", [each for each in chosen if each.sings]) as all_rings:
        for ring in all_rings:
            words = effort.slow_words if ring.contender.is_slow else effort.words
            found, count = await _sing(ring, words)
            gaps.samples[ring.name] = found
            least.add(ring.name, min(found))
            runs.add(ring.name, count / (words - 1))
            progress(
                f"{ring.name}: {words} words, {Samples(found).median:.0f} ms apart, {count / (words - 1):.2f} runs each"
            )
    what = f"Hikawa at {INTERVAL_MILLIS} ms, {effort.words} words"
    usual = Goal(0.9 * INTERVAL_MILLIS, 1.1 * INTERVAL_MILLIS)
    remark = f"{effort.slow_words} words only for contenders with a new process per play"
    return [
        Measure(f"{what}: from word to word, at a watch", "ms", gaps.samples, (usual,), remark),
        Measure(f"{what}: the shortest", "ms", least.samples, (Goal(least=INTERVAL_MILLIS - _TOLERANCE_MILLIS),)),
        Measure(f"{what}: runs for each", "runs", runs.samples, (Goal(most=1.0),)),
    ]


async def _sing(ring: Ring, words: int) -> tuple[list[float], int]:
    """Return the milliseconds between the words, and how many runs started after the first and until the last one."""
    key = ObjectKey(ring.namespace, "song")
    await ring.quiet()
    async with observing(ring.stage.client, ZUNDOKO, ring.namespace) as observer:
        await ring.stage.client.create(_hikawa(key, words))
        await observer.wait(lambda: observer.arrivals, _FIRST_WORD_SECONDS)
        before = _runs(ring)
        await observer.wait(lambda: len(observer.arrivals) >= words, words * _WORD_SECONDS)
        count = _runs(ring) - before
    await ring.stage.client.delete(HIKAWA, key)  # it would sing on while the next one is measured
    return _gaps(observer, words), count


def _gaps(observer: Observer, words: int) -> list[float]:
    return [1000 * (later - earlier) for earlier, later in pairwise(observer.arrivals[:words])]


def _runs(ring: Ring) -> int:
    started = ring.operator.messages("Reconcile started")
    return sum(1 for line in started if line.get("kind") == HIKAWA.kind)


def _hikawa(key: ObjectKey, words: int) -> dict[str, object]:
    return {
        "apiVersion": HIKAWA.api_version,
        "kind": HIKAWA.kind,
        "metadata": {"name": key.name, "namespace": key.namespace},
        "spec": {"intervalMillis": INTERVAL_MILLIS, "numZundokos": words},
    }
