"""Plans beside what follows: the objects of a namespace are planned, then an operator reconciles them for real.

The plan is made by an account that may only read. Its writes are compared with those in the records of the operator,
as ``rolecall replay`` compares: method, target and body, generated values in their order and times by their offset.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from rolecall.cli.operator_settings import ansible_defaults_for
from rolecall.config.settings import Settings
from rolecall.config.watches import Watch, load_watches
from rolecall.kube.client import Client
from rolecall.kube.references import ObjectKey
from rolecall.plan.planner import Planner, planning, running_runner
from rolecall.plan.reconciles import PlannedReconciles
from rolecall.plan.request import PlanRequest
from rolecall.plan.results import ObjectPlan, Plan
from rolecall.plan.targets import Target, Targets, targets_of
from rolecall.process_tree import reap_children
from rolecall.record.reader import StoredRecord, read_record
from rolecall.replay.comparison import Compared, compare
from rolecall.replay.run_lines import RunLines
from rolecall.replay.writes import Write, writes_of
from rolecall.shadow.live_source import LiveSource
from rolecall.shadow.shadow import Shadow
from tests.integration.operators import Operator
from tests.integration.world import eventually

READY_SECONDS = 90.0
PATIENCE = 180.0
Place = tuple[str, ObjectKey]
"""A kind and the key of an object."""


@dataclass(frozen=True, slots=True)
class Project:
    """A folder with watches.yaml, and the variables that its operator has in a namespace."""

    folder: Path
    namespace: str
    environment: Mapping[str, str] = field(default_factory=dict)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Be in the folder, with the environment that ``rolecall plan`` would have there."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            given = {"WATCH_NAMESPACE": self.namespace, "ANSIBLE_GATHERING": "explicit", **self.environment}
            for name, value in given.items():
                patch.setenv(name, value)
            for name, value in ansible_defaults_for(Settings(), os.environ).items():
                patch.setenv(name, value)
            yield

    def watches(self) -> tuple[Watch, ...]:
        """Return the entries of watches.yaml."""
        return load_watches(self.folder / "watches.yaml", os.environ)


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """A plan, with the lines of the runs for each object, and the requests that the cluster got for it."""

    plan: Plan
    runs: Mapping[Place, RunLines]
    requests: Counter[str]


@dataclass(slots=True)
class _KeepingPlanner:
    """Gives the planner of a plan that keeps the runs of each object."""

    kept: dict[Place, PlannedReconciles] = field(default_factory=dict)

    def of(self, planner: Planner) -> Planner:
        """Return a planner like another one."""
        kept = self.kept

        class Keeping(Planner):
            def reconciles_of(self, target: Target) -> PlannedReconciles:
                made = Planner.reconciles_of(self, target)
                kept[target.watch.gvk.kind, target.key] = made
                return made

        return Keeping(planner.request, planner.importer, planner.world)


async def plan_of(project: Project, shadow: Shadow, reader: Path, **asked: Any) -> KeptPlan:
    """Plan what is asked for in a shadow that is empty again afterwards; everything in the namespace by default."""
    requests: Counter[str] = Counter()
    with project.entered():
        settings = replace(
            Settings(),
            kubeconfig=str(reader),
            watches_file=project.folder / "watches.yaml",
            namespaces=(project.namespace,),
        )
        given = asked or {"everything": True}
        request = PlanRequest(settings, project.watches(), namespace=project.namespace, **given)
        async with (
            await Client.connect(str(reader), lambda _status, method, _host: requests.update([method])) as cluster,
        ):
            targets = await targets_of(request, cluster)
            return await _planned(request, shadow, LiveSource(cluster), targets, requests)


async def _planned(
    request: PlanRequest, shadow: Shadow, source: LiveSource, targets: Targets, requests: Counter[str]
) -> KeptPlan:
    keeping = _KeepingPlanner()
    reap_children()
    try:
        async with running_runner(request) as runner, planning(request, shadow, source, runner) as planner:
            objects = await keeping.of(planner).plan_all(targets, lambda _: None)
            assumptions = tuple(planner.importer.assumptions)
    finally:
        await shadow.forget()
    runs = {
        place: joined([RunLines.of_run(record) for record in made.runs.records])
        for place, made in keeping.kept.items()
        if made.runs.records
    }
    return KeptPlan(Plan(tuple(objects), assumptions=assumptions), runs, requests)


def joined(runs: Sequence[RunLines]) -> RunLines:
    """Return the runs of one object, one after the other, as one."""
    first, last = runs[0], runs[-1]
    exchanges = [exchange for run in runs for exchange in run.exchanges]
    return RunLines(
        first.obj,
        tuple({**exchange, "number": number} for number, exchange in enumerate(exchanges, 1)),
        tuple(task for run in runs for task in run.tasks),
        first.started,
        (last.started - first.started).total_seconds() + last.seconds,
        frozenset().union(*(run.placeholders for run in runs)),
    )


@dataclass(slots=True)
class Records:
    """The records that an operator writes to a directory."""

    directory: Path
    _read: dict[Path, StoredRecord] = field(default_factory=dict)

    def of(self, place: Place) -> list[StoredRecord]:
        """Return the records of an object, the oldest first."""
        for path in self.directory.glob("*.jsonl"):
            if path not in self._read:
                self._read[path] = read_record(path)
        found = (each for each in self._read.values() if _place_of(each) == place)
        return sorted(found, key=lambda record: str(record.head["started"]))

    def runs(self, plan: ObjectPlan) -> tuple[RunLines | None, str]:
        """Return the runs that a plan was made for, and why the last one failed; after a failure a plan is over."""
        runs, failure = [], ""
        for record in self.of((plan.gvk.kind, plan.key)):
            runs.append(RunLines.of_record(record))
            if record.end["outcome"] != "succeeded":
                failure = "\n".join(record.end["failures"])
                break
        return (joined(runs) if runs else None), failure


def _place_of(record: StoredRecord) -> Place:
    obj = record.head["object"]
    return str(obj["kind"]), ObjectKey.of_object(obj)


@dataclass(frozen=True, slots=True)
class Proof:
    """The plan of one object, and what came of it."""

    plan: ObjectPlan
    planned: RunLines
    real: RunLines
    real_failure: str = ""

    @property
    def planned_writes(self) -> tuple[Write, ...]:
        """The writes that were planned."""
        return writes_of(self.planned).writes

    @property
    def differences(self) -> list[str]:
        """How the real writes differ from those that were planned, as text."""
        is_partial = bool(self.plan.stopped_at) or not self.plan.has_settled
        compared: Compared = compare(self.real, self.planned, has_ended_early=is_partial)
        found = [
            f"{each.change}: {each.method} {each.target} by {each.task.name!r}: {each.before} was planned as {each.after}"
            for each in compared.differences
        ]
        return found + compared.notes


async def prove(project: Project, shadow: Shadow, reader: Path, kubeconfig: Path) -> dict[Place, Proof]:
    """Plan all objects of a namespace, let an operator reconcile them, and return both by kind and key."""
    kept = await plan_of(project, shadow, reader)
    assert set(kept.requests) == {"GET"}
    return await follow(project, kept, kubeconfig)


async def follow(
    project: Project, kept: KeptPlan, kubeconfig: Path, arguments: tuple[str, ...] = ()
) -> dict[Place, Proof]:
    """Let an operator do what was planned, and return both by kind and key."""
    directory = project.folder / f"records-{len(list(project.folder.glob('records-*')))}"
    flags = ("--backoff-max", "5s", "--record-dir", str(directory), *arguments)
    operator = Operator(project.folder, kubeconfig, project.namespace, flags, dict(project.environment))
    operator.log_file.unlink(missing_ok=True)
    records = Records(directory)
    async with _running(operator):
        await _until_done(kept, records)
        await _until_quiet(operator)
    return {place: _proof(each, kept, records) for each in kept.plan.objects for place in [(each.gvk.kind, each.key)]}


def _proof(plan: ObjectPlan, kept: KeptPlan, records: Records) -> Proof:
    place = (plan.gvk.kind, plan.key)
    assert place in kept.runs, f"{place} has no planned run: {plan.failure}"
    real, failure = records.runs(plan)
    assert real is not None, f"{place} has no real run"
    return Proof(plan, kept.runs[place], real, failure)


@asynccontextmanager
async def _running(operator: Operator) -> AsyncIterator[None]:
    async def look() -> bool:
        return operator.is_ready()

    operator.start()
    try:
        await eventually(look, bool, READY_SECONDS, "the operator is ready")
        yield
    finally:
        assert await asyncio.to_thread(operator.stop) == 0


async def _until_done(kept: KeptPlan, records: Records) -> None:
    """Wait until each object has had as many writes as were planned; what comes too late is a difference."""

    async def missing() -> list[str]:
        return [
            str(place)
            for place, planned in kept.runs.items()
            if _count(records.of(place)) < len(writes_of(planned).writes) or not records.of(place)
        ]

    try:
        await eventually(missing, lambda found: not found, PATIENCE, "everything that was planned was done")
    except AssertionError:
        return


def _count(records: Sequence[StoredRecord]) -> int:
    return sum(len(writes_of(RunLines.of_record(each)).writes) for each in records)


async def _until_quiet(operator: Operator) -> None:
    async def look() -> int:
        ended = len(operator.messages("Reconcile succeeded")) + len(operator.messages("Reconcile failed"))
        return len(operator.messages("Reconcile started")) - ended

    await eventually(look, lambda count: count <= 0, PATIENCE, "no run is under way")
