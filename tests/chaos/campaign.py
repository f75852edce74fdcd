"""A campaign: one operator, then two replicas, then three, each with all faults that the plan draws for it."""

import asyncio
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rolecall.workbench.controlplane import ControlPlane
from tests.chaos import trial
from tests.chaos.fault import Fault
from tests.chaos.leak_checks import Footprint, footprint, leaks_after_stop
from tests.chaos.lease_faults import holder_of_lease
from tests.chaos.outcome import Outcome, Result, Violation
from tests.chaos.plan import ALONE, GROUPS, Plan
from tests.chaos.scene import Scene, define, set_up_scene

NAMES = [each.name for members in GROUPS.values() for each in members]
_MAX_UNRECOVERED = 3
"""After this many consecutive faults without recovery, the campaign stops."""


def progress(text: str) -> None:
    """Print progress to standard error."""
    sys.stderr.write(f"[{time.strftime('%H:%M:%S')}] {text}\n")


class NoRecoveryError(Exception):
    """Nothing recovers, so further faults would measure nothing."""


async def run_campaign(plan: Plan, plane: ControlPlane, directory: Path, result: Result) -> None:
    """Carry out a plan, with files and logs in a directory, and add outcomes to a result."""
    await asyncio.to_thread(define, plane)
    for replicas, drawn in plan.sections():
        await _section(_Section(plan, result, directory / f"replicas-{replicas}"), plane, drawn, replicas)


class _Section:
    """All faults of one scene; adds their outcomes to a result."""

    def __init__(self, plan: Plan, result: Result, directory: Path) -> None:
        self._plan = plan
        self._result = result
        self.directory = directory
        self._unrecovered = 0

    def first_draws(self) -> random.Random:
        """Return the random source for creating objects."""
        return self._plan.chance(-1)

    async def go_through(self, scene: Scene, drawn: Iterator[Fault]) -> None:
        """Inject all faults; measure before and after."""
        before = await self._calm_before(scene)
        for fault in drawn:
            if problem := fault.unavailable_reason(scene):
                self._remark(f"{fault.name}: not possible here: {problem}")
                continue
            number = len(self._result.outcomes) + 1
            self._note(number, await trial.run_trial(scene, fault, self._plan.chance(number)))
        after = await asyncio.to_thread(lambda: [footprint(each) for each in scene.replicas])
        for each, (first, last) in enumerate(zip(before, after, strict=True), 1):
            self._compare(f"operator {each} of {len(after)}", first, last)

    async def check_after_stop(self, scene: Scene) -> None:
        """Stop every operator and check for leaks."""
        for replica in scene.replicas:
            if code := await replica.stop():
                self.violated("other", f"the operator exited with {code} when stopped")
        for text in await asyncio.to_thread(leaks_after_stop, scene):
            self.violated("leaked", text)
        if holder := await holder_of_lease(scene):
            self.violated("leaked", f"the Lease, held by {holder}, although every replica has stopped")

    async def _calm_before(self, scene: Scene) -> list[Footprint]:
        """Wait until all objects exist and have changed once, then measure."""
        outcome = await trial.run_trial(scene, ALONE["nothing"][0], self._plan.chance(0))
        for violation in outcome.violations:
            self.violated(violation.column, f"before any fault: {violation.text}")
        if outcome.seconds is None:
            raise NoRecoveryError("the objects do not converge even without a fault")
        return await asyncio.to_thread(lambda: [footprint(each) for each in scene.replicas])

    def _note(self, number: int, outcome: Outcome) -> None:
        self._result.outcomes.append(outcome)
        recovery = "not recovered" if outcome.seconds is None else f"recovered in {outcome.seconds:.1f} s"
        progress(f"{number}: {outcome.name}: {recovery}")
        for violation in outcome.violations:
            progress(f"  {violation.column}: {violation.text}")
        self._unrecovered = self._unrecovered + 1 if outcome.seconds is None else 0
        if self._unrecovered == _MAX_UNRECOVERED:
            raise NoRecoveryError(f"no recovery after {_MAX_UNRECOVERED} consecutive faults")

    def _compare(self, name: str, first: Footprint, last: Footprint) -> None:
        memory = f"{first.memory_mib:.0f} MiB before, {last.memory_mib:.0f} MiB after"
        self._remark(f"{name}, at rest: {memory}; {first.descriptors} descriptors before, {last.descriptors} after")
        for text in first.growth(last):
            self.violated("leaked", f"{name}: {text}")

    def violated(self, column: str, text: str) -> None:
        """Add a violation that no single fault caused."""
        self._result.after_stop.append(Violation(column, text))
        progress(f"{column}: {text}")

    def _remark(self, text: str) -> None:
        if text not in self._result.remarks:
            self._result.remarks.append(text)
            progress(text)


async def _section(section: _Section, plane: ControlPlane, drawn: Iterator[Fault], replicas: int) -> None:
    async with set_up_scene(plane, section.directory, replicas) as scene:
        async with scene.workload.at_work(section.first_draws()):
            try:
                await section.go_through(scene, drawn)
            except NoRecoveryError as error:
                section.violated("unconverged", f"stopped early: {error}")
        await section.check_after_stop(scene)
