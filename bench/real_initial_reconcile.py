"""The initial reconcile of 10,000 objects with real plays, and changes during it.

The objects have the status of an earlier success, as after an upgrade of the operator, so the initial reconcile has low
priority and changes precede it. Each play is a role of one task that manages a ConfigMap, which no object has yet, so
every run writes. All times are those of the operator's log.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench import process_tree, widgets
from bench.fleet import runs_in
from bench.operator_process import Operator, logged_at, running
from bench.readiness import RUN
from bench.report import Row, Samples
from bench.stage import Stage, progress, until

from rolecall.kube.references import ObjectKey

OBJECTS, QUICK_OBJECTS = 10_000, 200
CHANGES, QUICK_CHANGES = 20, 4
IDLE_SECONDS = 20.0
_TASKS = """\
- name: Keep the settings of the Widget in a ConfigMap
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ ansible_operator_meta.name }}", namespace: "{{ ansible_operator_meta.namespace }}"}
      data: {settings: "{{ settings | to_json }}"}
"""
_WORKERS = "2"
_LOOK_SECONDS, _TELL_SECONDS = 2.0, 120.0
_START_SECONDS, _PER_OBJECT_SECONDS = 300.0, 5.0


async def measure(stage: Stage, *, is_quick: bool) -> list[Row]:
    """Measure the initial reconcile of an operator that finds all objects reconciled by an earlier one."""
    count = QUICK_OBJECTS if is_quick else OBJECTS
    directory = stage.subdirectory("real-initial-reconcile")
    widgets.write_project(directory)
    (directory / "roles" / "widget" / "tasks" / "main.yml").write_text(_TASKS)
    namespace = await stage.namespace("bench-real-initial-reconcile")
    where = widgets.keys(namespace, count)
    progress(f"{count:,} objects: creating them")
    await widgets.create(stage.client, where)
    await widgets.report(stage.client, where, widgets.success())
    environment = {"KUBECONFIG": str(stage.kubeconfig), "WATCH_NAMESPACE": namespace}
    command = (*RUN, "--max-concurrent-reconciles", _WORKERS)
    async with running(command, directory, environment) as operator:
        await operator.ready()
        return await _round(stage, operator, where)


async def _round(stage: Stage, operator: Operator, where: list[ObjectKey]) -> list[Row]:
    count, began = len(where), time.monotonic()
    async with _memory_at_work(operator) as memory:
        answered = await _change_meanwhile(stage, operator, where)
        await _reconciled(operator, count, _START_SECONDS + count * _PER_OBJECT_SECONDS)
    seconds, cpu = time.monotonic() - began, process_tree.cpu_seconds(operator.process.pid)
    progress(f"{count:,} objects in {seconds:,.0f} s; idle for {IDLE_SECONDS:g} s")
    await asyncio.sleep(IDLE_SECONDS)
    idle = 100 * (process_tree.cpu_seconds(operator.process.pid) - cpu) / IDLE_SECONDS
    latencies, runs = await _latencies(operator, answered), runs_in(operator)
    what = f"{count:,} objects, real plays"
    waited = f"{len(latencies.values)} changes, median {latencies.median:.2g} s; each waits for one of two runs to end"
    return [
        Row(f"{what}: initial reconcile", runs / seconds, "runs/s", remark=f"{runs:,} runs in {seconds:,.0f} s"),
        Row(f"{what}: CPU of the whole tree for each run", cpu / runs, "CPU s"),
        Row(f"{what}: from a change to its run during this, at most", max(latencies.values), "s", remark=waited),
        Row(f"{what}: memory of the tree at work, at most", max(memory), "MiB", remark="PSS"),
        Row(f"{what}: memory of the tree after it", process_tree.memory_mib(operator.process.pid), "MiB", remark="PSS"),
        Row(f"{what}: CPU of the tree while idle", idle, "%", 1.0, f"over {IDLE_SECONDS:g} s"),
    ]


@asynccontextmanager
async def _memory_at_work(operator: Operator) -> AsyncIterator[list[float]]:
    """Collect the tree's memory in MiB, and print progress."""
    found = [process_tree.memory_mib(operator.process.pid)]

    async def look() -> None:
        told = time.monotonic()
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            found.append(await asyncio.to_thread(process_tree.memory_mib, operator.process.pid))
            if time.monotonic() - told > _TELL_SECONDS:
                told = time.monotonic()
                progress(f"{runs_in(operator):,} runs; {max(found):.0f} MiB at most")

    looking = asyncio.create_task(look())
    try:
        yield found
    finally:
        looking.cancel()


async def _change_meanwhile(stage: Stage, operator: Operator, where: list[ObjectKey]) -> dict[str, float]:
    """Change the last objects one by one, spread over the reconcile; return the time of each response."""
    answered = {}
    changes = CHANGES if len(where) == OBJECTS else QUICK_CHANGES
    for number, key in enumerate(where[-changes:], 1):
        await _reconciled(operator, number * len(where) // (2 * changes), len(where) * _PER_OBJECT_SECONDS)
        await widgets.change(stage.client, key, time.monotonic_ns())
        answered[key.name] = time.time()
    return answered


async def _reconciled(operator: Operator, count: int, within_seconds: float) -> None:
    def found() -> int:
        return len({line["name"] for line in operator.messages("Reconcile succeeded")})

    async def are_enough() -> bool:
        await asyncio.sleep(_LOOK_SECONDS)
        return await asyncio.to_thread(found) >= count

    await until(are_enough, within_seconds, f"{count:,} objects are reconciled")


async def _latencies(operator: Operator, answered: dict[str, float]) -> Samples:
    """Return the seconds from the response to a change to the next run."""

    def starts() -> dict[str, float]:
        lines = [(line["name"], logged_at(line)) for line in operator.messages("Reconcile started")]
        return {name: at for name, at in reversed(lines) if at > answered.get(name, math.inf)}

    async def have_started() -> bool:
        return len(await asyncio.to_thread(starts)) == len(answered)

    await until(have_started, _START_SECONDS, "each changed object has had a run")
    return Samples([at - answered[name] for name, at in starts().items()])
