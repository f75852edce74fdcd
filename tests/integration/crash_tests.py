"""Crash tests that tests make in one process, in a sandbox that many of them share.

Their account is only permitted to read.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from structlog.testing import capture_logs

from rolecall.cli.main import main
from rolecall.kube.client import Client
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.election.elector import LeadershipLostError
from rolecall.runner.reconcile.status_writer import Primaries
from rolecall.runner.runs.process_marks import processes_of_run
from rolecall.system.processes import KILL_LIMIT_SECONDS, kill_all, reap_children
from rolecall.workbench.crashtest.object_under_test import UNINTERRUPTED_LIMITS, ObjectUnderTest, Snapshot
from rolecall.workbench.crashtest.processes import Processes, running_processes
from rolecall.workbench.crashtest.results import CrashTest
from rolecall.workbench.crashtest.simulated_operator import SimulatedOperator
from rolecall.workbench.crashtest.tester import CrashTester, CrashTestRequest, opened_tester
from rolecall.workbench.crashtest.write_log import WriteLog
from rolecall.workbench.plan.model import PlanRequest
from rolecall.workbench.plan.planner import Target, Targets
from rolecall.workbench.plan.sandbox import Sandbox
from rolecall.workbench.plan.sandbox_sources import RememberingSource
from tests.integration.planned import Project, clear, primary
from tests.integration.sandboxes import Clusters
from tests.integration.shared import Shared


@contextmanager
def project_of(shared: Shared, directory: Path, clusters: Clusters) -> Iterator[Project]:
    """Yield a project in a directory, for a namespace of its own, which has no objects."""
    shared.operator(directory, clusters.operator)
    project = Project(directory, f"crash-{uuid.uuid4().hex[:8]}")

    async def create() -> None:
        async with clusters.opened(project.namespace):
            pass

    asyncio.run(create())
    yield project
    asyncio.run(clear(project, clusters.operator))


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a command of the workbench needs for one object: the request of its plan, the object, and its sandbox."""

    plan: PlanRequest
    targets: Targets
    sandbox: Sandbox
    cluster: Client
    processes: Processes


@asynccontextmanager
async def prepared_for(  # noqa: PLR0913 - the last two have defaults for an ordinary test
    project: Project,
    clusters: Clusters,
    obj: RawObject,
    others: Sequence[RawObject] = (),
    seed: int = 0,
    *,
    servers: int = 1,
    **asked: Any,
) -> AsyncIterator[Prepared]:
    """Yield what is needed to try an object that does not exist yet, in a sandbox that is forgotten afterward.

    The object and the others get the project's namespace. The other operator has so many fork servers, one after the
    other: each takes a second of CPU time, and only a role that depends on the process needs more than one.
    """
    gvk, name = GVK.of_object(obj), obj["metadata"]["name"]
    with project.entered():
        plan = project.request(clusters.reader, kind=gvk.kind, name=name, **asked)
        [watch] = [watch for watch in plan.watches if watch.gvk == gvk]
        for each in (obj, *others):
            each["metadata"]["namespace"] = project.namespace
        targets = Targets((Target(watch, ObjectKey(project.namespace, name), obj),), others=tuple(others))
        async with (
            clusters.opened(project.namespace, is_new=False) as (_, sandbox),
            await Client.connect(str(clusters.reader)) as cluster,
        ):
            reap_children()
            try:
                async with running_processes(plan.watches, warm=plan.settings.warm, seed=seed) as processes:
                    processes.seeds = processes.seeds[:servers]
                    yield Prepared(plan, targets, sandbox, cluster, processes)
            finally:
                await sandbox.forget()


@asynccontextmanager
async def crash_tester_of(
    project: Project,
    clusters: Clusters,
    obj: RawObject,
    others: Sequence[RawObject] = (),
    *,
    servers: int = 1,
    **asked: Any,
) -> AsyncIterator[tuple[CrashTester, Targets]]:
    """Yield the crash tester of an object that does not exist yet; it and the others get the project's namespace."""
    directory = project.directory / "records" / f"{obj['kind']}-{obj['metadata']['name']}"
    async with prepared_for(project, clusters, obj, others, servers=servers) as prepared:
        request, source = CrashTestRequest(prepared.plan, directory, **asked), RememberingSource(prepared.cluster)
        async with opened_tester(request, prepared.sandbox, source, prepared.processes) as crash_tester:
            yield crash_tester, prepared.targets


async def crash_test_of(
    project: Project, clusters: Clusters, obj: RawObject, others: Sequence[RawObject] = (), **asked: Any
) -> CrashTest:
    """Return the crash test of an object that does not exist yet."""
    async with crash_tester_of(project, clusters, obj, others, **asked) as (crash_tester, targets):
        return await crash_tester.test(targets, lambda _: None, print)


async def killed_at(tested: ObjectUnderTest, number: int) -> Snapshot:
    """Return what remains when an operator, and the processes of its run, are killed after a write."""
    await tested.reset()
    primary = await tested.context.client.get(tested.target.watch.gvk, tested.target.key)
    log = WriteLog(resource=tested.resource, primary=primary)
    operator = SimulatedOperator(tested.context, tested.target.watch, log, UNINTERRUPTED_LIMITS)
    work = asyncio.create_task(operator.settle(until_unchanged=True))

    def kill() -> None:
        if len(log.writes) == number:
            for record in operator.reconciles.recorder.records:
                kill_all(partial(processes_of_run, record.ident), KILL_LIMIT_SECONDS)
            work.cancel()

    async def replace(primaries: Primaries, obj: RawObject, subresource: str = "") -> RawObject:
        if len(log.writes) >= number:  # a cancelled reconcile reports the interruption, and a killed one can't
            raise LeadershipLostError("the operator is dead")
        return await write(primaries, obj, subresource)

    log.on_write, write = kill, Primaries.replace
    with patch.object(Primaries, "replace", replace), pytest.raises(asyncio.CancelledError):
        await work
    assert len(log.writes) == number, "a dead operator writes nothing"
    state, records = tested.sandbox.snapshot(tested.context.importer), tuple(operator.reconciles.recorder.records)
    return Snapshot(state, log.primary, log.objects, frozenset(log.with_status), records)


def of_case(gvk: GVK, name: str) -> RawObject:
    """Return an object whose name is that of its case."""
    return primary(gvk, name, case=name)


@dataclass(frozen=True, slots=True)
class Command:
    """A command of ``rolecall`` in a project, run in this process."""

    name: str
    project: Project
    kubeconfig: Path
    capture: pytest.CaptureFixture[str]

    def run(self, *arguments: str, kubeconfig: Path | None = None) -> tuple[int, str, str]:
        """Return the exit code, standard output, and standard error."""
        with self.project.entered(), capture_logs():  # otherwise, they go to standard output
            given = ("--kubeconfig", str(kubeconfig or self.kubeconfig), "-n", self.project.namespace)
            code = main([self.name, *arguments, *given])
        found = self.capture.readouterr()
        return code, found.out, found.err
