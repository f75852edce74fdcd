"""A whole run: one operator first, two replicas then, three at last, each through all that the plan draws for it."""

import asyncio
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rolecall.workbench.controlplane import ControlPlane
from tests.chaos import episode, stage
from tests.chaos.catalogue import ALONE, GROUPS
from tests.chaos.disturbance import Disturbance
from tests.chaos.leader_faults import holder_of_lease
from tests.chaos.outcome import Outcome, Result, Violation
from tests.chaos.plan import Plan
from tests.chaos.remains import Footprint, footprint, left_after_stop
from tests.chaos.scene import Scene

NAMES = [each.name for members in GROUPS.values() for each in members]
_HOPELESS = 3
"""So many disturbances in a row that were not recovered from end it."""


def progress(text: str) -> None:
    """Tell the person who waits what happens."""
    sys.stderr.write(f"[{time.strftime('%H:%M:%S')}] {text}\n")


class HopelessError(Exception):
    """Nothing recovers any more, so that further disturbances would say nothing."""


async def carry_out(plan: Plan, plane: ControlPlane, folder: Path, result: Result) -> None:
    """Do what a plan says, in a folder for files and logs, and add what comes of it to a result."""
    await asyncio.to_thread(stage.define, plane)
    for replicas, drawn in plan.sections():
        await _section(_Section(plan, result, folder / f"replicas-{replicas}"), plane, drawn, replicas)


class _Section:
    """All disturbances of one scene, whose outcomes are added to a result."""

    def __init__(self, plan: Plan, result: Result, folder: Path) -> None:
        self._plan = plan
        self._result = result
        self.folder = folder
        self._hopeless = 0

    def first_draws(self) -> random.Random:
        """Return the source of the draws with which the objects are made."""
        return self._plan.chance(-1)

    async def go_through(self, scene: Scene, drawn: Iterator[Disturbance]) -> None:
        """Go through all disturbances; measure before and after."""
        before = await self._calm_before(scene)
        for disturbance in drawn:
            if trouble := disturbance.why_not(scene):
                self._remark(f"{disturbance.name}: not possible here: {trouble}")
                continue
            number = len(self._result.outcomes) + 1
            self._note(number, await episode.go_through(scene, disturbance, self._plan.chance(number)))
        after = await asyncio.to_thread(lambda: [footprint(each) for each in scene.replicas])
        for each, (first, last) in enumerate(zip(before, after, strict=True), 1):
            self._compare(f"operator {each} of {len(after)}", first, last)

    async def look_at_the_end(self, scene: Scene) -> None:
        """Stop every operator and look for what is left."""
        for replica in scene.replicas:
            if code := await replica.stop():
                self.violated("other", f"the operator was stopped and ended with {code}")
        for text in await asyncio.to_thread(left_after_stop, scene):
            self.violated("left", text)
        if holder := await holder_of_lease(scene):
            self.violated("left", f"the Lease, held by {holder}, although every replica has stopped")

    async def _calm_before(self, scene: Scene) -> list[Footprint]:
        """Wait until everything is made, and has been changed once, and measure."""
        outcome = await episode.go_through(scene, ALONE["nothing"][0], self._plan.chance(0))
        for violation in outcome.violations:
            self.violated(violation.column, f"before any disturbance: {violation.text}")
        if outcome.seconds is None:
            raise HopelessError("the objects do not come to their state even without a disturbance")
        return await asyncio.to_thread(lambda: [footprint(each) for each in scene.replicas])

    def _note(self, number: int, outcome: Outcome) -> None:
        self._result.outcomes.append(outcome)
        recovery = "not recovered" if outcome.seconds is None else f"recovered in {outcome.seconds:.1f} s"
        progress(f"{number}: {outcome.name}: {recovery}")
        for violation in outcome.violations:
            progress(f"  {violation.column}: {violation.text}")
        self._hopeless = self._hopeless + 1 if outcome.seconds is None else 0
        if self._hopeless == _HOPELESS:
            raise HopelessError(f"{_HOPELESS} disturbances in a row were not recovered from")

    def _compare(self, name: str, first: Footprint, last: Footprint) -> None:
        memory = f"{first.memory_mib:.0f} MiB before, {last.memory_mib:.0f} MiB after"
        self._remark(f"{name}, at rest: {memory}; {first.descriptors} descriptors before, {last.descriptors} after")
        for text in first.growth(last):
            self.violated("left", f"{name}: {text}")

    def violated(self, column: str, text: str) -> None:
        """Add what was violated, but not by one disturbance."""
        self._result.at_the_end.append(Violation(column, text))
        progress(f"{column}: {text}")

    def _remark(self, text: str) -> None:
        if text not in self._result.remarks:
            self._result.remarks.append(text)
            progress(text)


async def _section(section: _Section, plane: ControlPlane, drawn: Iterator[Disturbance], replicas: int) -> None:
    async with stage.scene(plane, section.folder, replicas) as scene:
        async with scene.workload.at_work(section.first_draws()):
            try:
                await section.go_through(scene, drawn)
            except HopelessError as error:
                section.violated("lost", f"given up: {error}")
        await section.look_at_the_end(scene)
