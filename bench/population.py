"""The cost of idle objects, the latency from a change to its play, and the reconciles per second.

For each number of Widgets: they are created, an operator with instant plays starts and reconciles each once; then it
idles, then single objects are changed one after the other; then it restarts and finds everything done already.
Memory is compared with the same operator without any object. The operator, the whole control plane and this process
share the machine, so throughput describes all of them together, and CPU time the operator's part.
"""

import asyncio
import math
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Self

from bench.observer import is_successful
from bench.operator_process import Operator, running
from bench.report import Measure, of_warm
from bench.stage import Stage, progress, side_by_side, until
from bench.subjects import WIDGET, write_project

from rolecall.kube.metadata import generation_of, status_of
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.config.settings import default_workers

IDLE_SECONDS = 20.0
CHANGES = 50
MEMORY_GOAL_KIB, CPU_GOAL_PERCENT, LATENCY_GOAL_MS = 15.0, 1.0, 50.0
COMMAND = (sys.executable, str(Path(__file__).with_name("instant_operator.py")))
_KIB = 1024
_PLAY_SECONDS, _PER_OBJECT_SECONDS = 30.0, 0.1


@dataclass(slots=True)
class Plays:
    """When plays started, in monotonic seconds: the first of all, the last of each ``namespace/name``; and how many."""

    file: IO[bytes]
    first: float = math.inf
    last: dict[str, float] = field(default_factory=dict)
    count: int = 0

    def read(self) -> Self:
        """Take the new lines of the file, nanoseconds and object, and return the plays so far."""
        for line in self.file.readlines():
            nanoseconds, name = line.decode().split()
            self.last[name] = int(nanoseconds) / 1e9
            self.first = min(self.first, self.last[name])
            self.count += 1
        return self


async def measure(stage: Stage) -> list[Measure]:
    """Measure each number of objects, none at all first."""
    directory = stage.subdirectory("population")
    write_project(directory)
    async with _operator(stage, directory, await stage.namespace("bench-0")) as (operator, _):
        progress(f"No objects: idle for {IDLE_SECONDS:g} s")
        cpu = await _idle(operator)
        base = operator.memory_mib
    measures = [
        of_warm("no objects: memory of the operator", base, "MiB", remark="PSS"),
        of_warm("no objects: CPU while idle", cpu, "%", CPU_GOAL_PERCENT),
    ]
    for count in stage.effort.populations:
        measures += await _measure_many(stage, directory, count, base)
    return measures


async def _measure_many(stage: Stage, directory: Path, count: int, base: float) -> list[Measure]:
    namespace, title = await stage.namespace(f"bench-{count}"), f"{count:,} objects"
    keys = [ObjectKey(namespace, f"widget-{number:05d}") for number in range(count)]
    progress(f"{title}: creating them")
    await side_by_side(stage.client.create(_widget(key)) for key in keys)
    async with _operator(stage, directory, namespace) as (operator, plays):
        first = await _reconcile_all(stage, operator, plays, keys, "first reconcile of all; status written twice")
        progress(f"{title}: reconciled; idle for {IDLE_SECONDS:g} s")
        cpu = await _idle(operator)
        memory = (operator.memory_mib - base) / count * _KIB
        needless = plays.read().count - count
        progress(f"{title}: {memory:.1f} KiB each, {cpu:.2f} % CPU; changing {CHANGES} of them")
        chosen = enumerate(keys[:: count // CHANGES][:CHANGES], 1)
        latencies = [await _latency(stage, plays, key, revision) for revision, key in chosen]
    progress(f"{title}: starting the operator again")
    async with _operator(stage, directory, namespace) as (operator, plays):
        again = await _reconcile_all(stage, operator, plays, keys, "reconcile of all after a restart; nothing to write")
    return [
        of_warm(f"{title}: memory for each, after a reconcile of all", memory, "KiB", MEMORY_GOAL_KIB, "PSS"),
        of_warm(f"{title}: CPU while idle", cpu, "%", CPU_GOAL_PERCENT, f"over {IDLE_SECONDS:g} s"),
        of_warm(f"{title}: plays above one for each", needless, "plays", 0, "until the end of the idle time"),
        *_latency_measures(title, latencies),
        *first,
        *again,
    ]


async def _idle(operator: Operator) -> float:
    """Return the share of one CPU, in percent, that an operator uses while nothing happens."""
    before, started = operator.cpu_seconds, time.monotonic()
    await asyncio.sleep(IDLE_SECONDS)
    return 100 * (operator.cpu_seconds - before) / (time.monotonic() - started)


async def _reconcile_all(
    stage: Stage, operator: Operator, plays: Plays, keys: list[ObjectKey], what: str
) -> list[Measure]:
    """Wait until each object had its first run and every status is written; measure the time from play to play."""
    before, count = operator.cpu_seconds, len(keys)
    within_seconds = _PLAY_SECONDS + count * _PER_OBJECT_SECONDS
    await operator.until(lambda: len(plays.read().last) == count, within_seconds, "each object had a play")
    rate, used = count / (max(plays.last.values()) - plays.first), operator.cpu_seconds - before

    async def are_settled() -> bool:
        pages = stage.client.list_pages(WIDGET, keys[0].namespace)
        return all([_is_settled(obj) async for page, _ in pages for obj in page])

    await until(are_settled, _PLAY_SECONDS, "every status is written")
    remark = f"{default_workers()} workers, instant plays"
    return [
        of_warm(f"{count:,} objects: {what}", rate, "reconciles/s", remark=remark),
        of_warm(f"{count:,} objects: the operator's CPU for each of these", 1000 * used / count, "ms"),
    ]


async def _latency(stage: Stage, plays: Plays, key: ObjectKey, revision: int) -> tuple[float, float]:
    """Change an object; return the milliseconds from the request and from its response to the start of the play."""
    name = str(key)
    asked = time.monotonic()
    await stage.client.patch(WIDGET, key, {"spec": {"revision": revision}})
    answered = time.monotonic()
    await until(lambda: plays.read().last[name] > asked, _PLAY_SECONDS, f"{key} had a play")

    async def is_settled() -> bool:
        return _is_settled(await stage.client.get(WIDGET, key))

    await until(is_settled, _PLAY_SECONDS, f"{key} is reconciled")
    return 1000 * (plays.last[name] - asked), 1000 * (plays.last[name] - answered)


def _latency_measures(title: str, latencies: list[tuple[float, float]]) -> list[Measure]:
    """Return the median and the 95th percentile, from the request; from the response, in a remark."""
    asked, answered = (sorted(values) for values in zip(*latencies, strict=True))
    median, at_95 = f"{statistics.median(answered):.1f} ms after the answer", math.ceil(len(asked) * 0.95) - 1
    worst = f"{answered[at_95]:.1f} ms after the answer, at most {asked[-1]:.1f} ms"
    what = f"{title}: from the request that changes one to the start of its play"
    return [
        of_warm(f"{what}, median of {len(latencies)}", statistics.median(asked), "ms", LATENCY_GOAL_MS, median),
        of_warm(f"{what}, 95th percentile", asked[at_95], "ms", LATENCY_GOAL_MS, worst),
    ]


@asynccontextmanager
async def _operator(stage: Stage, directory: Path, namespace: str) -> AsyncIterator[tuple[Operator, Plays]]:
    """Run an operator with instant plays until the end of the block; it is ready."""
    with NamedTemporaryFile() as starts:
        environment = {**os.environ, "KUBECONFIG": str(stage.kubeconfig), "WATCH_NAMESPACE": namespace}
        with running(COMMAND, directory, {**environment, "PLAYS": starts.name}) as operator:
            await operator.ready()
            yield operator, Plays(starts)


def _is_settled(obj: RawObject) -> bool:
    """Return whether the status of a Widget is that of a success with its present spec."""
    return is_successful(obj) and status_of(obj).get("observedGeneration") == generation_of(obj)


def _widget(key: ObjectKey) -> RawObject:
    metadata = {"name": key.name, "namespace": key.namespace, "labels": {"app": "bench", "widget": key.name}}
    spec = {"revision": 0, "replicas": 3, "image": "nginx:latest", "settings": {"color": "red", "size": 7}}
    return {"apiVersion": WIDGET.api_version, "kind": WIDGET.kind, "metadata": metadata, "spec": spec}
