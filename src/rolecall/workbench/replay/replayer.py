"""Replays records in one sandbox, one after the other. Nothing is ever sent out of the machine.

Replays the records of files and directories in one sandbox, in their order.

What cannot be replayed does not stop the others. The sandbox is started when the first record needs it.

What somebody wants to have replayed, and with which roles.

The controllers of a sandbox for replays: they start when a run looks for their work, not when it changes something.

They take longer to start than most replays. A run that waits asks for the same object again and again; one that does
not wait sees nothing of what controllers do.
"""

import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from aiohttp import web

from rolecall.kube.errors import KubeError
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import ParsedWatches, Watch
from rolecall.runner.controller.work_queue import Cause
from rolecall.runner.proxy import ProxiedRequest, Proxy
from rolecall.runner.proxy.request_info import READ_VERBS
from rolecall.runner.record.files import SUFFIX
from rolecall.runner.record.reader import RecordError, StoredRecord, UnreadableRecordError, read_record
from rolecall.runner.runs.events import RunSummary
from rolecall.runner.runs.planned import clock
from rolecall.runner.runs.process import OnEvent, ProcessRunner, Runner, RunSpec
from rolecall.runner.warm.starter import starter_for
from rolecall.system.blocking_work import run_in_thread
from rolecall.system.files import OwnedDirectory
from rolecall.workbench.plan.model import PlanError
from rolecall.workbench.plan.reconciles import PlannedReconciles, PlanWorld, secrets_of
from rolecall.workbench.plan.sandbox import Sandbox, SandboxGate, running_sandbox
from rolecall.workbench.plan.sandbox_import import Controllers
from rolecall.workbench.plan.sandbox_sources import SourceError
from rolecall.workbench.plan.written_objects import PlanGate
from rolecall.workbench.replay.comparison import ReplayedRun, outcome_of
from rolecall.workbench.replay.recorded_cluster import RecordSource
from rolecall.workbench.replay.recorded_kinds import project_definitions
from rolecall.workbench.replay.results import BadRecord, Replay, Replays
from rolecall.workbench.replay.writes import RunLines


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """What replays work with: the settings and watches of an operator, and the directory of its project."""

    settings: Settings
    watches: ParsedWatches
    project: Path
    runs_commands: bool = False

    def watch_for(self, record: StoredRecord) -> Watch | BadRecord:
        """Return the watch of a record's object, or why there is none."""
        gvk, file = GVK.of_object(record.head["object"]), self.settings.watches_file
        for error in self.watches.errors:
            if error.place.endswith(f"(kind {gvk.kind})") or not self.watches.watches:
                return BadRecord(record.path, f"{record.path}: cannot be replayed: {error}")
        found = next((each for each in self.watches.watches if each.gvk == gvk), None)
        missing = (
            f"{record.path}: kind {gvk.kind} of {gvk.api_version} is not in {file}: add it, or leave the record out"
        )
        return found or BadRecord(record.path, missing)


@dataclass(slots=True)
class PatientControllers(Controllers):
    """Starts controllers at the second look at an object after something has changed."""

    _is_waiting: bool = False
    _seen: set[str] = field(default_factory=set)

    async def need(self) -> None:
        """Let controllers work as soon as a run looks for what they do."""
        self._is_waiting = True

    async def before_read(self, path: str) -> None:
        """Take note of a read, and start the controllers if it is not the first one since they are needed."""
        if self._is_waiting and path in self._seen:
            await Controllers.need(self)  # a class with slots has no super() without arguments
        elif self._is_waiting:
            self._seen.add(path)

    async def rest(self) -> None:
        """Stop the controllers until somebody needs them again."""
        self._is_waiting = False
        self._seen.clear()
        await Controllers.rest(self)


Report = Callable[[str], None]


@asynccontextmanager
async def replaying(request: ReplayRequest, report: Report) -> AsyncIterator["Replayer"]:
    """Yield what replays records with the roles of a project. Raises ControlPlaneError."""
    directory = OwnedDirectory.make("rolecall-replay-")
    try:
        starting = starter_for(request.watches.watches, warm=request.settings.warm)
        async with running_sandbox(report) as sandbox, starting as starter:
            gate = SwitchedGate(controllers := PatientControllers(sandbox.plane))
            sandbox = replace(sandbox, controllers=controllers)  # noqa: PLW2901
            proxy = Proxy(sandbox.client, interceptor=gate)
            try:
                await proxy.start()
                root = directory.path.resolve()
                stage = Stage(request.settings, sandbox, proxy, ProcessRunner(starter), root, request.runs_commands)
                yield Replayer(stage, gate, project_definitions(request.project))
            finally:
                await proxy.stop()
    finally:
        directory.remove()


@dataclass(frozen=True, slots=True)
class Stage:
    """What all replays share: the sandbox, the proxy before it, and what runs roles."""

    settings: Settings
    sandbox: Sandbox
    proxy: Proxy
    runner: Runner
    root: Path
    runs_commands: bool


@dataclass(slots=True)
class SwitchedGate:
    """The gate of the record that is being replayed: one proxy serves all records."""

    controllers: PatientControllers
    current: PlanGate | None = None

    async def before(self, request: ProxiedRequest) -> web.Response | None:
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
        """Return what came of a record; afterwards the sandbox is empty again."""
        root = await run_in_thread(lambda: Path(tempfile.mkdtemp(dir=self.stage.root)))
        try:
            return await self._replay(record, watch, root)
        except (PlanError, SourceError, KubeError, OSError) as error:
            return _bad(record, f"cannot be replayed: {error}")
        finally:
            await self.stage.sandbox.forget()
            await run_in_thread(lambda: shutil.rmtree(root, ignore_errors=True))

    async def _replay(self, record: StoredRecord, watch: Watch, root: Path) -> Replay | BadRecord:
        started = time.monotonic()
        sandbox, key = self.stage.sandbox, ObjectKey.of_object(record.head["object"])
        source = RecordSource(record, self.definitions)
        importer = sandbox.importer(source)
        if not await importer.import_object(watch.gvk, key):
            return _bad(record, f"nothing says what {watch.gvk} is; put its CustomResourceDefinition into deploy/crds")
        self.gate.current = gate = PlanGate(SandboxGate(importer), sandbox.client)
        stage = self.stage
        runner = _RunnerBehind(stage.runner, root / "clock.json", record)
        world = PlanWorld(stage.settings, sandbox.client, stage.proxy, gate, runner, root, stage.runs_commands)
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
        variables = await run_in_thread(lambda: clock.write_times(self.times, started, starts))
        recorded = self.record.head.get("environment", {})
        variables = {**spec.environment.variables, **recorded, **variables}
        environment = replace(spec.environment, variables=variables)
        return await self.runner.run(replace(spec, environment=environment), on_event)


def _bad(record: StoredRecord, text: str) -> BadRecord:
    return BadRecord(record.path, f"{record.path}: {text}")


async def replay_all(request: ReplayRequest, paths: Iterable[Path], report: Report) -> Replays:
    """Return what came of the records; a directory means all records in it. Raises ControlPlaneError, KubeError."""
    files = [file for path in paths for file in _files(path)]
    found: list[Replay | BadRecord] = []
    async with AsyncExitStack() as stack:
        replayer: Replayer | None = None
        for number, file in enumerate(files, 1):
            readable = _readable(request, file)
            if isinstance(readable, BadRecord):
                found.append(readable)
                continue
            if replayer is None:
                replayer = await stack.enter_async_context(replaying(request, report))
            found.append(await replayer.replay(*readable))
            report(f"Replayed {number} of {len(files)}: {file.name}")
    return Replays(tuple(found))


def _files(path: Path) -> Iterator[Path]:
    """Yield the records of a directory, the oldest first, else the path itself."""
    if path.is_dir():
        yield from sorted(each for each in path.iterdir() if each.name.endswith(SUFFIX)) or [path]
    else:
        yield path


def _readable(request: ReplayRequest, file: Path) -> tuple[StoredRecord, Watch] | BadRecord:
    if file.is_dir():
        text = f"{file}: there is no record in it: expected the directory of 'rolecall run --record-dir'"
        return BadRecord(file, text, UnreadableRecordError.exit_code)
    try:
        record = read_record(file)
    except RecordError as error:
        return BadRecord(file, str(error), error.exit_code)
    watch = request.watch_for(record)
    return watch if isinstance(watch, BadRecord) else (record, watch)
