"""Replays records in one sandbox, one after the other; nothing is ever sent outside the machine.

The sandbox starts when the first record needs it. A record that cannot be replayed does not stop the others.
"""

import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rolecall.kube.errors import KubeError
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import ParsedWatches, Watch
from rolecall.runner.controller.work_queue import Cause
from rolecall.runner.record.files import SUFFIX
from rolecall.runner.record.reader import RecordError, StoredRecord, UnreadableRecordError, read_record
from rolecall.runner.runs.outcome import Outcome
from rolecall.runner.runs.process import OnEvent, ProcessRunner, Runner, RunSpec
from rolecall.runner.warm.starter import starter_for
from rolecall.system.blocking_work import run_in_thread
from rolecall.workbench.comparison.masks import sensitive_values
from rolecall.workbench.plan.model import PlanError
from rolecall.workbench.plan.reconciles import PlannedReconciles, plan_context
from rolecall.workbench.plan.sandbox import Sandbox, running_sandbox
from rolecall.workbench.plan.sandbox_sources import SourceError
from rolecall.workbench.planned.journal import DIRECTORY_VARIABLE, write_times
from rolecall.workbench.project.stale_files import REPLACE_RECORD, misfits
from rolecall.workbench.replay.comparison import BadRecord, Replay, Replays, Verdict, replay_of
from rolecall.workbench.replay.missing_runs import reasons, rejection
from rolecall.workbench.replay.recorded_cluster import RecordSource
from rolecall.workbench.replay.recorded_kinds import project_definitions
from rolecall.workbench.replay.writes import RunLines

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """The settings and watches of an operator, and the directory of its project."""

    settings: Settings
    watches: ParsedWatches
    project: Path
    runs_commands: bool = False

    def watch_for(self, record: StoredRecord) -> Watch | BadRecord:
        """Return the watch of a record's object, or why there is none."""
        gvk, file = GVK.of_object(record.head["object"]), self.settings.watches_file
        for error in self.watches.errors:
            if error.place.endswith(f"(kind {gvk.kind})") or not self.watches.watches:
                return _bad(record, f"cannot be replayed: {error}")
        found = next((each for each in self.watches.watches if each.gvk == gvk), None)
        missing = f"kind {gvk.kind} of {gvk.api_version} is not in {file}: add it, or omit the record"
        for each in self.watches.watches:
            if (each.gvk.group, each.gvk.kind) == (gvk.group, gvk.kind):
                missing = f"its {gvk.kind} has the version {gvk.version}, but {file} has {each.gvk.version}. "
                missing += REPLACE_RECORD
        return found or _bad(record, missing)


async def replay_all(request: ReplayRequest, paths: Iterable[Path], report: Report) -> Replays:
    """Replay records, and all records in directories. Raises ControlPlaneError, KubeError."""
    files = [file for path in paths for file in _files(path)]
    found: list[Replay | BadRecord] = []
    async with AsyncExitStack() as stack:
        replayer: Replayer | None = None
        for number, file in enumerate(files, 1):
            readable = _read(request, file)
            if isinstance(readable, BadRecord):
                found.append(readable)
                continue
            if replayer is None:
                replayer = await stack.enter_async_context(running_replayer(request, report))
            found.append(await replayer.replay(*readable))
            report(f"Replayed {number} of {len(files)}: {file.name}")
    return Replays(tuple(found))


def _files(path: Path) -> Iterator[Path]:
    """Yield the records of a directory, the oldest first, else the path itself."""
    if path.is_dir():
        yield from sorted(each for each in path.iterdir() if each.name.endswith(SUFFIX)) or [path]
    else:
        yield path


def _read(request: ReplayRequest, file: Path) -> tuple[StoredRecord, Watch] | BadRecord:
    if file.is_dir():
        text = f"{file}: contains no record: expected the directory of 'rolecall run --record-dir'"
        return BadRecord(file, text, UnreadableRecordError.exit_code)
    try:
        record = read_record(file)
    except RecordError as error:
        return BadRecord(file, str(error), error.exit_code)
    watch = request.watch_for(record)
    return watch if isinstance(watch, BadRecord) else (record, watch)


def _bad(record: StoredRecord, text: str) -> BadRecord:
    return BadRecord(record.path, f"{record.path}: {text}")


@asynccontextmanager
async def running_replayer(request: ReplayRequest, report: Report) -> AsyncIterator["Replayer"]:
    """Yield a replayer for the roles of a project. Raises ControlPlaneError."""
    async with (
        running_sandbox(report, has_lazy_controllers=True) as sandbox,
        starter_for(request.watches.watches, warm=request.settings.warm) as starter,
    ):
        yield Replayer(request, sandbox, ProcessRunner(starter), project_definitions(request.project))


@dataclass(frozen=True, slots=True)
class Replayer:
    """Replays one record at a time; ``definitions`` are the CustomResourceDefinitions of the project."""

    request: ReplayRequest
    sandbox: Sandbox
    runner: Runner
    definitions: tuple[RawObject, ...]

    async def replay(self, record: StoredRecord, watch: Watch) -> Replay | BadRecord:
        """Replay a record; the sandbox is empty again afterwards."""
        try:
            return await self._replay(record, watch)
        except (PlanError, SourceError, KubeError, OSError) as error:
            return _bad(record, f"cannot be replayed: {error}")
        finally:
            await self.sandbox.forget()

    async def _replay(self, record: StoredRecord, watch: Watch) -> Replay | BadRecord:
        started, request = time.monotonic(), self.request
        key, source = ObjectKey.of_object(record.head["object"]), RecordSource(record, self.definitions)
        runner = _ClockedRunner(self.runner, record)
        importer = self.sandbox.importer(source)
        watched = record.head["watch"]  # without these keys, or with null, in records of versions without the defaults
        marked, dropped = (bool(watched.get(key)) for key in ("markUnsafe", "dropUnknownOptions"))
        settings = replace(request.settings, mark_unsafe=marked, drops_unknown_options=dropped)
        async with plan_context(settings, importer, runner, runs_commands=request.runs_commands) as context:
            if not await importer.import_object(watch.gvk, key):
                hint = "put its CustomResourceDefinition into deploy/crds"
                return _bad(record, f"the kind {watch.gvk} is unknown; {hint}")
            reconciles = PlannedReconciles(context, watch, key)
            _, runs = await reconciles.reconcile(tuple(Cause(text) for text in record.head["causes"]))
            if not runs:
                return _bad(record, f"the role does not run for this object: {await self._why_no_run(record, watch)}")
            secrets = sensitive_values(watch, runs, os.environ)
            found = replay_of(record, runs[-1], source, stopped_at=reconciles.stopped_at, secrets=secrets)
            notes = (*found.notes, *importer.assumptions)
            if found.verdict is not Verdict.SAME and (texts := self._misfits(record, watch)):
                notes = (*notes, f"the record doesn't fit the project: {'; '.join(texts)}. {REPLACE_RECORD}")
            return replace(found, notes=notes, seconds=time.monotonic() - started)

    def _misfits(self, record: StoredRecord, watch: Watch) -> list[str]:
        return misfits(record, watch, [(Path(), each) for each in self.definitions], os.environ)

    async def _why_no_run(self, record: StoredRecord, watch: Watch) -> str:
        """Return why there was no run for the object of a record, which is in the sandbox."""
        obj, client = record.head["object"], self.sandbox.client
        resource = await client.resource(watch.gvk)
        found = list(reasons(obj, watch, is_namespaced=resource.namespaced))
        if not found and (rejected := await rejection(client, watch, ObjectKey.of_object(obj))):
            found = [f"the API server rejects it with today's CustomResourceDefinition: {rejected}"]
        others = [each for each in self._misfits(record, watch) if each not in found]
        return f"{'; '.join([*found, *others]) or 'the operator ended the reconcile before it'}. {REPLACE_RECORD}"


@dataclass(frozen=True, slots=True)
class _ClockedRunner:
    """Runs with the clock of a record, and with its recorded settings of Ansible."""

    runner: Runner
    record: StoredRecord

    async def run(self, spec: RunSpec, on_event: OnEvent) -> Outcome:
        """Run with a clock that is set back; see ``Runner``."""
        lines = RunLines.of_record(self.record)
        started, starts = lines.started.timestamp(), lines.task_starts()
        file = Path(spec.environment.variables[DIRECTORY_VARIABLE]).with_suffix(".clock.json")
        variables = await run_in_thread(lambda: write_times(file, started, starts))
        recorded = self.record.head.get("environment", {})
        environment = replace(spec.environment, variables={**spec.environment.variables, **recorded, **variables})
        return await self.runner.run(replace(spec, environment=environment), on_event)
