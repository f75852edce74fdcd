"""What idle objects cost, how soon a change reaches a play, and how many reconciles a second there are.

For each number of objects: they are created, an operator with instant plays starts and reconciles each once; then it
idles, then single objects are changed one after the other; then it restarts and finds everything done already.
Memory is compared with the same operator without any object. The operator, the whole control plane and this process
share the machine, so throughput describes all of them together, and CPU time the operator's part.
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench import widgets
from bench.operator_process import Operator, running
from bench.report import Row, Samples
from bench.stage import Stage, progress, until

from rolecall.kube.references import ObjectKey
from rolecall.runner.config.settings import default_workers

IDLE_SECONDS = 20.0
CHANGES = 50
MEMORY_GOAL_KIB, CPU_GOAL_PERCENT, LATENCY_GOAL_MS = 15.0, 1.0, 50.0
COMMAND = (sys.executable, str(Path(__file__).with_name("instant_operator.py")))
_KIB = 1024
_PLAY_SECONDS, _PER_OBJECT_SECONDS = 30.0, 0.1


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over all objects: how long it took and the CPU time that the operator used for it."""

    objects: int
    seconds: float
    cpu_seconds: float

    def rows(self, what: str, remark: str) -> list[Row]:
        """Tell of the pass."""
        cost = 1000 * self.cpu_seconds / self.objects
        return [
            Row(f"{self.objects:,} objects: {what}", self.objects / self.seconds, "reconciles/s", remark=remark),
            Row(f"{self.objects:,} objects: the operator's CPU for each of these", cost, "ms"),
        ]


async def measure(stage: Stage, populations: tuple[int, ...]) -> list[Row]:
    """Measure each number of objects, none at all first."""
    directory = stage.subdirectory("population")
    widgets.write_project(directory)
    base, rows = await _measure_none(stage, directory)
    for count in populations:
        rows += await _measure_many(stage, directory, count, base)
    return rows


async def _measure_none(stage: Stage, directory: Path) -> tuple[int, list[Row]]:
    namespace = await stage.namespace("bench-0")
    async with running(COMMAND, directory, _environment(stage, namespace)) as operator:
        await operator.ready()
        progress(f"No objects: idle for {IDLE_SECONDS:g} s")
        cpu = await operator.cpu_percent(IDLE_SECONDS)
        base = operator.memory_bytes
    memory = Row("no objects: memory of the operator", base / _KIB / _KIB, "MiB", remark="PSS")
    return base, [memory, Row("no objects: CPU while idle", cpu, "%", CPU_GOAL_PERCENT)]


async def _measure_many(stage: Stage, directory: Path, count: int, base: int) -> list[Row]:
    namespace = await stage.namespace(f"bench-{count}")
    where = widgets.keys(namespace, count)
    progress(f"{count:,} objects: creating them")
    await widgets.create(stage.client, where)
    async with running(COMMAND, directory, _environment(stage, namespace)) as operator:
        first = await _first_pass(stage, operator, namespace, count)
        progress(f"{count:,} objects: reconciled in {first.seconds:.1f} s; idle for {IDLE_SECONDS:g} s")
        cpu = await operator.cpu_percent(IDLE_SECONDS)
        memory = (operator.memory_bytes - base) / count / _KIB
        needless = operator.plays.count - count
        progress(f"{count:,} objects: {memory:.1f} KiB each, {cpu:.2f} % CPU; changing {CHANGES} of them")
        latencies = await _latencies(stage, operator, where)
    second = await _second_pass(stage, directory, namespace, count)
    workers = f"{default_workers()} workers, instant plays"
    return [
        Row(f"{count:,} objects: memory for each, after a reconcile of all", memory, "KiB", MEMORY_GOAL_KIB, "PSS"),
        Row(f"{count:,} objects: CPU while idle", cpu, "%", CPU_GOAL_PERCENT, f"over {IDLE_SECONDS:g} s"),
        Row(f"{count:,} objects: plays above one for each", needless, "plays", 0, "until the end of the idle time"),
        *_latency_rows(count, latencies),
        *first.rows("first reconcile of all", f"status written twice; {workers}"),
        *second.rows("reconcile of all after a restart", f"nothing to write; {workers}"),
    ]


async def _first_pass(stage: Stage, operator: Operator, namespace: str, count: int) -> Pass:
    """Wait until each object had its first run and every status is written."""
    await operator.ready()
    cpu, plays = operator.cpu_seconds, operator.plays
    await plays.wait(lambda: len(plays.last) == count, _PLAY_SECONDS + count * _PER_OBJECT_SECONDS)
    took = Pass(count, max(plays.last.values()) - plays.first, operator.cpu_seconds - cpu)
    await until(lambda: widgets.are_settled(stage.client, namespace), _PLAY_SECONDS, "every status is written")
    return took


async def _second_pass(stage: Stage, directory: Path, namespace: str, count: int) -> Pass:
    progress(f"{count:,} objects: starting the operator again")
    async with running(COMMAND, directory, _environment(stage, namespace)) as operator:
        return await _first_pass(stage, operator, namespace, count)


async def _latencies(stage: Stage, operator: Operator, where: list[ObjectKey]) -> list[tuple[float, float]]:
    """Change objects one after the other; return the milliseconds from request and from answer to the play's start."""
    chosen = where[:: len(where) // CHANGES][:CHANGES]
    return [await _latency(stage, operator, key, revision) for revision, key in enumerate(chosen, 1)]


async def _latency(stage: Stage, operator: Operator, key: ObjectKey, revision: int) -> tuple[float, float]:
    name, plays = str(key), operator.plays
    asked = time.monotonic()
    await widgets.change(stage.client, key, revision)
    answered = time.monotonic()
    await plays.wait(lambda: plays.last[name] > asked, _PLAY_SECONDS)
    await until(lambda: widgets.is_settled(stage.client, key), _PLAY_SECONDS, f"{key} is reconciled")
    return 1000 * (plays.last[name] - asked), 1000 * (plays.last[name] - answered)


def _latency_rows(count: int, latencies: list[tuple[float, float]]) -> list[Row]:
    asked, answered = Samples([pair[0] for pair in latencies]), Samples([pair[1] for pair in latencies])
    since_answer = f"{answered.median:.1f} ms after the answer"
    worst_answer = f"{answered.percentile(95):.1f} ms after the answer, at most {max(asked.values):.1f} ms"
    what = f"{count:,} objects: from the request that changes one to the start of its play"
    return [
        Row(f"{what}, median of {len(latencies)}", asked.median, "ms", LATENCY_GOAL_MS, since_answer),
        Row(f"{what}, 95th percentile", asked.percentile(95), "ms", LATENCY_GOAL_MS, worst_answer),
    ]


def _environment(stage: Stage, namespace: str) -> dict[str, str]:
    return {"KUBECONFIG": str(stage.kubeconfig), "WATCH_NAMESPACE": namespace}
