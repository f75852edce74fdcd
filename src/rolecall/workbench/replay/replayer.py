"""Replays records in one shadow, one after the other. Nothing is ever sent out of the machine."""

import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from aiohttp import web

from rolecall.kube.errors import KubeError
from rolecall.kube.references import ObjectKey, RawObject
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import Watch
from rolecall.runner.controller.work_queue import Cause
from rolecall.runner.proxy import GatedRequest, Proxy
from rolecall.runner.proxy.request_info import READ_VERBS
from rolecall.runner.record.reader import StoredRecord
from rolecall.runner.runs.events import RunSummary
from rolecall.runner.runs.planned import clock
from rolecall.runner.runs.process_runner import ProcessRunner
from rolecall.runner.runs.runner import OnEvent, Runner, RunSpec
from rolecall.runner.runs.starters import starter_for
from rolecall.system.blocking_work import in_thread
from rolecall.system.owned_directories import OwnedDirectory
from rolecall.workbench.plan.baselines import PlanGate
from rolecall.workbench.plan.reconciles import PlannedReconciles, PlanWorld
from rolecall.workbench.plan.request import PlanError
from rolecall.workbench.plan.run_secrets import secrets_of
from rolecall.workbench.plan.sandbox import Shadow, running_shadow
from rolecall.workbench.plan.sandbox_gate import ShadowGate
from rolecall.workbench.plan.source import SourceError
from rolecall.workbench.replay.lazy_controllers import PatientControllers
from rolecall.workbench.replay.outcomes import ReplayedRun, outcome_of
from rolecall.workbench.replay.record_source import RecordSource
from rolecall.workbench.replay.recorded_kinds import project_definitions
from rolecall.workbench.replay.request import ReplayRequest
from rolecall.workbench.replay.results import BadRecord, Replay
from rolecall.workbench.replay.run_lines import RunLines

Report = Callable[[str], None]


@asynccontextmanager
async def replaying(request: ReplayRequest, report: Report) -> AsyncIterator["Replayer"]:
    """Yield what replays records with the roles of a project. Raises ControlPlaneError."""
    directory = OwnedDirectory.make("rolecall-replay-")
    try:
        starting = starter_for(request.watches.watches, warm=request.settings.warm)
        async with running_shadow(report) as shadow, starting as starter:
            gate = SwitchedGate(controllers := PatientControllers(shadow.plane))
            shadow = replace(shadow, controllers=controllers)  # noqa: PLW2901
            proxy = Proxy(shadow.client, gate=gate)
            try:
                await proxy.start()
                root = directory.path.resolve()
                stage = Stage(request.settings, shadow, proxy, ProcessRunner(starter), root, request.runs_commands)
                yield Replayer(stage, gate, project_definitions(request.project))
            finally:
                await proxy.stop()
    finally:
        directory.remove()


@dataclass(frozen=True, slots=True)
class Stage:
    """What all replays share: the shadow, the proxy before it, and what runs roles."""

    settings: Settings
    shadow: Shadow
    proxy: Proxy
    runner: Runner
    root: Path
    runs_commands: bool


@dataclass(slots=True)
class SwitchedGate:
    """The gate of the record that is being replayed: one proxy serves all records."""

    controllers: PatientControllers
    current: PlanGate | None = None

    async def before(self, request: GatedRequest) -> web.Response | None:
        """Let the gate of the record decide."""
        if request.info.verb in READ_VERBS:
            await self.controllers.before_read(f"{request.path}?{request.query}")
        return None if self.current is None else await self.current.before(request)


@dataclass(frozen=True, slots=True)
class Replayer:
    """Replays one record at a time; ``definitions`` are the CustomResourceDefinitions of the project."""

    stage: Stage
    gate: SwitchedGate
    definitions: tuple[RawObject, ...]

    async def replay(self, record: StoredRecord, watch: Watch) -> Replay | BadRecord:
        """Return what came of a record; afterwards the shadow is empty again."""
        root = await in_thread(lambda: Path(tempfile.mkdtemp(dir=self.stage.root)))
        try:
            return await self._replay(record, watch, root)
        except (PlanError, SourceError, KubeError, OSError) as error:
            return _bad(record, f"cannot be replayed: {error}")
        finally:
            await self.stage.shadow.forget()
            await in_thread(lambda: shutil.rmtree(root, ignore_errors=True))

    async def _replay(self, record: StoredRecord, watch: Watch, root: Path) -> Replay | BadRecord:
        started = time.monotonic()
        shadow, key = self.stage.shadow, ObjectKey.of_object(record.head["object"])
        source = RecordSource(record, self.definitions)
        importer = shadow.importer(source)
        if not await importer.import_object(watch.gvk, key):
            return _bad(record, f"nothing says what {watch.gvk} is; put its CustomResourceDefinition into deploy/crds")
        self.gate.current = gate = PlanGate(ShadowGate(importer), shadow.client)
        stage = self.stage
        runner = _RunnerBehind(stage.runner, root / "clock.json", record)
        world = PlanWorld(stage.settings, shadow.client, stage.proxy, gate, runner, root, stage.runs_commands)
        planned = PlannedReconciles(world, watch, key)
        causes = tuple(Cause(text) for text in record.head["causes"])
        await planned.reconcile(causes)
        if not planned.runs.records:
            return _bad(record, f"the role of {watch.gvk.kind} does not run for this object: it is paused, or ends")
        run = ReplayedRun(
            planned.runs.records[-1],
            source,
            tuple(importer.assumptions),
            time.monotonic() - started,
            planned.stopped_at,
            secrets_of(watch, planned.runs.records, os.environ),
        )
        return outcome_of(record, run)


@dataclass(frozen=True, slots=True)
class _RunnerBehind:
    """Runs what it is given at the times of a record, which it writes to a file."""

    runner: Runner
    times: Path
    record: StoredRecord

    async def run(self, spec: RunSpec, on_event: OnEvent) -> RunSummary:
        """Run with a clock that is set back and the recorded settings of Ansible; see ``runner.Runner``."""
        lines = RunLines.of_record(self.record)
        started, starts = lines.started.timestamp(), lines.task_starts()
        variables = await in_thread(lambda: clock.write_times(self.times, started, starts))
        recorded = self.record.head.get("environment", {})
        return await self.runner.run(replace(spec, environment={**spec.environment, **recorded, **variables}), on_event)


def _bad(record: StoredRecord, text: str) -> BadRecord:
    return BadRecord(record.path, f"{record.path}: {text}")
