"""Reconciles one object of a sandbox as the operator would, and keeps the records of its runs, for plans and replays.

The reconcile is the operator's own, with its conditions, finalizers and periods. Its runs are planned runs, which
withhold everything outside Kubernetes (see docs/concepts/planned-runs.md). A planned run has its own empty directory
for its notes, and for the files that it writes instead of the real ones.
"""

import math
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from rolecall.kube.client import Client
from rolecall.kube.discovery import ApiResource
from rolecall.kube.metadata import status_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.controller import Result
from rolecall.runner.controller.work_queue import Cause
from rolecall.runner.proxy.ownership import Ownership
from rolecall.runner.proxy.server import Proxy
from rolecall.runner.prune.decision import PRUNES_VARIABLE, Pruning
from rolecall.runner.prune.inventory import Inventory
from rolecall.runner.reconcile.context import CONFIRM_ANNOTATION
from rolecall.runner.reconcile.kubernetes_events import EventReporter, EventSpec
from rolecall.runner.reconcile.pruner import PRUNE, Pruner
from rolecall.runner.reconcile.reconciler import Reconciler
from rolecall.runner.reconcile.status import Readiness
from rolecall.runner.reconcile.status_writer import Primaries, StatusWriter
from rolecall.runner.record.run_record import Bodies, Ending, RunRecord
from rolecall.runner.runs.content import contents_of, mentions
from rolecall.runner.runs.events import PRUNE_ACTION
from rolecall.runner.runs.launcher import Launcher
from rolecall.runner.runs.outcome import NO_RUN, Outcome
from rolecall.runner.runs.own_writes import OwnWrites, SelfTriggers
from rolecall.runner.runs.process import OnEvent, Runner, RunSpec
from rolecall.system.blocking_work import run_in_thread
from rolecall.system.clock import LoopClock
from rolecall.system.files import OwnedDirectory
from rolecall.workbench.comparison.reports import TaskName
from rolecall.workbench.plan.convergence import (
    CONVERGES_WITHIN_SECONDS,
    WrittenVersion,
    wait_for_controllers,
    written_versions,
)
from rolecall.workbench.plan.model import ABSENT, ObjectChange, PlanError
from rolecall.workbench.plan.sandbox import SandboxInterceptor
from rolecall.workbench.plan.sandbox_import import Importer
from rolecall.workbench.plan.sandbox_sources import SourceError
from rolecall.workbench.planned import playbook
from rolecall.workbench.planned.journal import (
    DIRECTORY_VARIABLE,
    MAX_WAIT_VARIABLE,
    RUN_COMMANDS_VARIABLE,
    Journal,
    Notes,
)

MAX_BODIES_BYTES: Final = 256 << 20
"""The limit for the bodies of one run."""
NO_REASON: Final = "the reconcile failed; its status has the reason"

_YEAR_SECONDS: Final = 366 * 86400.0
_COMPLETE: Final = "complete up to task "


def planned_environment(
    directory: Path, *, run_commands: bool = False, max_wait_seconds: float | None = None
) -> dict[str, str]:
    """Return the variables of a planned run; with ``run_commands`` nothing is withheld.

    ``max_wait_seconds`` limits how long a task waits for an object, None for no limit.
    """
    commands = {RUN_COMMANDS_VARIABLE: "1"} if run_commands else {}
    waits = {} if max_wait_seconds is None else {MAX_WAIT_VARIABLE: str(math.ceil(max_wait_seconds))}
    return {DIRECTORY_VARIABLE: str(directory), **commands, **waits}


def read_notes(directory: Path) -> Notes | None:
    """Return the notes of a planned run that has ended; None if it ended before it withheld anything."""
    try:
        notes = Journal(directory).read()
    except FileNotFoundError:
        return None
    return notes if notes.was_in_force else None


@dataclass(frozen=True, slots=True)
class PlannedRunner:
    """Runs each role as a planned run with these variables."""

    runner: Runner
    variables: Mapping[str, str]

    async def run(self, spec: RunSpec, on_event: OnEvent) -> Outcome:
        """Run as a planned run; see ``Runner``."""
        environment = replace(spec.environment, variables={**self.variables, **spec.environment.variables})
        return await self.runner.run(replace(spec, program=playbook.__name__, environment=environment), on_event)


@dataclass(frozen=True, slots=True)
class PlanContext:
    """The parts that the planned objects of a sandbox share: the proxy for their runs, and the runner of roles.

    ``directory`` has the files of the runs. With ``runs_commands`` nothing is withheld.
    """

    settings: Settings
    interceptor: SandboxInterceptor
    proxy: Proxy
    runner: Runner
    directory: Path
    runs_commands: bool = False

    @property
    def importer(self) -> Importer:
        """The importer of the sandbox."""
        return self.interceptor.importer

    @property
    def client(self) -> Client:
        """The administrator of the sandbox."""
        return self.interceptor.importer.client


@asynccontextmanager
async def plan_context(
    settings: Settings,
    importer: Importer,
    runner: Runner,
    *,
    runs_commands: bool,
) -> AsyncIterator[PlanContext]:
    """Yield the context for objects in the sandbox that the importer fills."""
    interceptor = SandboxInterceptor(importer)
    directory = OwnedDirectory.make("rolecall-plan-")
    try:
        async with Proxy(importer.client, interceptor=interceptor.before) as proxy:
            yield PlanContext(settings, interceptor, proxy, runner, directory.path.resolve(), runs_commands)
    finally:
        await run_in_thread(directory.remove)


@dataclass(slots=True)
class InMemoryRecorder:
    """Keeps the complete records of planned runs in memory."""

    records: list[RunRecord] = field(default_factory=list)

    def start(self, watch: Watch, obj: RawObject, ident: str, causes: tuple[Cause, ...]) -> RunRecord:
        """Return the record of a run that starts now."""
        texts = tuple(cause.text for cause in causes)
        record = RunRecord(watch.gvk, obj, ident, Bodies(), MAX_BODIES_BYTES, texts)
        self.records.append(record)
        return record

    async def finish(self, _watch: Watch, record: RunRecord, ending: Ending) -> None:
        """Keep the end of the reconcile."""
        record.ending = ending

    def forget(self, gvk: GVK, key: ObjectKey) -> None:
        """Keep the records: a planned deletion is a part of the plan."""


@dataclass(frozen=True, slots=True)
class _RunClock(LoopClock):
    """The system's clocks, a year later for each run that was recorded."""

    recorder: InMemoryRecorder

    def now(self) -> float:
        """Return the wall clock time in seconds since the epoch."""
        return LoopClock.now(self) + len(self.recorder.records) * _YEAR_SECONDS

    def monotonic(self) -> float:
        """Return the monotonic time in seconds."""
        return LoopClock.monotonic(self) + len(self.recorder.records) * _YEAR_SECONDS


@dataclass(slots=True)
class PlannedReconciles:
    """The reconciles of one object of the sandbox.

    ``own_writes`` receives each write of the runs, and of the operator.
    """

    context: PlanContext
    watch: Watch
    key: ObjectKey
    own_writes: OwnWrites = field(default_factory=OwnWrites)
    max_wait_seconds: float | None = None
    """How long a task may wait for an object."""

    recorder: InMemoryRecorder = field(default_factory=InMemoryRecorder)
    dependents: set[GVK] = field(default_factory=set)
    """The kinds of the objects that the runs own."""

    withheld: dict[TaskName, None] = field(default_factory=dict)
    """The tasks that were not run, in their order."""

    assumptions: dict[str, None] = field(default_factory=dict)
    """Sentences about controllers that did not converge."""

    pruner: Pruner | None = None
    """Notes what the runs no longer name."""

    prunes: bool = False
    """Whether the pruner deletes it."""

    stopped_at: str = ""
    """The task up to which the runs are complete, and the reason; empty if they are complete."""

    @property
    def last_outcome(self) -> Outcome:
        """The outcome of the last run."""
        return self.recorder.records[-1].ending.run if self.recorder.records else NO_RUN

    @property
    def failure(self) -> str:
        """Why the last reconcile failed."""
        return self.last_outcome.message or NO_REASON

    async def status(self) -> RawObject:
        """Return the status of the object in the sandbox."""
        try:
            return status_of(await self.context.client.get(self.watch.gvk, self.key))
        except ABSENT:
            return {}

    async def reconcile(self, causes: tuple[Cause, ...] = ()) -> tuple[Result, list[RunRecord]]:
        """Reconcile the object once; return the result, and the records of the runs (at most one).

        Raises PlanError if a run withheld nothing although it should have.
        """
        context, known = self.context, len(self.recorder.records)
        directory = Path(await run_in_thread(lambda: tempfile.mkdtemp(prefix="files-", dir=context.directory)))
        result = await self._reconciler(directory).reconcile(self.key, causes)
        new = self.recorder.records[known:]
        for record in new:
            notes = await run_in_thread(lambda: read_notes(directory))
            if notes is None and record.tasks:
                raise PlanError(f"{self.watch.gvk.kind} {self.key}: the run withheld nothing, so its plan is unknown")
            if notes is not None:
                self.withheld |= dict.fromkeys(TaskName(each.task, each.place) for each in notes.withheld)
                if notes.ended is not None and not self.stopped_at:
                    self.stopped_at = notes.ended.message.removeprefix(_COMPLETE)
            self.stopped_at = self.stopped_at or self._rejected_in(record)
        if self.prunes and self.proposed:
            await self._confirm()
        return result, new

    async def _confirm(self) -> None:
        """Let a person confirm what the last run proposes."""
        client, gvk = self.context.client, self.watch.gvk
        digest = Inventory.of(await client.get(gvk, self.key)).confirm
        await client.patch(gvk, self.key, {"metadata": {"annotations": {CONFIRM_ANNOTATION: digest}}})

    def _rejected_in(self, record: RunRecord) -> str:
        """Return the task of the first request that the sandbox rejected, and the reason; empty if there is none."""
        for problem in self.context.interceptor.problems:
            if problem.ident == record.ident:
                task = next((each.name for each in record.tasks.values() if each.ident == problem.task), "")
                return f"{task or 'an unknown task'}: {problem.text}"
        return ""

    async def next_causes(self, written: Iterable[ObjectChange]) -> tuple[Cause, ...]:
        """Return why the operator would reconcile the object again soon; empty if it would not.

        That is because the last run requested it, or because controllers change a written object of a watched kind.
        """
        return self.requeue_causes or await self.controller_causes(written_versions(written))

    @property
    def pruning(self) -> Pruning:
        """What the last run no longer names."""
        return self.recorder.records[-1].ending.pruning if self.recorder.records else Pruning()

    @property
    def proposed(self) -> tuple[str, ...]:
        """What the last run proposes to a person, without the digest: that of the cluster may be another one."""
        how = f"; confirm with {CONFIRM_ANNOTATION}"
        return tuple(text.partition(how)[0] for text in self.pruning.texts.get("proposed", ()))

    @property
    def prunes_next(self) -> bool:
        """Whether the next run deletes what the last ones no longer name."""
        is_due = self.pruning.again_at is not None or bool(self.proposed)
        return self.prunes and (is_due or not self.pruning.is_stable)

    @property
    def requeue_causes(self) -> tuple[Cause, ...]:
        """The request of the last run for another one; empty if it requested none."""
        if self.last_outcome.requests_requeue:
            return (Cause("requeue_after"),)
        return (PRUNE,) if self.prunes_next or not self.pruning.is_stable else ()

    async def controller_causes(self, written: Iterable[WrittenVersion]) -> tuple[Cause, ...]:
        """Wait for the controllers that change written objects of watched kinds; return why the object is due again."""
        watched = [each for each in written if self._watches(each.gvk)]
        await self.context.importer.controllers.catch_up()
        changed, unfinished = await wait_for_controllers(self.context.client, watched)
        within = f"was not ready in the sandbox within {CONVERGES_WITHIN_SECONDS:.0f} s"
        self.assumptions |= dict.fromkeys(f"{each.gvk.kind} {each.key} {within}" for each in unfinished)
        return tuple(Cause(f"dependent {each.gvk.kind} {each.key} changed") for each in changed[:1])

    def _watches(self, gvk: GVK) -> bool:
        """Return whether the operator would watch a kind, because of the runs of this object or because of triggers."""
        watch = self.watch
        is_dependent = gvk in self.dependents and watch.watch_dependent_resources and gvk not in watch.blacklist
        return is_dependent or any(trigger.gvk == gvk for trigger in watch.triggers)

    def _reconciler(self, directory: Path) -> Reconciler:
        context, watch, own_writes = self.context, self.watch, self.own_writes
        variables = planned_environment(
            directory, run_commands=context.runs_commands, max_wait_seconds=self.max_wait_seconds
        )
        variables |= {} if self.pruner is None else {PRUNES_VARIABLE: "1"}
        runner = PlannedRunner(context.runner, variables)
        primaries = Primaries(context.client, watch.gvk, own_writes)
        return Reconciler(
            watch=watch,
            primaries=primaries,
            launcher=Launcher(
                watch=watch,
                settings=context.settings,
                runner=runner,
                root=context.directory,
                client=context.client,
                proxy=context.proxy,
                own_writes=own_writes,
                on_dependent=self._on_dependent,
                pruning=frozenset() if self.pruner is None else self.pruner.pruning,
            ),
            status=StatusWriter(primaries, Readiness.of_watch(watch, default=context.settings.ready_conditions)),
            self_triggers=SelfTriggers(watch.gvk, own_writes),
            events=EventReporter(_write_no_event),
            default_period_seconds=context.settings.reconcile_period_seconds,
            recorder=self.recorder,
            pruner=self.pruner,
        )

    async def follow_obsolete_objects(self, *, deletes: bool = False) -> None:
        """From now on, note what runs no longer name as the operator would, whose name is in the inventory.

        With ``deletes``, also delete it as the operator would, but without waiting: each run is a year later, and a
        person confirms each proposal at once.
        """
        role, client = self.watch.content.path.stem, self.context.client
        inventory = Inventory.of(await client.get(self.watch.gvk, self.key))
        may_prune = await run_in_thread(lambda: mentions(contents_of(self.watch), PRUNE_ACTION.encode()))
        self.prunes = deletes
        self.pruner = Pruner(
            watch=self.watch,
            primaries=Primaries(client, self.watch.gvk, self.own_writes),
            record_event=_write_no_event,
            identity=inventory.by if inventory.by.endswith(f"/{role}") else role,
            may_delete=lambda _key: deletes,
            pruning={self.watch.gvk} if may_prune else set(),
            clock=_RunClock(self.recorder if deletes else InMemoryRecorder()),
        )
        if may_prune and not deletes:
            await self._import_named_by(inventory)

    async def _import_named_by(self, inventory: Inventory) -> None:
        """Import the objects that earlier runs have named: the planned ones may no longer name them."""
        for each in inventory.objects:
            try:
                await self.context.importer.import_object(GVK(each.id.group, each.version, each.kind), each.id.key)
            except SourceError as error:
                text = f"{each} can't be read, so the plan doesn't show whether pruning deletes it: {error}"
                self.assumptions[text] = None

    def _on_dependent(self, resource: ApiResource, _ownership: Ownership) -> None:
        self.dependents.add(resource.gvk)


def _write_no_event(_obj: RawObject, _event: EventSpec) -> None:
    """Write no Event: the sandbox is removed before anything could read it."""
