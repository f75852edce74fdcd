"""Makes a plan: starts a sandbox of the cluster, runs the roles against it, and says what they changed.

Nothing but reads is ever sent to the cluster. The sandbox is gone when the plan is there.

Plans one object: reconciles it in the sandbox until nothing is left to do.

The reconcile is repeated, as it would be, when the role asks for it, and when the controllers of the sandbox have
changed what a run has written and the operator would have watched it.

Which objects a plan is for, from what somebody has asked for.

The cluster is asked before a sandbox is started, so that a mistake is told at once.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from rolecall.kube.client import Client
from rolecall.kube.errors import InvalidError, KubeError, NotFoundError, UnknownKindError, UnreachableError
from rolecall.kube.metadata import metadata_of, resource_version_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.settings import resolve_max_concurrent_runs
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.controller import Result
from rolecall.runner.controller.work_queue import Cause
from rolecall.runner.proxy import Proxy
from rolecall.runner.record.run_record import RunRecord
from rolecall.runner.runs.process import ProcessRunner, Runner
from rolecall.runner.warm.starter import starter_for
from rolecall.system.control_groups import available_cpus
from rolecall.system.files import OwnedDirectory
from rolecall.workbench.plan.convergence import SETTLES_WITHIN_SECONDS, Written, controller_changes, settled
from rolecall.workbench.plan.model import ObjectPlan, Plan, PlanError, PlanRequest
from rolecall.workbench.plan.reconciles import PlannedReconciles, PlanWorld, secrets_of
from rolecall.workbench.plan.sandbox import Sandbox, SandboxGate, running_sandbox
from rolecall.workbench.plan.sandbox_import import Importer
from rolecall.workbench.plan.sandbox_sources import LiveSource, Source, SourceError
from rolecall.workbench.plan.written_objects import Changes, PlanGate

MAX_ROUNDS: Final = 10


@dataclass(slots=True)
class PlannedObject:
    """One object of the sandbox, whose reconciles are being planned."""

    reconciles: PlannedReconciles
    assumptions: dict[str, None] = field(default_factory=dict)

    async def plan(self) -> ObjectPlan:
        """Return the plan; the object must have been imported. Raises KubeError, PlanError."""
        started = time.time()
        watch, key, runs = self.reconciles.watch, self.reconciles.key, self.reconciles.runs
        changes = Changes(self.reconciles.world.gate.register(watch.gvk, key))
        before = await self._status()
        causes: tuple[Cause, ...] = ()
        result, rounds, has_settled = Result(), 0, False
        while rounds < MAX_ROUNDS and not has_settled:
            known = len(runs.records)
            result = await self.reconciles.reconcile(causes)
            rounds += 1
            written = [each for record in runs.records[known:] for each in self._take(changes, record)]
            is_over = result.failed or bool(self.reconciles.stopped_at)
            causes = () if is_over else await self._next_causes(written)
            has_settled = not causes
        return ObjectPlan(
            gvk=watch.gvk,
            key=key,
            changes=changes.objects(),
            writes=tuple(changes.writes),
            status_before=before,
            status_after=await self._status(),
            requeue_after_seconds=result.requeue_after_seconds,
            rounds=rounds,
            has_settled=has_settled,
            stopped_at=self.reconciles.stopped_at,
            failure=self._failure(result),
            assumptions=tuple(self.assumptions),
            withheld=tuple(self.reconciles.withheld),
            secrets=secrets_of(watch, runs.records, os.environ),
            started=started,
            ended=time.time(),
        )

    def _take(self, changes: Changes, record: RunRecord) -> list[Written]:
        """Take note of a run; return what it has written of the kinds that would wake the object."""
        if not changes.add(record):
            return []
        latest = (each for each in changes.latest() if self._watches(each[0]))
        return [Written(gvk, key, resource_version_of(obj)) for gvk, key, obj in latest]

    async def _next_causes(self, written: list[Written]) -> tuple[Cause, ...]:
        """Return why the operator would reconcile the object again soon; empty if it would not."""
        summary = self.reconciles.last_summary
        if summary is not None and (summary.requeue_at is not None or summary.requeue_after_seconds is not None):
            return (Cause("requeue_after"),)
        found = await settled(self.reconciles.world.client, written)
        within = f"was not ready in the sandbox within {SETTLES_WITHIN_SECONDS:.0f} s"
        self.assumptions |= dict.fromkeys(f"{each.gvk.kind} {each.key} {within}" for each in found.unfinished)
        return tuple(Cause(f"dependent {each.gvk.kind} {each.key} changed") for each in found.changed[:1])

    def _failure(self, result: Result) -> str:
        if not result.failed:
            return ""
        summary = self.reconciles.last_summary
        return (summary.message if summary else "") or "the reconcile failed; its status says why"

    def _watches(self, gvk: GVK) -> bool:
        """Return whether the operator would watch a kind because of the runs of this object, or anyway."""
        watch, dependents = self.reconciles.watch, self.reconciles.dependents
        follows = gvk in dependents and watch.watch_dependent_resources and gvk not in watch.blacklist
        return follows or any(trigger.gvk == gvk for trigger in watch.triggers)

    async def _status(self) -> RawObject:
        try:
            obj = await self.reconciles.world.client.get(self.reconciles.watch.gvk, self.reconciles.key)
        except NotFoundError:
            return {}
        status = obj.get("status")
        return status if isinstance(status, dict) else {}


DEFAULT_NAMESPACE: Final = "default"


@dataclass(frozen=True, slots=True)
class Target:
    """An object to plan; ``edited`` is what a file says about it."""

    watch: Watch
    key: ObjectKey
    edited: RawObject | None = None


@dataclass(frozen=True, slots=True)
class Targets:
    """The objects of a request: single ones, whole kinds, and what else its files bring along."""

    single: tuple[Target, ...] = ()
    kinds: tuple[Watch, ...] = ()
    others: tuple[RawObject, ...] = ()


async def targets_of(request: PlanRequest, cluster: Client) -> Targets:
    """Return what a request is for. Raises PlanError, KubeError."""
    if request.files:
        return await _of_files(request, cluster)
    if request.everything:
        return Targets(kinds=await _wanted(request, cluster))
    [watch, *_] = await _wanted(request, cluster)
    resource = await cluster.resource(watch.gvk)
    key = ObjectKey(_namespace(request) if resource.namespaced else "", request.name)
    try:
        await cluster.get(watch.gvk, key)
    except NotFoundError as error:
        hint = "to plan an object that does not exist yet, use -f FILE"
        raise PlanError(f"{watch.gvk.kind} {key} was not found; {hint}") from error
    return Targets(single=(Target(watch, key),))


def read_objects(path: Path) -> list[RawObject]:
    """Return the objects in a YAML or JSON file. Raises PlanError."""
    try:
        documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise PlanError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise PlanError(f"{path}: not YAML: {error}".replace("\n", " ")) from error
    objects = [each for each in documents if each is not None]
    if not objects or not all(isinstance(each, dict) and isinstance(each.get("kind"), str) for each in objects):
        raise PlanError(f"{path}: expected one or more objects with apiVersion, kind and metadata")
    if nameless := next((each["kind"] for each in objects if not metadata_of(each).get("name")), None):
        raise PlanError(f"{path}: the {nameless} has no metadata.name")
    return objects


async def _of_files(request: PlanRequest, cluster: Client) -> Targets:
    objects = [obj for path in request.files for obj in read_objects(path)]
    watches = {watch.gvk: watch for watch in request.watches}
    single = []
    for obj in (each for each in objects if GVK.of_object(each) in watches):
        watch = watches[GVK.of_object(obj)]
        resource = await cluster.resource(watch.gvk)
        namespace = str(metadata_of(obj).get("namespace") or _namespace(request)) if resource.namespaced else ""
        single.append(Target(watch, ObjectKey(namespace, str(metadata_of(obj)["name"])), obj))
    if not single:
        files = ", ".join(map(str, request.files))
        raise PlanError(f"{files}: no object of a kind in {request.settings.watches_file}, which has {_kinds(request)}")
    return Targets(tuple(single), others=tuple(each for each in objects if GVK.of_object(each) not in watches))


async def _wanted(request: PlanRequest, cluster: Client) -> tuple[Watch, ...]:
    """Return the watches of the kind that was asked for, all if none was. Raises PlanError."""
    found = [watch for watch in request.watches if not request.kind or await _is_kind(request.kind, watch, cluster)]
    if not found:
        raise PlanError(f"{request.kind!r} is not in {request.settings.watches_file}, which has {_kinds(request)}")
    return tuple(found)


async def _is_kind(text: str, watch: Watch, cluster: Client) -> bool:
    """Return whether a text names the kind of a watch, as kubectl would read it."""
    gvk = watch.gvk
    suffixes = ("", f".{gvk.group}", f".{gvk.version}.{gvk.group}") if gvk.group else ("",)
    if text.lower() in {gvk.kind.lower() + suffix for suffix in suffixes}:
        return True
    try:
        plural = (await cluster.resource(gvk)).plural
    except UnknownKindError:
        return False
    return text.lower() in {plural + suffix for suffix in suffixes}


def _namespace(request: PlanRequest) -> str:
    return request.namespace or DEFAULT_NAMESPACE


def _kinds(request: PlanRequest) -> str:
    return ", ".join(sorted({watch.gvk.kind for watch in request.watches})) or "no kind"


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
            running_sandbox(report) as sandbox,
            planning(request, sandbox, LiveSource(cluster), ProcessRunner(starter)) as planner,
        ):
            objects = await planner.plan_all(targets, report)
            follows = request.follows_controllers
            controllers = await controller_changes(planner.importer, objects) if follows else None
    return Plan(tuple(objects), time.monotonic() - started, tuple(planner.importer.assumptions), controllers)


@asynccontextmanager
async def planning(request: PlanRequest, sandbox: Sandbox, source: Source, runner: Runner) -> AsyncIterator["Planner"]:
    """Yield what plans objects in a sandbox that is filled from a source."""
    importer = sandbox.importer(source, prefetches=request.everything)
    gate = PlanGate(SandboxGate(importer), sandbox.client)
    proxy = Proxy(sandbox.client, interceptor=gate)
    directory = OwnedDirectory.make("rolecall-plan-")
    root = directory.path.resolve()
    try:
        await proxy.start()
        world = PlanWorld(request.settings, sandbox.client, proxy, gate, runner, root, request.runs_commands)
        yield Planner(request, importer, world)
    finally:
        await proxy.stop()
        directory.remove()


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans objects in a sandbox."""

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
    """Give an object in the sandbox the content of a file: each field of the file as a whole, labels one by one.

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
    return min(resolve_max_concurrent_runs(request.settings, workers), 2 * available_cpus())
