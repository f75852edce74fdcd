"""Reconciles one object of a sandbox as the operator would, and keeps what its runs did.

The reconcile is the operator's own, with its conditions, finalizers and periods. Its runs are planned ones: what is not
Kubernetes is withheld, see docs/concepts/planned-runs.md.

The secret values that planned runs have met, so that no plan shows them.

A planned run, as the operator's side sees it: how a run is told that it is one, and what came of it.

Give ``environment()`` to the run, for example through ``ApiAccess.environment``, and read ``outcome()`` when it has
ended. The folder must exist, be empty and belong to this run alone; it holds the files that the run writes instead of
the real ones, so remove it afterwards. See docs/concepts/planned-runs.md for what is withheld.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rolecall.kube.client import Client
from rolecall.kube.discovery import ApiResource
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.controller import Result
from rolecall.runner.controller.work_queue import Cause
from rolecall.runner.proxy import Ownership, Proxy
from rolecall.runner.proxy.bodies import decode
from rolecall.runner.reconcile.kubernetes_events import EventReporter, EventSpec
from rolecall.runner.reconcile.own_writes import OwnWrites, SelfTriggers
from rolecall.runner.reconcile.reconciler import Reconciler
from rolecall.runner.reconcile.status import Readiness
from rolecall.runner.reconcile.status_writer import Primaries, StatusWriter
from rolecall.runner.record.masking import decode_base64
from rolecall.runner.record.run_record import Bodies, Ending, RunRecord
from rolecall.runner.record.secret_values import is_about_secrets, marked_texts, secret_texts
from rolecall.runner.runs.api_access import ApiAccess
from rolecall.runner.runs.events import RunSummary
from rolecall.runner.runs.launcher import Launcher
from rolecall.runner.runs.planned.journal import (
    DIRECTORY_VARIABLE,
    RUN_COMMANDS_VARIABLE,
    EndedAt,
    Journal,
    WithheldTask,
)
from rolecall.runner.runs.process import Runner
from rolecall.system.blocking_work import run_in_thread
from rolecall.workbench.plan.model import PlanError, TaskName
from rolecall.workbench.plan.written_objects import PlanGate

_MIN_LENGTH: Final = 4
"""A shorter value says nothing, and would hide half of a plan."""


def secrets_of(watch: Watch, records: Iterable[RunRecord], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return what the runs have read from Secrets, and what the watch and the environment say is secret."""
    found = dict.fromkeys(secret_texts(watch, environment))
    for record in records:
        found |= dict.fromkeys(marked_texts(watch, record.obj))
        found |= dict.fromkeys(text for text in _texts_read(record) if len(text) >= _MIN_LENGTH)
    return tuple(found)


def _texts_read(record: RunRecord) -> Iterator[str]:
    for kept in record.exchanges:
        if kept.response is not None and is_about_secrets(kept.exchange.info):
            answer = decode(record.bodies.get(kept.response), kept.exchange.response_type)
            for secret in _secrets_in(answer):
                yield from _values_of(secret)


def _secrets_in(answer: Any) -> Iterator[dict[str, Any]]:
    if isinstance(answer, dict):
        items = answer.get("items")
        yield from (each for each in (items if isinstance(items, list) else [answer]) if isinstance(each, dict))


def _values_of(secret: Mapping[str, Any]) -> Iterator[str]:
    data = secret.get("data")
    for value in data.values() if isinstance(data, dict) else ():
        content = decode_base64(value)
        try:
            yield str(value) if content is None else content.decode()
        except UnicodeDecodeError:
            yield str(value)


@dataclass(frozen=True, slots=True)
class PlannedOutcome:
    """What a planned run did not run, and where it ended because of that, if it did."""

    withheld: tuple[WithheldTask, ...]
    ended: EndedAt | None


class NotWithheldError(Exception):
    """A run that was to be a planned one did not get as far as withholding anything."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One planned run with a folder of its own; ``run_commands`` lets run for real what would be withheld."""

    directory: Path
    run_commands: bool = False

    def environment(self) -> dict[str, str]:
        """Return the variables that make a run a planned one."""
        variables = {DIRECTORY_VARIABLE: str(self.directory)}
        return variables | ({RUN_COMMANDS_VARIABLE: "1"} if self.run_commands else {})

    def outcome(self) -> PlannedOutcome:
        """Return what the run noted, after it has ended.

        Raises NotWithheldError if it ended before its first task, for example because it could not start at all.
        """
        try:
            notes = Journal(self.directory).read()
        except FileNotFoundError:
            notes = None
        if notes is None or not notes.was_in_force:
            raise NotWithheldError(f"the planned run left no notes in {self.directory}: it did not start")
        return PlannedOutcome(notes.withheld, notes.ended)


__all__ = ["EndedAt", "NotWithheldError", "PlannedOutcome", "PlannedRun", "WithheldTask"]


ROOM_BYTES: Final = 256 << 20
"""What the bodies of one run may take."""

_COMPLETE: Final = "complete up to task "


@dataclass(frozen=True, slots=True)
class PlanWorld:
    """What all planned objects share: the sandbox's client, the proxy before it, and what runs roles.

    ``root`` is a directory for files of the runs. With ``runs_commands`` nothing is withheld.
    """

    settings: Settings
    client: Client
    proxy: Proxy
    gate: PlanGate
    runner: Runner
    root: Path
    runs_commands: bool = False


@dataclass(slots=True)
class KeptRuns:
    """Keeps the records of planned runs, whole and in memory."""

    records: list[RunRecord] = field(default_factory=list)

    def start(self, watch: Watch, obj: RawObject, ident: str, causes: tuple[Cause, ...]) -> RunRecord:
        """Return the record of a run that starts now."""
        texts = tuple(cause.text for cause in causes)
        record = RunRecord(watch.gvk, obj, ident, Bodies(), ROOM_BYTES, texts)
        self.records.append(record)
        return record

    async def finish(self, _watch: Watch, record: RunRecord, ending: Ending) -> None:
        """Keep how the reconcile ended."""
        record.ending = ending

    def forget(self, gvk: GVK, key: ObjectKey) -> None:
        """Keep what is known: a planned deletion is a part of the plan."""


@dataclass(slots=True)
class PlannedReconciles:
    """The reconciles of one object of the sandbox."""

    world: PlanWorld
    watch: Watch
    key: ObjectKey
    runs: KeptRuns = field(default_factory=KeptRuns)
    dependents: set[GVK] = field(default_factory=set)
    """The kinds of the objects that the runs own."""

    withheld: dict[TaskName, None] = field(default_factory=dict)
    """The tasks that were not run, in their order."""

    stopped_at: str = ""
    """Up to which task the runs are complete, and why; empty if they are complete."""

    async def reconcile(self, causes: tuple[Cause, ...]) -> Result:
        """Reconcile the object once. Raises PlanError if a run withheld nothing although it should have."""
        known = len(self.runs.records)
        directory = await run_in_thread(lambda: tempfile.mkdtemp(prefix="files-", dir=self.world.root))
        planned = PlannedRun(Path(directory), self.world.runs_commands)
        result = await self._reconciler(planned).reconcile(self.key, causes)
        for record in self.runs.records[known:]:
            self._note(record, await run_in_thread(lambda: _outcome_of(planned)))
        return result

    @property
    def last_summary(self) -> RunSummary | None:
        """How the last run ended, None if there was none."""
        ending = self.runs.records[-1].ending if self.runs.records else None
        return ending.summary if ending else None

    def _note(self, record: RunRecord, outcome: PlannedOutcome | None) -> None:
        if outcome is None and record.tasks:
            raise PlanError(f"{self.watch.gvk.kind} {self.key}: the run was not a planned one, so nothing is known")
        if outcome is not None:
            self.withheld |= dict.fromkeys(TaskName(each.task, each.place) for each in outcome.withheld)
            if outcome.ended is not None and not self.stopped_at:
                self.stopped_at = outcome.ended.message.removeprefix(_COMPLETE)
        self.stopped_at = self.stopped_at or self._unanswered_in(record)

    def _unanswered_in(self, record: RunRecord) -> str:
        """Return the task of the first request that the sandbox could not answer, and why; empty if there is none."""
        for problem in self.world.gate.sandbox.problems:
            if problem.ident == record.ident:
                task = next((each.name for each in record.tasks.values() if each.ident == problem.task), "")
                return f"{task or 'an unknown task'}: {problem.text}"
        return ""

    def _reconciler(self, planned: PlannedRun) -> Reconciler:
        world, watch, own_writes = self.world, self.watch, OwnWrites()
        access = ApiAccess(
            client=world.client,
            proxy=world.proxy,
            own_writes=own_writes,
            on_dependent=self._on_dependent,
            directory=world.root,
            inject_owner=world.settings.inject_owner_reference,
            environment=planned.environment(),
        )
        primaries = Primaries(world.client, watch.gvk, own_writes)
        return Reconciler(
            watch=watch,
            primaries=primaries,
            launcher=Launcher(watch, world.runner, access, world.settings, world.root),
            status=StatusWriter(primaries, Readiness.of_watch(watch, default=world.settings.ready_conditions)),
            self_triggers=SelfTriggers(watch.gvk, own_writes),
            events=EventReporter(_no_event),
            default_period_seconds=world.settings.reconcile_period_seconds,
            recorder=self.runs,
        )

    def _on_dependent(self, resource: ApiResource, _ownership: Ownership) -> None:
        self.dependents.add(resource.gvk)


def _no_event(_obj: RawObject, _event: EventSpec) -> None:
    """Write no Event: nobody would see it."""


def _outcome_of(planned: PlannedRun) -> PlannedOutcome | None:
    """Return what was withheld, None if the run ended before its first task."""
    try:
        return planned.outcome()
    except NotWithheldError:
        return None
