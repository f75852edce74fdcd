"""The explored object in its sandbox: created with a spec, changed to another one, deleted, and settled each time.

A fresh object is created in the sandbox as it was before the object existed. The state of the walk is captured before
that, and restored after it. With ``elsewhere``, the runs are those of another operator process, whose order of sets
differs.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from rolecall.kube.connection import Request, read_object
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import ApiError
from rolecall.kube.metadata import is_being_deleted, metadata_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.proxy.ownership import Owner, ownership_of
from rolecall.runner.record.run_record import RunRecord
from rolecall.workbench.comparison.end_states import EndState, ObjectId
from rolecall.workbench.comparison.reports import TaskName
from rolecall.workbench.comparison.variables import leaves
from rolecall.workbench.crashtest.object_under_test import end_state
from rolecall.workbench.crashtest.simulated_operator import Limits, Outcome, SettleResult, SimulatedOperator, stored
from rolecall.workbench.crashtest.write_log import WriteLog
from rolecall.workbench.explore.edits import Schema, Spec, field_of
from rolecall.workbench.explore.instant_controllers import InstantControllers
from rolecall.workbench.explore.rules import REJECTING, Settled, normal
from rolecall.workbench.plan.planner import Target
from rolecall.workbench.plan.reconciles import PlanContext
from rolecall.workbench.plan.sandbox import Sandbox, SandboxState
from rolecall.workbench.plan.sandbox_sources import RememberingSource, Source
from rolecall.workbench.yaml_files import below

LIMITS: Final = Limits(seconds=120.0, wait_seconds=10.0)
_REJECTIONS: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
_MAX_ROUNDS: Final = 12
_MANY_CHANGES: Final = 4
"""A role is rarely quiet if so many runs that nothing requires change something, even if the last one doesn't."""

_NOTES: Final = ("rolecall.dev/", "kubectl.kubernetes.io/last-applied")


Writers = dict[tuple[ObjectId, str], TaskName]
"""The task that made an object, for the empty path, and the last one that wrote a field, for its path."""

Captured = tuple[SandboxState, dict[ObjectId, None], Writers]
"""A state of the sandbox, with the objects in it that runs have written, and the tasks that did."""


@dataclass(slots=True)
class SourceWithout(RememberingSource):
    """A cluster in which an object, and what it owns, never existed; ``owner`` is None until it is known."""

    owner: Owner | None = None

    async def get(self, resource: ApiResource, key: ObjectKey) -> RawObject | None:
        """Return an object, None for one that doesn't exist, or is left out."""
        found = await RememberingSource.get(self, resource, key)
        return None if found is not None and self._is_left_out(resource, found) else found

    async def list(
        self, resource: ApiResource, namespace: str, *, labels: str = "", fields: str = ""
    ) -> list[RawObject]:
        """Return the objects of a list that aren't left out."""
        found = await RememberingSource.list(self, resource, namespace, labels=labels, fields=fields)
        return [each for each in found if not self._is_left_out(resource, each)]

    def _is_left_out(self, resource: ApiResource, obj: RawObject) -> bool:
        owner, key = self.owner, ObjectKey.of_object(obj)
        return owner is not None and (owner.refers_to(resource.gvk, key) or ownership_of(obj, owner) is not None)


async def schema_of(source: Source, gvk: GVK) -> Schema:
    """Return the schema of the spec in the CRD of a kind; empty if it has none. Raises SourceError."""
    for definition in await source.definitions(gvk.group):
        for version in definition["spec"]["versions"]:
            if (definition["spec"]["names"]["kind"], version["name"]) == (gvk.kind, gvk.version):
                return below(version, "schema", "openAPIV3Schema", "properties", "spec")
    return {}


@dataclass(slots=True)
class ExploredObject:
    """An object of the sandbox; ``empty`` is the state without it."""

    sandbox: Sandbox
    context: PlanContext
    elsewhere: PlanContext
    """The context with the runner of another operator process."""

    target: Target
    resource: ApiResource
    manifest: RawObject
    """The object as its author would write it, with any spec."""

    empty: SandboxState
    given: frozenset[tuple[GVK, ObjectKey]]
    """The other objects of its file."""

    expects_quiet: bool = True
    """Whether the role has a state in which it changes nothing."""

    known: dict[ObjectId, None] = field(default_factory=dict)
    """The objects that runs have written, without those that no longer exist."""

    made: set[ObjectId] = field(default_factory=set)
    """Those that exist neither in the cluster nor in the file."""

    writers: Writers = field(default_factory=dict)
    prunes: bool = False
    """Whether the role has reached the task that prunes."""

    withheld: dict[TaskName, None] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    @property
    def ident(self) -> ObjectId:
        """The object in the URL of a request."""
        gvk = self.resource.gvk
        return ObjectId(gvk.group, gvk.version, self.resource.plural, self.target.key)

    @property
    def origins(self) -> set[tuple[str, str, TaskName | None]]:
        """The resources of the objects that runs have made, with the tasks that did."""
        return {(ident.group, ident.plural, self.writers.get((ident, ""))) for ident in self.made}

    async def capture(self) -> Captured:
        """Return the current state. Raises SourceError."""
        return await self.sandbox.capture(self.context.importer), dict(self.known), dict(self.writers)

    async def restore(self, captured: Captured) -> None:
        """Reset the sandbox to a state that was captured. Raises SourceError."""
        self.context.interceptor.importer = await self.sandbox.restore(captured[0])
        self.known = captured[1] | {ident: None for ident in self.known if ident not in self.made}
        self.writers |= captured[2]

    @asynccontextmanager
    async def aside(self) -> AsyncIterator[None]:
        """Restore the current state afterward."""
        state = await self.capture()
        try:
            yield
        finally:
            await self.restore(state)

    def with_spec(self, spec: Spec) -> RawObject:
        """Return the manifest with a spec."""
        return {**self.manifest, "spec": dict(spec)}

    async def create(self, spec: Spec, *, max_runs: int = _MAX_ROUNDS, elsewhere: bool = False) -> Settled:
        """Create the object with a spec where it didn't exist, and settle it. Raises KubeError, SourceError."""
        await self.restore((self.empty, {}, {}))
        await self.context.client.create(self.with_spec(spec))
        return await self.settle(max_runs=max_runs, elsewhere=elsewhere)

    async def change(self, spec: Spec) -> Settled:
        """Change the spec of the object, and settle it. Raises KubeError."""
        current = await self.context.client.get(self.target.watch.gvk, self.target.key)
        await self.context.client.replace({**current, "spec": dict(spec)})
        return replace(await self.settle(), age_seconds=time.monotonic() - self.began)

    async def accepted(self, spec: Spec) -> dict[str, Any] | None:
        """Return the spec that the API server would store for this one, with defaults; None if it would reject it."""
        client, key = self.context.client, self.target.key
        current = await client.get(self.target.watch.gvk, key)
        query = {"dryRun": "All", "fieldValidation": "Strict"}
        request = Request("PUT", self.resource.path_of(key), query, body={**current, "spec": dict(spec)})
        try:
            return dict(read_object(await client.receive(request), str(key)).get("spec") or {})
        except ApiError as error:
            if error.status not in _REJECTIONS:
                raise
            return None

    async def delete(self) -> Settled:
        """Delete the object, and settle what follows. Raises KubeError."""
        await self.context.client.delete(self.target.watch.gvk, self.target.key)
        return await self.settle()

    async def run_again(self) -> Settled:
        """Return the object after one more run of an unchanged spec; afterward, it is as before. Raises KubeError."""
        async with self.aside():
            settled = await self.settle(max_runs=1, elsewhere=True)
            return replace(settled, age_seconds=time.monotonic() - self.began)

    async def settle(self, *, max_runs: int = _MAX_ROUNDS, elsewhere: bool = False) -> Settled:
        """Work as an operator until no run is due, and nothing changes if that is expected. Raises KubeError."""
        started, clock, log = datetime.now(UTC), time.monotonic(), self._new_log()
        if isinstance(controllers := self.sandbox.controllers, InstantControllers):
            controllers.follow(log)
        context = self.elsewhere if elsewhere else self.context
        operator = SimulatedOperator(context, self.target.watch, log, LIMITS)
        result = SettleResult(Outcome.SETTLED)
        if await stored(self.context, self.ident) is not None:
            await operator.reconciles.follow_obsolete_objects(deletes=True)
            result = await operator.settle(until_unchanged=self.expects_quiet, max_rounds=max_runs)
        records, is_stuck = operator.reconciles.recorder.records, result.outcome is Outcome.STUCK
        self.prunes |= any(each.ending.run.prune is not None for each in records)
        self.withheld |= operator.reconciles.withheld
        await self._note(log)
        if not all(log.objects.values()) or await stored(self.context, self.ident) is None:
            await self._collect_garbage()
        failed, is_rejected = _failed_task(records[-1]) if is_stuck and records else (None, False)
        writers = [each.task for each in log.writes if each.origin is not None]
        is_noisy = result.outcome is Outcome.ENDLESS or operator.unasked_changes >= _MANY_CHANGES
        end = await self._end()
        self.known = {ident: None for ident in self.known if ident in end or ident not in self.made}
        return Settled(
            end,
            started,
            time.monotonic() - clock,
            failure=(result.message or "the run failed") if is_stuck else "",
            failed=failed,
            is_rejected=is_rejected,
            noisy=writers[-1] if is_noisy and not is_stuck and writers else None,
            stopped_at=operator.reconciles.stopped_at,
        )

    async def _note(self, log: WriteLog) -> None:
        """Note the objects that runs have written, and the tasks that did."""
        written = [(each.ident, each) for each in log.writes if each.ident is not None and each.method != "DELETE"]
        for ident, write in written:
            self.writers |= {(ident, field_of(path)): write.task for path, _ in leaves(write.sent, frozenset()) if path}
        self.writers |= {(ident, ""): write.task for ident, write in reversed(written) if ident not in self.known}
        new = [ident for ident in log.objects if ident not in self.known and not ident.is_event]
        self.known |= dict.fromkeys(new)
        for ident in new:
            resource = await self.context.client.resource_for_path(ident.group, ident.version, ident.plural)
            has_been_there = resource is not None and (
                ident.key in self.context.importer.keys_of(resource) or (resource.gvk, ident.key) in self.given
            )
            if ident != self.ident and not has_been_there:
                self.made.add(ident)

    async def _end(self) -> EndState:
        """Return the end state, with objects of the cluster that any run has written."""
        for ident in self.known.keys() - self.made:
            resource = await self.context.client.resource_for_path(ident.group, ident.version, ident.plural)
            if resource and ident != self.ident:
                await self.context.importer.import_object(resource.gvk, ident.key)
        return normal(await end_state(self.context, self._new_log(), self.known), self.ident)

    async def _collect_garbage(self) -> None:
        """Delete what the garbage collector would delete, if it isn't running."""
        if not isinstance(self.sandbox.controllers, InstantControllers):
            return
        for _ in range(_MAX_ROUNDS):
            end = await end_state(self.context, self._new_log(), self.known)
            gone = [each for each in self.known if each not in end and not each.is_event]
            if not any([await self._remove(each) for each in gone]):
                return

    async def _remove(self, ident: ObjectId) -> bool:
        """Remove an object that the garbage collector would remove; return whether it existed."""
        found = await stored(self.context, ident)
        if found and is_being_deleted(found[1]):
            await self.context.client.patch(found[0], ident.key, {"metadata": {"finalizers": None}})
        elif found:
            await self.context.client.delete(found[0], ident.key)
        return found is not None

    def _new_log(self) -> WriteLog:
        return WriteLog(resource=self.resource, primary=self.with_spec({}))


def manifest_of(obj: RawObject, key: ObjectKey) -> RawObject:
    """Return an object as its author would write it: without status and what others have added to its metadata."""
    metadata: dict[str, Any] = {"name": key.name} | ({"namespace": key.namespace} if key.namespace else {})
    for name in ("labels", "annotations"):
        given = metadata_of(obj).get(name) or {}
        if kept := {each: value for each, value in given.items() if not each.startswith(_NOTES)}:
            metadata[name] = kept
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata, "spec": obj.get("spec") or {}}


def _failed_task(record: RunRecord) -> tuple[TaskName | None, bool]:
    """Return the task that failed in a run, and whether it rejects a spec on purpose."""
    wanted = {each.task_id for each in record.ending.run.failures}
    task = next((each for each in record.tasks.values() if each.ident in wanted), None)
    return (TaskName(task.name, task.path, task.is_hidden), task.action in REJECTING) if task else (None, False)
