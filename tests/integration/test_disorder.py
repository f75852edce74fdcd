"""Whatever happens, in any order: when it is over, every object is as it should be and its status says so.

What happens is drawn by chance: changes by people, and processes that die or hang. ``ROLECALL_DISORDER_SECONDS`` and
``ROLECALL_DISORDER_SEED`` make it longer, and another one. A seed draws the same again, but never meets the same
processes, which come and go by themselves.
"""

import asyncio
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable

import psutil
import pytest

from rolecall.kube.errors import ConflictError, NotFoundError
from rolecall.kube.metadata import metadata_of
from tests.integration.operators import Operator
from tests.integration.world import POD, POD_SCALER, World, eventually, is_true

pytestmark = pytest.mark.alone
SECONDS = float(os.environ.get("ROLECALL_DISORDER_SECONDS", "15"))
SEED = int(os.environ.get("ROLECALL_DISORDER_SEED", "1"))
SCALERS = 6
PATIENCE = 90.0


class Disorder:
    """Everything that may happen to the PodScalers, their pods and the operator."""

    def __init__(self, world: World, operator: Operator, chance: random.Random) -> None:
        self._world = world
        self._operator = operator
        self._chance = chance
        self.wanted: dict[str, int] = {}
        self.happened: list[str] = []

    @property
    def _happenings(self) -> tuple[Callable[[str], Awaitable[None]], ...]:
        changes = (self._change_count, self._delete_pod, self._add_pod, self._annotate, self._recreate)
        return (*changes, *changes, *changes, self._kill_a_process, self._hang, self._kill_the_operator)

    async def begin(self) -> None:
        """Make the objects."""
        for number in range(SCALERS):
            await self._create(f"scaler-{number}")

    async def go_on(self, seconds: float) -> None:
        """Let things happen for so many seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            happening = self._chance.choice(self._happenings)
            name = self._chance.choice(sorted(self.wanted))
            self.happened.append(f"{happening.__name__} {name}")
            try:
                await happening(name)
            except (ConflictError, NotFoundError, psutil.Error):
                self.happened[-1] += " (too late)"
            await asyncio.sleep(self._chance.uniform(0.0, 0.5))

    async def _create(self, name: str) -> None:
        count = self._chance.randint(0, 4)
        await self._world.create(
            f"{{apiVersion: scaling.example.com/v1, kind: PodScaler, metadata: {{name: {name}}}, "
            f"spec: {{count: {count}, selector: {{app: {name}}}}}}}"
        )
        self.wanted[name] = count

    async def _change_count(self, name: str) -> None:
        count = self._chance.randint(0, 4)
        await self._world.patch(POD_SCALER, name, {"spec": {"count": count}})
        self.wanted[name] = count

    async def _annotate(self, name: str) -> None:
        await self._world.patch(POD_SCALER, name, {"metadata": {"annotations": {"seen": str(self._chance.random())}}})

    async def _delete_pod(self, name: str) -> None:
        if pods := await self._world.pods(app=name):
            await self._world.delete(POD, str(metadata_of(self._chance.choice(pods))["name"]))

    async def _add_pod(self, name: str) -> None:
        await self._world.create(
            f"{{apiVersion: v1, kind: Pod, metadata: {{generateName: extra-, labels: {{app: {name}}}}}, "
            "spec: {containers: [{name: nginx, image: nginx}]}}"
        )

    async def _recreate(self, name: str) -> None:
        await self._world.delete(POD_SCALER, name)
        await self._world.wait_until_gone(POD_SCALER, name, PATIENCE)
        await self._create(name)

    async def _kill_a_process(self, _name: str) -> None:
        assert self._operator.process is not None
        if below := psutil.Process(self._operator.process.pid).children(recursive=True):
            self._chance.choice(below).kill()

    async def _hang(self, _name: str) -> None:
        self._operator.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(1)
        finally:
            self._operator.signal(signal.SIGCONT)

    async def _kill_the_operator(self, _name: str) -> None:
        self._operator.kill()
        self._operator.start()


async def test_after_any_disorder_every_object_comes_to_its_state(world: World, running: Operator) -> None:
    disorder = Disorder(world, running, random.Random(SEED))  # noqa: S311 - no secret
    await disorder.begin()
    await disorder.go_on(SECONDS)

    async def wrong() -> list[object]:
        looks = [what_is_wrong(world, name, count) for name, count in disorder.wanted.items()]
        return [found for found in await asyncio.gather(*looks) if found]

    await eventually(wrong, lambda found: not found, PATIENCE, f"all is well after {disorder.happened}")
    assert running.is_ready()


async def what_is_wrong(world: World, name: str, count: int) -> object:
    """Return what a PodScaler and its pods are like, if that is not what was asked for."""
    scaler = await world.get(POD_SCALER, name)
    pods = await world.pods(app=name)
    status = scaler.get("status") or {}
    is_well = is_true(scaler, "Successful") and not is_true(scaler, "Failure") and status.get("pods") == count
    return None if is_well and len(pods) == count else (name, count, len(pods), status)
