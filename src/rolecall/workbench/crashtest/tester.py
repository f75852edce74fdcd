"""Tests whether a role survives that it, and its operator, are killed after any of its writes.

The object is reconciled twice without an interruption: this numbers the writes and shows the end state. Then, for each
write, the sandbox is reset to its initial state, the operator is killed after that write, and another one continues.
The cluster receives nothing but reads.
"""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from rolecall.kube.client import Client
from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import GVK, RawObject
from rolecall.runner.runs.process import ProcessRunner, Runner
from rolecall.runner.warm.starter import starter_for
from rolecall.workbench.comparison.clocks import LEAST_TOLERANCE_SECONDS, Clocks
from rolecall.workbench.comparison.end_states import Baseline, Difference, EndState
from rolecall.workbench.comparison.masks import redactor
from rolecall.workbench.crashtest.object_under_test import (
    UNINTERRUPTED_LIMITS,
    Interrupted,
    ObjectUnderTest,
    Uninterrupted,
)
from rolecall.workbench.crashtest.results import CrashTest, Trial, Verdict
from rolecall.workbench.crashtest.simulated_operator import Limits, Outcome
from rolecall.workbench.crashtest.write_log import CrashPoint, Liveness
from rolecall.workbench.plan.model import PlanError, PlanRequest
from rolecall.workbench.plan.planner import Report, Target, Targets, import_targets, read_objects, targets_of
from rolecall.workbench.plan.reconciles import PlanContext, plan_context
from rolecall.workbench.plan.sandbox import Sandbox, running_sandbox
from rolecall.workbench.plan.sandbox_sources import RememberingSource, Source

OnTrial = Callable[[Trial], None]
_MIN_SECONDS: Final = 60.0
_MIN_WAIT_SECONDS: Final = 15.0


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
        targets = await targets_of(plan, cluster)
        async with (
            starter_for(plan.watches, warm=plan.settings.warm) as starter,
            running_sandbox(report) as sandbox,
            opened_tester(request, sandbox, RememberingSource(cluster), ProcessRunner(starter)) as tester,
        ):
            return await tester.test(targets, report, on_trial)


@asynccontextmanager
async def opened_tester(
    request: CrashTestRequest, sandbox: Sandbox, source: Source, runner: Runner
) -> AsyncIterator["CrashTester"]:
    """Yield a tester in a sandbox filled from a source, which must return the same objects again."""
    liveness, plan = Liveness(), request.plan
    importer = sandbox.importer(source)
    async with plan_context(
        plan.settings, importer, runner, runs_commands=plan.runs_commands, may_write=lambda: liveness.is_alive
    ) as context:
        yield CrashTester(request, sandbox, context, liveness)


@dataclass(frozen=True, slots=True)
class CrashTester:
    """Tests one object in a sandbox."""

    request: CrashTestRequest
    sandbox: Sandbox
    context: PlanContext
    liveness: Liveness

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
        for number in numbers:
            report(f"Killing the operator after write {number} of {len(first.writes)}")
            on_trial(await trials.at(number, request.records))
        return CrashTest(
            title=tested.title,
            writes=first.writes,
            trials=tuple(trials.done),
            stopped_at=trials.show(first.stopped_at),
            withheld=tuple(tested.withheld),
            notes=(*self.context.importer.assumptions, *trials.notes()),
            seconds=time.monotonic() - started,
        )

    async def object_under_test(self, targets: Targets) -> ObjectUnderTest:
        """Import the only object of the targets, and return it. Raises PlanError, SourceError, KubeError."""
        if len(targets.single) != 1:
            raise PlanError(f"expected one object of a watched kind in the files, found {len(targets.single)}")
        [target] = targets.single
        await import_targets(self.context, targets)
        resource = await self.context.client.resource(target.watch.gvk)
        return ObjectUnderTest(self.sandbox, self.context, self.liveness, target, resource, targets.others)

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
    done: list[Trial] = field(default_factory=list)
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

    async def at(self, number: int, records: Path) -> Trial:
        """Return the trial whose operator is killed after a write; keep the records of a bad one in a directory."""
        first, started = self.first, time.monotonic()
        longest = max(first.seconds, self.second.seconds)
        limits = Limits(
            max(_MIN_SECONDS, 10 * longest), min(UNINTERRUPTED_LIMITS.wait_seconds, max(_MIN_WAIT_SECONDS, 2 * longest))
        )
        work = await self.tested.interrupted(
            CrashPoint.after(number, first.writes, self.second.writes),
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
        trial = replace(trial, records=directory, seconds=time.monotonic() - started)
        self.done.append(trial)
        return trial

    def _judged(self, number: int, work: Interrupted) -> Trial:
        write = self.first.writes[number - 1]
        if not work.was_killed:
            reason = f"{work.result.outcome} {self.show(work.result.message)}".rstrip()
            message = f"this time, the role did not send this write ({reason})"
            return Trial(number, write, Verdict.NOT_TRIED, message=message)
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
