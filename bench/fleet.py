"""A fleet: many objects of one kind, created together, each of which becomes four manifests.

Contenders run one after the other, because each needs all CPUs, and each has a new operator and namespace for each size
of the fleet. The operator is ready and has reconciled one object before. The namespace is deleted afterward, so
that no contender works in a fuller cluster than another.
"""

import asyncio
from collections.abc import Sequence

from bench.contenders import WORKERS, Contender, ring
from bench.report import Collection, Measure
from bench.stage import Stage, progress, until
from bench.subjects import FLEET

from rolecall.kube.client import Client
from rolecall.kube.errors import NotFoundError
from rolecall.kube.references import GVK, ObjectKey

DEPENDENTS = (
    GVK("apps", "v1", "Deployment"),
    GVK("", "v1", "ServiceAccount"),
    GVK("", "v1", "Service"),
    GVK("networking.k8s.io", "v1", "Ingress"),
)
"""What the role creates for each object, with the object's name."""
_NAMESPACE = GVK("", "v1", "Namespace")
_REPLICAS = 0
_PAUSE_SECONDS, _DELETED_SECONDS = 0.5, 600.0


async def measure_fleet(stage: Stage, chosen: Sequence[Contender]) -> list[Measure]:
    """Take the time, the CPU time, and the most memory of each contender for each size of the fleet."""
    measures = []
    for count in stage.effort.fleets:
        seconds, cpu, memory = Collection(), Collection(), Collection()
        for each in chosen:
            namespace = await stage.namespace(f"fleet-{count}-{each.name}")
            async with ring(stage, each, namespace) as alone:
                await alone.create_content(FLEET, alone.keys("first", 1), _REPLICAS)
                before, keys = alone.operator.cpu_seconds, alone.keys("fleet", count)
                working = asyncio.create_task(alone.create(FLEET, keys, _REPLICAS))
                memory.add(each.name, await alone.operator.peak_mib(working, _PAUSE_SECONDS))
                seconds.add(each.name, await working)
                cpu.add(each.name, alone.operator.cpu_seconds - before)
                await check_dependents(stage.client, keys)
            progress(f"{each.name}: {count} objects: {seconds} s, {cpu} CPU s, {memory} MiB")
            await _delete_namespace(stage, namespace)
        what, remark = f"fleet of {count:,}: from the first request until all objects are ready", f"{WORKERS} workers"
        measures.append(Measure(what, "s", seconds.samples, remark=remark))
        measures.append(Measure("… CPU until then, whole tree", "CPU s", cpu.samples))
        measures.append(Measure("… peak memory until then, whole tree", "MiB PSS", memory.samples))
    return measures


async def check_dependents(client: Client, keys: Sequence[ObjectKey]) -> None:
    """Return if these objects of one namespace have all their dependents. Raises RuntimeError."""
    namespace = keys[0].namespace
    for gvk in DEPENDENTS:
        found = {ObjectKey.of_object(obj) async for page, _ in client.list_pages(gvk, namespace) for obj in page}
        if missing := set(keys) - found:
            raise RuntimeError(f"{namespace}: {len(missing)} of {len(keys)} objects have no {gvk.kind}")


async def _delete_namespace(stage: Stage, name: str) -> None:
    """Delete a namespace with all its objects, and wait until it doesn't exist."""
    key = ObjectKey("", name)
    await stage.client.delete(_NAMESPACE, key)

    async def is_deleted() -> bool:
        try:
            await stage.client.get(_NAMESPACE, key)
        except NotFoundError:
            return True
        return False

    await until(is_deleted, _DELETED_SECONDS, f"namespace {name} is deleted")
