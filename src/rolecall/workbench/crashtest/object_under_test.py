"""The object under test in its sandbox: its initial state, and its work without an interruption or after one.

Uninterrupted work keeps a snapshot of the sandbox after each write, taken before the run receives the response. An
interruption there leaves this state and nothing else: a run has only its own memory, and files that no later run
sees. So the work after it starts from the snapshot: all objects of the sandbox are reset to it, including their uids.

The end state has the objects that the runs have written, and the primary, without fields never compared. An object
that only the garbage collector has yet to remove counts as removed.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import InvalidError, NotFoundError, UnknownKindError
from rolecall.kube.metadata import is_being_deleted, metadata_of, owner_references_of, uid_of
from rolecall.kube.references import GVK, ObjectKey, OwnerReference, RawObject
from rolecall.runner.record.files import RecordFiles
from rolecall.runner.record.recorder import Recorder
from rolecall.runner.record.run_record import RecordMemory, RunRecord
from rolecall.system.blocking_work import run_in_thread
from rolecall.workbench.comparison.end_states import EndObject, EndState, ObjectId
from rolecall.workbench.comparison.masks import sensitive_values
from rolecall.workbench.comparison.objects import compared
from rolecall.workbench.comparison.reports import TaskName
from rolecall.workbench.crashtest.simulated_operator import Limits, Outcome, SettleResult, SimulatedOperator, stored
from rolecall.workbench.crashtest.write_log import Write, WriteLog
from rolecall.workbench.plan.convergence import WrittenVersion, is_changed_by_controllers, wait_for_controllers
from rolecall.workbench.plan.model import ABSENT, PlanError
from rolecall.workbench.plan.planner import Target, apply_file
from rolecall.workbench.plan.reconciles import PlanContext
from rolecall.workbench.plan.sandbox import Sandbox, SandboxState

UNINTERRUPTED_LIMITS: Final = Limits(seconds=600.0, wait_seconds=120.0)
_MORE_ROUNDS: Final = 4
"""The rounds within which an uninterrupted role must stop changing something; otherwise it never does."""

OF_GARBAGE_COLLECTOR: Final = frozenset({"foregroundDeletion", "orphan"})
_MAX_RECORD_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The sandbox right after a write, with the log of that moment, and the records of the runs that had begun."""

    state: SandboxState
    primary: RawObject
    objects: Mapping[ObjectId, str]
    with_status: frozenset[ObjectId]
    records: tuple[RunRecord, ...]


@dataclass(frozen=True, slots=True)
class Uninterrupted:
    """The work of an operator that was not killed: its writes, all objects it has written, and the end state.

    ``is_unchanging`` if the role has reached a state in which it changes nothing. ``snapshots`` has one for each write.
    """

    writes: tuple[Write, ...]
    end: EndState
    objects: tuple[ObjectId, ...]
    started: datetime
    seconds: float
    is_unchanging: bool
    stopped_at: str = ""
    snapshots: tuple[Snapshot, ...] = ()


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The work of an operator after another one was killed; the records include those of the killed one's runs."""

    result: SettleResult
    end: EndState
    records: tuple[RunRecord, ...]
    started: datetime
    seconds: float


@dataclass(slots=True)
class ObjectUnderTest:
    """An object of the sandbox; ``start`` it before anything else."""

    sandbox: Sandbox
    context: PlanContext
    restarted: PlanContext
    """The context with the runner of the operator that continues after an interruption."""

    target: Target
    resource: ApiResource
    other_objects: tuple[RawObject, ...] = ()
    """The other objects of the files."""

    secrets: dict[str, None] = field(default_factory=dict)
    """Texts that must not be displayed."""

    withheld: dict[TaskName, None] = field(default_factory=dict)
    _state: SandboxState | None = None
    _primary: RawObject = field(default_factory=dict)
    _others: tuple[ObjectId, ...] = ()
    """The objects that were written before the initial state."""

    @property
    def title(self) -> str:
        """The kind and the key."""
        return f"{self.target.watch.gvk.kind} {self.target.key}"

    async def start(self, *, deletes: bool, edited: RawObject | None) -> None:
        """Apply the file of the object and keep the initial state; settle, and delete or edit the object before that.

        Raises KubeError, PlanError, SourceError.
        """
        if self.target.edited is not None:
            await self._apply(self.target.edited)
        await self._let_controllers_work()
        await self._keep()
        if deletes or edited is not None:
            settled = await self.uninterrupted()
            if settled.stopped_at:
                raise PlanError(f"{self.title} doesn't settle in a plan: complete up to task {settled.stopped_at}")
            self._others = settled.objects
            if edited is not None:
                await self._apply(edited)
            if deletes:
                await self.context.client.delete(self.target.watch.gvk, self.target.key)
            await self._keep()

    async def _let_controllers_work(self) -> None:
        """Wait for the pods of the workloads in the files, so that every run finds the same."""
        files = (*self.other_objects, *([self.target.edited] if self.target.edited else []))
        made = [obj for obj in files if is_changed_by_controllers(GVK.of_object(obj))]
        if made:
            await self.context.importer.controllers.need()
            keys = [(GVK.of_object(obj), ObjectKey.of_object(obj)) for obj in made]
            await wait_for_controllers(self.context.client, [WrittenVersion(*each, "") for each in keys])

    async def _apply(self, edited: RawObject) -> None:
        try:
            await apply_file(self.context.client, self.target.watch.gvk, self.target.key, edited)
        except InvalidError as error:
            raise PlanError(f"the API server would reject {self.title}: {error.message}") from error

    async def _keep(self) -> None:
        try:
            self._primary = await self.context.client.get(self.target.watch.gvk, self.target.key)
        except NotFoundError as error:
            raise PlanError(f"{self.title} has no finalizer, so nothing runs when it is deleted") from error
        self._state = await self.sandbox.capture(self.context.importer)

    async def reset(self) -> None:
        """Reset the sandbox to the initial state. Raises SourceError."""
        assert self._state is not None  # noqa: S101 - started
        await self._restore(self._state)

    async def _restore(self, state: SandboxState) -> None:
        self.context.interceptor.importer = await self.sandbox.restore(state)

    async def uninterrupted(self, *, until_unchanged: bool | None = None) -> Uninterrupted:
        """Work from the current state until the object is idle, and with ``until_unchanged`` until nothing changes.

        None tries whether the role comes to that. Raises KubeError, and PlanError if the role fails.
        """
        started, clock = datetime.now(UTC), time.monotonic()
        log, snapshots = WriteLog(resource=self.resource, primary=self._primary), list[Snapshot]()
        operator = SimulatedOperator(self.context, self.target.watch, log, UNINTERRUPTED_LIMITS)

        def keep_snapshot() -> None:
            state, records = self.sandbox.snapshot(self.context.importer), tuple(operator.reconciles.recorder.records)
            snapshots.append(Snapshot(state, log.primary, dict(log.objects), frozenset(log.with_status), records))

        log.on_write = keep_snapshot
        result = await operator.settle(until_unchanged=bool(until_unchanged))
        self._note(operator)
        for problem in self.context.interceptor.problems:
            if problem.is_unreadable:
                raise PlanError(f"{self.title}: {problem.text}")
        if result.outcome is not Outcome.SETTLED:
            fails = "fails" if result.outcome is Outcome.STUCK else "doesn't settle"
            raise PlanError(f"the role of {self.title} {fails} even if nothing interrupts it: {result.message}")
        idle = len(log.writes), await end_state(self.context, log, self._others)
        stopped_at, is_unchanging = operator.reconciles.stopped_at, bool(until_unchanged)
        if until_unchanged is None and not stopped_at:
            again = await operator.settle(until_unchanged=True, max_rounds=_MORE_ROUNDS)
            self._note(operator)
            is_unchanging = again.outcome is Outcome.SETTLED
            if is_unchanging:
                idle = len(log.writes), await end_state(self.context, log, self._others)
        seconds = time.monotonic() - clock
        writes, objects = tuple(log.writes[: idle[0]]), tuple(dict.fromkeys((*self._others, *log.objects)))
        kept = tuple(snapshots[: idle[0]])
        return Uninterrupted(writes, idle[1], objects, started, seconds, is_unchanging, stopped_at, kept)

    async def interrupted(
        self,
        snapshot: Snapshot,
        limits: Limits,
        objects: Iterable[ObjectId],
        is_expected: Callable[[Interrupted], bool],
        *,
        until_unchanged: bool,
    ) -> Interrupted:
        """Reset the sandbox to a snapshot, as if the operator had been killed there, and work with another operator.

        ``objects`` belong to the end state in addition to those that are written. The operator ends early if its work
        up to then ``is_expected``. Raises KubeError, PlanError.
        """
        await self._restore(snapshot.state)
        started, clock = datetime.now(UTC), time.monotonic()
        log = WriteLog(
            resource=self.resource,
            primary=snapshot.primary,
            objects=dict(snapshot.objects),
            with_status=set(snapshot.with_status),
        )
        operator = SimulatedOperator(self.restarted, self.target.watch, log, limits)

        async def work(result: SettleResult) -> Interrupted:
            end = await end_state(self.context, log, objects)
            records = (*snapshot.records, *operator.reconciles.recorder.records)
            return Interrupted(result, end, records, started, time.monotonic() - clock)

        done: Interrupted | None = None

        async def is_expected_by_now() -> bool:
            nonlocal done
            found = await work(SettleResult(Outcome.SETTLED))
            done = found if is_expected(found) else None
            return done is not None

        result = await operator.settle(until_unchanged=until_unchanged, is_expected=is_expected_by_now)
        self._note(operator)
        return done or await work(result)

    def _note(self, operator: SimulatedOperator) -> None:
        """Note the secrets that the runs of an operator have read, and the tasks that were not run."""
        records = operator.reconciles.recorder.records
        self.secrets |= dict.fromkeys(sensitive_values(self.target.watch, records, os.environ))
        self.withheld |= operator.reconciles.withheld

    async def write_records(self, records: Iterable[RunRecord], directory: Path) -> None:
        """Write records into a directory, as an operator would. Raises OSError."""
        recorder = Recorder(self.context.client, RecordMemory(0))
        files = RecordFiles(directory, _MAX_RECORD_BYTES)
        for record in records:
            document = await recorder.document(self.target.watch, record)
            await run_in_thread(partial(files.write, record, document))


async def end_state(context: PlanContext, log: WriteLog, others: Iterable[ObjectId] = ()) -> EndState:
    """Return the objects that exist of those that a trial has written, and of others. Raises KubeError."""
    found: EndState = {}
    for ident in dict.fromkeys((log.primary_id, *log.objects, *others)):
        if ident.is_event or not (pair := await stored(context, ident)):
            continue
        gvk, obj = pair
        if not await _is_gone(context, obj):
            with_status = ident in log.with_status or ident == log.primary_id
            found[ident] = EndObject(gvk, ident.key, compared(gvk, obj, with_status=with_status))
    return found


async def _is_gone(context: PlanContext, obj: RawObject) -> bool:
    """Return whether an object exists only until the garbage collector or the end of its grace period."""
    finalizers = set(metadata_of(obj).get("finalizers") or ())
    if is_being_deleted(obj) and finalizers <= OF_GARBAGE_COLLECTOR:
        return True
    owners = owner_references_of(obj)
    return bool(owners) and not any([await _exists(context, each, obj) for each in owners])


async def _exists(context: PlanContext, owner: OwnerReference, owned: RawObject) -> bool:
    try:
        resource = await context.client.resource(owner.gvk)
        namespace = ObjectKey.of_object(owned).namespace if resource.namespaced else ""
        return uid_of(await context.client.get(owner.gvk, ObjectKey(namespace, owner.name))) == owner.uid
    except (*ABSENT, UnknownKindError):
        return False
