"""Makes a plan: runs the roles against a sandbox of the cluster, and collects their changes.

The cluster receives nothing but reads, and the sandbox is removed when the plan is complete. The requested objects are
looked up in the cluster before a sandbox starts, so that mistakes are reported immediately. Each object is reconciled
until nothing remains to be done: again, as in an operator, when the role requests it, and when controllers in the
sandbox have changed what a run has written and the operator would watch it.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import yaml

from rolecall.kube.client import Client
from rolecall.kube.connection import Request
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import ApiError, InvalidError, KubeError, NotFoundError, UnknownKindError, UnreachableError
from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.settings import resolve_max_concurrent_runs
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.work_queue import Cause
from rolecall.runner.runs.process import ProcessRunner, Runner
from rolecall.runner.warm.starter import starter_for
from rolecall.system.control_groups import available_cpus
from rolecall.workbench.comparison.masks import sensitive_values
from rolecall.workbench.plan.convergence import controller_changes
from rolecall.workbench.plan.model import ObjectPlan, Plan, PlanError, PlanRequest
from rolecall.workbench.plan.project_source import ProjectSource, defined_resource, served_by
from rolecall.workbench.plan.reconciles import PlanContext, PlannedReconciles, plan_context
from rolecall.workbench.plan.sandbox import Sandbox, running_sandbox
from rolecall.workbench.plan.sandbox_sources import LiveSource, Source, SourceError
from rolecall.workbench.plan.written_objects import WrittenObjects

DEFAULT_NAMESPACE: Final = "default"
MAX_ROUNDS: Final = 10
_GIVEN_METADATA: Final = ("name", "namespace", "labels", "annotations")
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Target:
    """An object to plan; ``edited`` is its content in a file."""

    watch: Watch
    key: ObjectKey
    edited: RawObject | None = None


@dataclass(frozen=True, slots=True)
class Targets:
    """The objects of a request: single ones, whole kinds, and the other objects in its files."""

    single: tuple[Target, ...] = ()
    kinds: tuple[Watch, ...] = ()
    others: tuple[RawObject, ...] = ()


async def make_plan(request: PlanRequest, report: Report) -> Plan:
    """Return the changes that the roles would make; ``report`` is called with progress messages.

    Raises PlanError, SourceError, KubeError, ControlPlaneError.
    """
    settings = request.settings
    async with await Client.connect(settings.kubeconfig) as cluster:
        targets = await targets_of(request, cluster)
        async with (
            starter_for(request.watches, warm=settings.warm) as starter,
            running_sandbox(report) as sandbox,
            planner_in(request, sandbox, LiveSource(cluster), ProcessRunner(starter)) as planner,
        ):
            objects = await planner.plan_all(targets, report)
            importer = planner.context.importer
            controllers = await controller_changes(importer, objects) if request.follows_controllers else None
            return Plan(tuple(objects), tuple(importer.assumptions), controllers, planner.source.changes)


@asynccontextmanager
async def planner_in(
    request: PlanRequest, sandbox: Sandbox, source: Source, runner: Runner
) -> AsyncIterator["Planner"]:
    """Yield a planner for objects in a sandbox that is filled from a source, with the definitions of the request."""
    project = project_source(request, sandbox, source)
    importer = sandbox.importer(project, prefetches=request.everything)
    async with plan_context(request.settings, importer, runner, runs_commands=request.runs_commands) as context:
        yield Planner(request, context, project)


def project_source(request: PlanRequest, sandbox: Sandbox, source: Source) -> ProjectSource:
    """Return a source with the definitions of a request."""
    keeps_cluster = request.uses_cluster_definitions
    return ProjectSource(source, request.definitions, sandbox.client, keeps_cluster=keeps_cluster)


async def targets_of(request: PlanRequest, cluster: Client) -> Targets:
    """Return the objects of a request. Raises PlanError, KubeError.

    It is the first use of the cluster, so its URL is reported if it cannot be reached.
    """
    try:
        return await (_targets_in_files if request.files else _named_targets)(request, cluster)
    except UnreachableError as error:
        raise PlanError(f"the API server at {cluster.base_url} cannot be reached: {error}") from error


async def _named_targets(request: PlanRequest, cluster: Client) -> Targets:
    watches = [watch for watch in request.watches if not request.kind or await _is_kind(watch, request, cluster)]
    if not watches:
        raise PlanError(f"{request.kind!r} is not in {request.settings.watches_file}, which has {_kinds(request)}")
    if request.everything:
        return Targets(kinds=tuple(watches))
    gvk = watches[0].gvk
    resource = await _resource_of(gvk, request, cluster)
    key = ObjectKey((request.namespace or DEFAULT_NAMESPACE) if resource.namespaced else "", request.name)
    served = await served_by(LiveSource(cluster), _definitions(request), resource)
    try:
        await cluster.get(served.gvk, key)
    except (NotFoundError, UnknownKindError) as error:
        hint = "if it does not exist yet, use -f FILE"
        raise PlanError(f"{gvk.kind} {key} was not found; {hint}") from error
    return Targets(single=(Target(watches[0], key),))


def _definitions(request: PlanRequest) -> tuple[RawObject, ...]:
    """Return the definitions that replace those of the cluster."""
    return () if request.uses_cluster_definitions else request.definitions


async def _resource_of(gvk: GVK, request: PlanRequest, cluster: Client) -> ApiResource:
    """Return the resource of a kind that the cluster serves, or the project defines. Raises KubeError."""
    try:
        return await cluster.resource(gvk)
    except UnknownKindError:
        if resource := defined_resource(_definitions(request), gvk):
            return resource
        raise


async def _is_kind(watch: Watch, request: PlanRequest, cluster: Client) -> bool:
    """Return whether a request names the kind of a watch, as kubectl would interpret it."""
    gvk, text = watch.gvk, request.kind
    suffixes = ("", f".{gvk.group}", f".{gvk.version}.{gvk.group}") if gvk.group else ("",)
    if text.lower() in {gvk.kind.lower() + suffix for suffix in suffixes}:
        return True
    try:
        plural = (await _resource_of(gvk, request, cluster)).plural
    except UnknownKindError:
        return False
    return text.lower() in {plural + suffix for suffix in suffixes}


def _kinds(request: PlanRequest) -> str:
    return ", ".join(sorted({watch.gvk.kind for watch in request.watches})) or "no kind"


async def _targets_in_files(request: PlanRequest, cluster: Client) -> Targets:
    watches = {watch.gvk: watch for watch in request.watches}
    single, others = [], []
    for obj in (obj for path in request.files for obj in read_objects(path)):
        watch = watches.get(GVK.of_object(obj))
        if watch is None:
            others.append(obj)
            continue
        metadata, namespaced = metadata_of(obj), (await _resource_of(watch.gvk, request, cluster)).namespaced
        namespace = str(metadata.get("namespace") or request.namespace or DEFAULT_NAMESPACE) if namespaced else ""
        single.append(Target(watch, ObjectKey(namespace, str(metadata["name"])), obj))
    if not single:
        files = ", ".join(map(str, request.files))
        raise PlanError(f"{files}: no object of a kind in {request.settings.watches_file}, which has {_kinds(request)}")
    return Targets(tuple(single), others=tuple(others))


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


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans objects in a sandbox."""

    request: PlanRequest
    context: PlanContext
    source: ProjectSource

    async def plan_all(self, targets: Targets, report: Report) -> list[ObjectPlan]:
        """Import the requested objects, and plan several concurrently. Raises SourceError, KubeError."""
        await import_targets(self.context, targets)
        wanted = [*targets.single, *[each for watch in targets.kinds for each in await self._all_of(watch)]]
        workers = [watch.workers or self.request.settings.workers for watch in self.request.watches]
        max_runs = min(resolve_max_concurrent_runs(self.request.settings, workers), 2 * available_cpus())
        limit = asyncio.Semaphore(max_runs)
        done = 0

        async def plan(target: Target) -> ObjectPlan:
            nonlocal done
            async with limit:
                planned = await self._plan(target)
            done += 1
            report(f"Planned {done} of {len(wanted)}: {target.watch.gvk.kind} {target.key}")
            return planned

        return await asyncio.gather(*map(plan, wanted))

    async def _all_of(self, watch: Watch) -> list[Target]:
        given = self.request.namespace
        namespaces = (given,) if given else self.request.settings.namespaces or ("",)
        objects = [obj for each in namespaces for obj in await self.context.importer.import_all(watch.gvk, each)]
        selected = (obj for obj in objects if watch.selector.matches(metadata_of(obj).get("labels") or {}))
        return [Target(watch, ObjectKey.of_object(obj)) for obj in selected]

    async def _plan(self, target: Target) -> ObjectPlan:
        """Plan one imported object; an error becomes the failure of its plan."""
        gvk, key, client = target.watch.gvk, target.key, self.context.client
        rejected = ""
        try:
            if target.edited is not None:
                await apply_file(client, gvk, key, target.edited)
            elif gvk.kind in self.source.changes.different and not self.source.keeps_cluster:
                rejected = await rejection_of(client, gvk, key)
            return replace(await plan_object(self.reconciles_of(target)), rejected=rejected)
        except InvalidError as error:
            return ObjectPlan(gvk, key, failure=f"the API server would reject the object: {error.message}")
        except (PlanError, SourceError, KubeError) as error:
            return ObjectPlan(gvk, key, failure=str(error), rejected=rejected)

    def reconciles_of(self, target: Target) -> PlannedReconciles:
        """Return the reconciles of an object that has had none so far."""
        return PlannedReconciles(self.context, target.watch, target.key)


async def import_targets(context: PlanContext, targets: Targets) -> None:
    """Import single objects, and apply the other objects of the files. Raises SourceError, KubeError."""
    for obj in targets.others:
        gvk, key = GVK.of_object(obj), ObjectKey.of_object(obj)
        await context.importer.import_object(gvk, key)
        await apply_file(context.client, gvk, key, obj)
    for target in targets.single:
        await context.importer.import_object(target.watch.gvk, target.key)


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


async def rejection_of(client: Client, gvk: GVK, key: ObjectKey) -> str:
    """Return why the API server of a sandbox would not accept an imported object as a new one; empty if it would.

    Validation precedes the check whether the object exists. Raises KubeError.
    """
    obj, resource = await client.get(gvk, key), await client.resource(gvk)
    metadata = {name: value for name, value in metadata_of(obj).items() if name in _GIVEN_METADATA}
    content = {name: value for name, value in obj.items() if name != "status"} | {"metadata": metadata}
    try:
        await client.receive(Request("POST", resource.path(key.namespace), {"dryRun": "All"}, content))
    except InvalidError as error:
        return error.message
    except ApiError:  # it exists
        return ""
    return ""


async def plan_object(reconciles: PlannedReconciles) -> ObjectPlan:
    """Reconcile an imported object until it has converged, and return its plan. Raises KubeError, PlanError."""
    started = time.time()
    watch, key, context = reconciles.watch, reconciles.key, reconciles.context
    written = WrittenObjects(context.client)
    context.interceptor.before_write[watch.gvk, key] = written.capture
    before = await reconciles.status()
    await reconciles.follow_obsolete_objects()
    causes: tuple[Cause, ...] = ()
    rounds = 0
    while True:
        rounds += 1
        result, records = await reconciles.reconcile(causes)
        has_changed = [bool(written.add(record)) for record in records]
        is_over = result.failed or bool(reconciles.stopped_at)
        causes = () if is_over else await reconciles.next_causes(written.changes() if any(has_changed) else ())
        if not causes or rounds == MAX_ROUNDS:
            break
    return ObjectPlan(
        gvk=watch.gvk,
        key=key,
        changes=written.changes(),
        writes=tuple(written.writes),
        status_before=before,
        status_after=await reconciles.status(),
        obsolete=reconciles.pruning.texts.get("obsolete", ()),
        proposed=reconciles.proposed,
        requeue_after_seconds=result.requeue_after_seconds,
        rounds=rounds,
        has_settled=not causes,
        stopped_at=reconciles.stopped_at,
        failure=reconciles.failure if result.failed else "",
        assumptions=tuple(reconciles.assumptions),
        withheld=tuple(reconciles.withheld),
        secrets=sensitive_values(watch, reconciles.recorder.records, os.environ),
        started=started,
        ended=time.time(),
    )
