"""Tests whether a role survives that it, and its operator, are killed after any of its writes.

The object is reconciled twice without an interruption: this numbers the writes and shows the end state. Then, for each
write, the sandbox is reset to its state right after that write of the first time, and another operator continues, as if
the first one had been killed there. It is another process, with another order of sets. The cluster receives nothing
but reads.

The processes of one role use little more than one CPU. So if the trials take long, a second sandbox does half of them.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from rolecall.kube.client import Client
from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import GVK, RawObject
from rolecall.workbench.comparison.clocks import LEAST_TOLERANCE_SECONDS, Clocks
from rolecall.workbench.comparison.end_states import Baseline, Difference, EndState
from rolecall.workbench.comparison.masks import redactor
from rolecall.workbench.crashtest.object_under_test import (
    UNINTERRUPTED_LIMITS,
    Interrupted,
    ObjectUnderTest,
    Uninterrupted,
)
from rolecall.workbench.crashtest.processes import Processes, running_processes
from rolecall.workbench.crashtest.results import CrashTest, Trial, Verdict
from rolecall.workbench.crashtest.simulated_operator import MAX_REQUEUE_SECONDS, MAX_ROUNDS, Limits, Outcome
from rolecall.workbench.plan.model import PlanError, PlanRequest
from rolecall.workbench.plan.planner import (
    Report,
    Target,
    Targets,
    import_targets,
    project_source,
    read_objects,
    targets_of,
)
from rolecall.workbench.plan.project_source import ProjectSource
from rolecall.workbench.plan.reconciles import PlanContext, plan_context
from rolecall.workbench.plan.sandbox import Sandbox, running_sandbox
from rolecall.workbench.plan.sandbox_sources import RememberingSource, Source

OnTrial = Callable[[Trial], None]
_MIN_SECONDS: Final = 60.0
_MIN_WAIT_SECONDS: Final = 15.0
_SECOND_SANDBOX_SECONDS: Final = 120.0
"""If the trials take longer in one sandbox, there is a second one."""


@dataclass(frozen=True, slots=True)
class CrashTestRequest:
    """A request to test one object: the one that ``plan`` names, or the only one of a watched kind in its files.

    By default the test starts with the object as it is, or as its file has it. With ``deletes`` it starts with the
    deletion of the settled object, with ``edited`` with a change of the settled object to the content of that file.
    ``writes`` are the numbers of the writes to try, all if it is empty. The records of bad trials are kept in
    ``records``.
    """

    plan: PlanRequest
    records: Path
    writes: tuple[int, ...] = ()
    deletes: bool = False
    edited: Path | None = None


async def crash_test(request: CrashTestRequest, report: Report, on_trial: OnTrial) -> CrashTest:
    """Return the trials of an object; ``report`` is called with progress messages, ``on_trial`` after each trial.

    Raises PlanError, SourceError, KubeError, ControlPlaneError.
    """
    plan = request.plan
    async with await Client.connect(plan.settings.kubeconfig) as cluster:
        targets, source = await targets_of(plan, cluster), RememberingSource(cluster)
        async with running_processes(plan.watches, warm=plan.settings.warm) as processes:

            @asynccontextmanager
            async def opened() -> AsyncIterator[CrashTester]:
                async with (
                    running_sandbox(report) as sandbox,
                    opened_tester(request, sandbox, source, processes) as tester,
                ):
                    yield tester

            async with opened() as tester:
                return await replace(tester, another=opened).test(targets, report, on_trial)


@asynccontextmanager
async def opened_tester(
    request: CrashTestRequest, sandbox: Sandbox, source: Source, processes: Processes
) -> AsyncIterator["CrashTester"]:
    """Yield a tester in a sandbox filled from a source, which must return the same objects again.

    The sandbox has the definitions of the request.
    """
    plan, project = request.plan, project_source(request.plan, sandbox, source)
    importer = sandbox.importer(project)
    async with plan_context(plan.settings, importer, processes.runner, runs_commands=plan.runs_commands) as context:
        yield CrashTester(request, sandbox, project, context, processes)


@dataclass(frozen=True, slots=True)
class CrashTester:
    """Tests one object in a sandbox, and in that of ``another`` if there is much to do."""

    request: CrashTestRequest
    sandbox: Sandbox
    source: ProjectSource
    context: PlanContext
    processes: Processes
    another: Callable[[], AbstractAsyncContextManager["CrashTester"]] | None = None

    async def test(self, targets: Targets, report: Report, on_trial: OnTrial) -> CrashTest:
        """Test the only object of the targets. Raises PlanError, SourceError, KubeError."""
        started, request = time.monotonic(), self.request
        tested = await self.object_under_test(targets)
        report(f"Running the role of {tested.title} without an interruption")
        await tested.start(deletes=request.deletes, edited=self._edited(tested.target))
        first = await tested.uninterrupted()
        numbers = self._numbers(tested, first)
        await tested.reset()
        report(f"Running it again: it has {len(first.writes)} writes")
        trials = Trials(tested, first, await tested.uninterrupted(until_unchanged=first.is_unchanging))
        done = await self._try(trials, targets, numbers, report, on_trial)
        return CrashTest(
            title=tested.title,
            writes=first.writes,
            trials=tuple(done[number] for number in numbers),
            stopped_at=trials.show(first.stopped_at),
            withheld=tuple(tested.withheld),
            notes=(*self._notes(), *trials.notes()),
            seconds=time.monotonic() - started,
        )

    def _notes(self) -> Iterator[str]:
        if sentence := self.source.changes.sentence("tested"):
            yield sentence
        yield from self.context.importer.assumptions

    async def _try(
        self, trials: "Trials", targets: Targets, numbers: Sequence[int], report: Report, on_trial: OnTrial
    ) -> dict[int, Trial]:
        """Return the trials by the numbers of their writes; ``on_trial`` is called in the order of the numbers."""
        left, waiting, done = iter(numbers), deque(numbers), dict[int, Trial]()
        first = trials.first

        async def work(tested: ObjectUnderTest) -> None:
            for number in left:
                report(f"Killing the operator after write {number} of {len(first.writes)}")
                await self.processes.renew()
                done[number] = await trials.at(number, self.request.records, tested)
                while waiting and waiting[0] in done:
                    on_trial(done[waiting.popleft()])

        async def work_in(opened: AbstractAsyncContextManager[CrashTester]) -> None:
            async with opened as other:
                await import_targets(other.context, targets)
                await work(other.in_its_sandbox(trials.tested))

        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(work(trials.tested))
                if self.another is not None and len(numbers) * first.seconds > _SECOND_SANDBOX_SECONDS:
                    tasks.create_task(work_in(self.another()))
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        return done

    async def object_under_test(self, targets: Targets) -> ObjectUnderTest:
        """Import the only object of the targets, and return it. Raises PlanError, SourceError, KubeError."""
        if len(targets.single) != 1:
            raise PlanError(f"expected one object of a watched kind in the files, found {len(targets.single)}")
        [target] = targets.single
        await import_targets(self.context, targets)
        resource = await self.context.client.resource(target.watch.gvk)
        return ObjectUnderTest(self.sandbox, self.context, self._restarted, target, resource, targets.others)

    def in_its_sandbox(self, tested: ObjectUnderTest) -> ObjectUnderTest:
        """Return an object under test of another sandbox in that of this tester."""
        return replace(tested, sandbox=self.sandbox, context=self.context, restarted=self._restarted)

    @property
    def _restarted(self) -> PlanContext:
        """The context of the operator that continues after an interruption."""
        return replace(self.context, runner=self.processes.other)

    def _edited(self, target: Target) -> RawObject | None:
        """Return the changed object that the request names, None if it names none."""
        path = self.request.edited
        if path is None:
            return None
        for obj in read_objects(path):
            if GVK.of_object(obj) == target.watch.gvk and metadata_of(obj).get("name") == target.key.name:
                return obj
        raise PlanError(f"{path}: expected {target.watch.gvk.kind} {target.key.name}, which is not among its objects")

    def _numbers(self, tested: ObjectUnderTest, first: Uninterrupted) -> tuple[int, ...]:
        """Return the numbers of the writes to try. Raises PlanError if there is nothing to test."""
        count = len(first.writes)
        if self.request.deletes and any(
            tested.target.key == ident.key for ident in first.end if ident.plural == tested.resource.plural
        ):
            raise PlanError(
                f"{tested.title} still exists after the run of its finalizer, even if nothing interrupts it"
            )
        if not count:
            hint = "test an object that doesn't exist yet with -f FILE, a change with --to FILE, or --deletion"
            raise PlanError(f"the role changes nothing for {tested.title} as it is; {hint}")
        if unknown := [number for number in self.request.writes if number > count]:
            raise PlanError(f"there is no write {unknown[0]}: the role of {tested.title} has {count}")
        return self.request.writes or tuple(range(1, count + 1))


@dataclass(slots=True)
class Trials:
    """The trials of an object, compared with two uninterrupted runs."""

    tested: ObjectUnderTest
    first: Uninterrupted
    second: Uninterrupted
    baseline: Baseline = field(init=False)

    def __post_init__(self) -> None:
        """Compare the uninterrupted runs."""
        first, second = self.first, self.second
        self.baseline = Baseline(first.end, second.end, _clocks(first, second))
        self._hide(first.end)
        self._hide(second.end)

    def notes(self) -> list[str]:
        """Return a sentence for each part that was not compared."""
        found = [
            f"{each} exists after one of two uninterrupted runs, and isn't compared" for each in self.baseline.unstable
        ]
        if not self.first.is_unchanging and not self.first.stopped_at:
            found.append("Every run of the role changes something; only the runs until the object is idle are compared")
        return found

    async def at(self, number: int, records: Path, tested: ObjectUnderTest) -> Trial:
        """Return the trial whose operator is killed after a write; keep the records of a bad one in a directory."""
        first, started = self.first, time.monotonic()
        longest = max(first.seconds, self.second.seconds)
        limits = Limits(
            max(_MIN_SECONDS, MAX_ROUNDS * (longest + MAX_REQUEUE_SECONDS)),
            min(UNINTERRUPTED_LIMITS.wait_seconds, max(_MIN_WAIT_SECONDS, 2 * longest)),
        )
        work = await tested.interrupted(
            first.snapshots[number - 1],
            limits,
            (*first.objects, *first.end),
            lambda work: not self._differences(work),
            until_unchanged=first.is_unchanging,
        )
        self._hide(work.end)
        trial = self._judged(number, work)
        directory = None
        if trial.verdict is not Verdict.SAME:
            directory = records / f"write-{number}"
            await self.tested.write_records(work.records, directory)
        return replace(trial, records=directory, seconds=time.monotonic() - started)

    def _judged(self, number: int, work: Interrupted) -> Trial:
        write = self.first.writes[number - 1]
        if work.result.outcome is not Outcome.SETTLED:
            return Trial(number, write, Verdict(work.result.outcome.value), message=self.show(work.result.message))
        found = self._differences(work)
        return Trial(number, write, Verdict.DIFFERS if found else Verdict.SAME, tuple(found))

    def _differences(self, work: Interrupted) -> list[Difference]:
        return self.baseline.differences(work.end, _clocks(self.first, work), self.show)

    def show(self, text: str) -> str:
        """Return a text without the secrets that are known by now."""
        return redactor(self.tested.secrets)(text)

    def _hide(self, end: EndState) -> None:
        """Add the values of the Secrets in an end state to the secrets."""
        self.tested.secrets |= dict.fromkeys(text for obj in end.values() for text in obj.secret_texts())


def _clocks(one: Uninterrupted, two: Uninterrupted | Interrupted) -> Clocks:
    return Clocks(one.started, two.started, LEAST_TOLERANCE_SECONDS + max(one.seconds, two.seconds))
