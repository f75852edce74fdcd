"""Makes a plan: starts a shadow of the cluster, runs the roles against it, and says what they changed.

Nothing but reads is ever sent to the cluster. The shadow is gone when the plan is there.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from rolecall.kube.client import Client
from rolecall.kube.errors import InvalidError, KubeError, NotFoundError, UnreachableError
from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.settings import resolve_max_concurrent_runs
from rolecall.runner.config.watches import Watch
from rolecall.runner.proxy import Proxy
from rolecall.runner.runs.process_runner import ProcessRunner
from rolecall.runner.runs.runner import Runner
from rolecall.runner.runs.starters import starter_for
from rolecall.system.cpu_quota import available_processors
from rolecall.system.owned_directories import OwnedDirectory
from rolecall.workbench.plan.baselines import PlanGate
from rolecall.workbench.plan.controller_changes import controller_changes
from rolecall.workbench.plan.importer import Importer
from rolecall.workbench.plan.live_source import LiveSource
from rolecall.workbench.plan.planned_object import PlannedObject
from rolecall.workbench.plan.reconciles import PlannedReconciles, PlanWorld
from rolecall.workbench.plan.request import PlanError, PlanRequest
from rolecall.workbench.plan.results import ObjectPlan, Plan
from rolecall.workbench.plan.sandbox import Shadow, running_shadow
from rolecall.workbench.plan.sandbox_gate import ShadowGate
from rolecall.workbench.plan.source import Source, SourceError
from rolecall.workbench.plan.targets import Target, Targets, targets_of

Report = Callable[[str], None]


async def make_plan(request: PlanRequest, report: Report) -> Plan:
    """Return what the roles would change; ``report`` is called with progress messages.

    Raises PlanError, SourceError, KubeError, ControlPlaneError.
    """
    started = time.monotonic()
    async with await Client.connect(request.settings.kubeconfig) as cluster:
        try:
            targets = await targets_of(request, cluster)
        except UnreachableError as error:
            raise PlanError(f"the API server at {cluster.base_url} cannot be reached: {error}") from error
        async with (
            starter_for(request.watches, warm=request.settings.warm) as starter,
            running_shadow(report) as shadow,
            planning(request, shadow, LiveSource(cluster), ProcessRunner(starter)) as planner,
        ):
            objects = await planner.plan_all(targets, report)
            follows = request.follows_controllers
            controllers = await controller_changes(planner.importer, objects) if follows else None
    return Plan(tuple(objects), time.monotonic() - started, tuple(planner.importer.assumptions), controllers)


@asynccontextmanager
async def planning(request: PlanRequest, shadow: Shadow, source: Source, runner: Runner) -> AsyncIterator["Planner"]:
    """Yield what plans objects in a shadow that is filled from a source."""
    importer = shadow.importer(source, prefetches=request.everything)
    gate = PlanGate(ShadowGate(importer), shadow.client)
    proxy = Proxy(shadow.client, gate=gate)
    directory = OwnedDirectory.make("rolecall-plan-")
    root = directory.path.resolve()
    try:
        await proxy.start()
        world = PlanWorld(request.settings, shadow.client, proxy, gate, runner, root, request.runs_commands)
        yield Planner(request, importer, world)
    finally:
        await proxy.stop()
        directory.remove()


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans objects in a shadow."""

    request: PlanRequest
    importer: Importer
    world: PlanWorld

    async def plan_all(self, targets: Targets, report: Report) -> list[ObjectPlan]:
        """Import the objects that were asked for, and plan several at once. Raises SourceError, KubeError."""
        for obj in targets.others:
            gvk, key = GVK.of_object(obj), ObjectKey.of_object(obj)
            await self.importer.import_object(gvk, key)
            await apply_file(self.world.client, gvk, key, obj)
        for target in targets.single:
            await self.importer.import_object(target.watch.gvk, target.key)
        wanted = [*targets.single, *[each for watch in targets.kinds for each in await self._all_of(watch)]]
        limit = asyncio.Semaphore(_most_runs(self.request))
        done = 0

        async def plan(target: Target) -> ObjectPlan:
            nonlocal done
            async with limit:
                planned = await self.plan_one(target)
            done += 1
            report(f"Planned {done} of {len(wanted)}: {target.watch.gvk.kind} {target.key}")
            return planned

        return await asyncio.gather(*map(plan, wanted))

    async def _all_of(self, watch: Watch) -> list[Target]:
        given = self.request.namespace
        namespaces = (given,) if given else self.request.settings.namespaces or ("",)
        objects = [obj for each in namespaces for obj in await self.importer.import_all(watch.gvk, each)]
        selected = (obj for obj in objects if watch.selector.matches(metadata_of(obj).get("labels") or {}))
        return [Target(watch, ObjectKey.of_object(obj)) for obj in selected]

    async def plan_one(self, target: Target) -> ObjectPlan:
        """Plan one object that was imported; what goes wrong is a failure of its plan."""
        gvk, key = target.watch.gvk, target.key
        try:
            if target.edited is not None:
                await apply_file(self.world.client, gvk, key, target.edited)
            return await PlannedObject(self.reconciles_of(target)).plan()
        except InvalidError as error:
            return ObjectPlan(gvk, key, failure=f"the API server would refuse the object: {error.message}")
        except (PlanError, SourceError, KubeError) as error:
            return ObjectPlan(gvk, key, failure=str(error))

    def reconciles_of(self, target: Target) -> PlannedReconciles:
        """Return the reconciles of an object, of which there was none so far."""
        return PlannedReconciles(self.world, target.watch, target.key)


async def apply_file(client: Client, gvk: GVK, key: ObjectKey, edited: RawObject) -> None:
    """Give an object in the shadow the content of a file: each field of the file as a whole, labels one by one.

    Raises KubeError.
    """
    wanted = {name: value for name, value in edited.items() if name not in ("metadata", "status")}
    given = metadata_of(edited)
    try:
        current = await client.get(gvk, key)
    except NotFoundError:
        metadata = {**given, "name": key.name} | ({"namespace": key.namespace} if key.namespace else {})
        await client.create({**wanted, "metadata": metadata})
        return
    metadata = dict(metadata_of(current))
    for name in ("labels", "annotations"):
        metadata[name] = {**(metadata.get(name) or {}), **(given.get(name) or {})}
    await client.replace({**current, **wanted, "metadata": metadata})


def _most_runs(request: PlanRequest) -> int:
    workers = [watch.workers or request.settings.workers for watch in request.watches]
    return min(resolve_max_concurrent_runs(request.settings, workers), 2 * available_processors())
