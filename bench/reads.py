"""What reads as triggers cost: the memory for each object that a role has read, and how soon a change is noticed.

A role lists ten thousand ConfigMaps. The operator's memory is compared with that of the same operator without
``watchReads``. Then single ConfigMaps are changed, one after the other.
"""

import asyncio
import time

from bench.operator_process import Operator, logged_at
from bench.readers import Reader
from bench.report import Row, Samples
from bench.stage import Stage, progress, until
from bench.widgets import AT_ONCE

from rolecall.kube.references import GVK, ObjectKey

CONFIG_MAP = GVK("", "v1", "ConfigMap")
MANY, QUICK_MANY = 10_000, 1_000
CHANGES, IDLE_SECONDS = 5, 20.0
MEMORY_GOAL_BYTES, LATENCY_GOAL_MS, CPU_GOAL_PERCENT = 1_024.0, 1_000.0, 1.0
_LIST_SECONDS = 180.0
_TASKS = """\
- name: List everything
  kubernetes.core.k8s_info:
    api_version: v1
    kind: ConfigMap
    namespace: "{{ ansible_operator_meta.namespace }}"
    label_selectors: [bench=reads]
  register: found
- name: Say how many there are
  ansible.builtin.set_stats: {data: {seen: "{{ found.resources | length }}"}}
"""


async def measure(stage: Stage, count: int) -> list[Row]:
    """Measure memory, CPU time and reaction with so many objects that a role has listed."""
    namespace = await stage.namespace("reads")
    progress(f"{count:,} read objects: creating them")
    await _create(stage, namespace, count)
    plain = Reader(stage, namespace, "plain", "watchReads: false", _TASKS)
    async with plain.running() as operator:
        await _until_listed(plain, count)
        await asyncio.sleep(IDLE_SECONDS)
        base = operator.memory_bytes
    watching = Reader(stage, namespace, "watching", "watchReads: true", _TASKS)
    async with watching.running() as operator:
        await _until_listed(watching, count)
        cpu = await operator.cpu_percent(IDLE_SECONDS)
        each = (operator.memory_bytes - base) / count
        progress(f"{count:,} read objects: {each:.0f} bytes each, {cpu:.2f} % CPU; changing {CHANGES} of them")
        latencies = Samples([await _latency(stage, operator, namespace, number) for number in range(CHANGES)])
    what = f"{count:,} read objects:"
    return [
        Row(f"{what} memory of the operator for each", each, "bytes", MEMORY_GOAL_BYTES, "PSS"),
        Row(f"{what} CPU while idle", cpu, "%", CPU_GOAL_PERCENT),
        Row(f"{what} from a change to its run", latencies.median, "ms", LATENCY_GOAL_MS, latencies.spread),
    ]


async def _create(stage: Stage, namespace: str, count: int) -> None:
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            metadata = {"name": f"c-{number:05d}", "namespace": namespace, "labels": {"bench": "reads"}}
            config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": "0"}}
            await stage.client.create(config_map)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())


async def _until_listed(reader: Reader, count: int) -> None:
    async def has_listed() -> bool:
        return await reader.seen() == str(count)

    await until(has_listed, _LIST_SECONDS, f"{reader.name} has listed {count} objects")


async def _latency(stage: Stage, operator: Operator, namespace: str, number: int) -> float:
    """Change an object and return the milliseconds until the run that this starts, by the time in the log."""
    runs, name = len(operator.messages("Reconcile started")), f"c-{number:05d}"
    changed_at = time.time()
    await stage.client.patch(CONFIG_MAP, ObjectKey(namespace, name), {"data": {"value": "1"}})

    async def has_run() -> bool:
        return len(operator.messages("Reconcile succeeded")) > runs

    await until(has_run, _LIST_SECONDS, f"the run for {name}")
    return 1000 * (logged_at(operator.messages("Reconcile started")[runs]) - changed_at)
