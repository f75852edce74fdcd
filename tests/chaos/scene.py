"""Where disorder happens: a control plane, up to three operators, their objects, and a disk of their own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from rolecall.workbench.controlplane import ControlPlane
from tests.chaos.accepted import until
from tests.chaos.replica import Replica
from tests.chaos.small_disk import SmallDisk
from tests.chaos.workload import Workload

_VICTIM_SECONDS, _LOOK_SECONDS, _TOUCH_SECONDS = 20.0, 0.01, 2.0
LEASE_NAME, LEASE_SECONDS, DEADLINE_SECONDS = "lock", 6, 3
SHARDS = 6
"""Of three replicas, which share the work; two elect a leader."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that a disturbance may touch."""

    folder: Path
    mark: str
    plane: ControlPlane
    workload: Workload
    replicas: list[Replica]
    disk: SmallDisk

    @property
    def replica(self) -> Replica:
        """The operator of a scene that has one."""
        return self.replicas[0]

    async def victim(self, name: str) -> psutil.Process:
        """Wait for a process of this name below the operator and return it. Raises TimeoutError."""
        found: list[psutil.Process] = []

        async def look() -> bool:
            found[:] = await asyncio.to_thread(self.replica.processes, name)
            return bool(found)

        async with self.busy():
            await until(look, _VICTIM_SECONDS, f"a process {name}", _LOOK_SECONDS)
        return found[0]

    @asynccontextmanager
    async def busy(self) -> AsyncIterator[None]:
        """Change objects every other second meanwhile, so that there is always work."""
        touching = asyncio.create_task(self._keep_touching())
        try:
            yield
        finally:
            touching.cancel()
            await asyncio.gather(touching, return_exceptions=True)

    async def _keep_touching(self) -> None:
        while True:
            await asyncio.sleep(_TOUCH_SECONDS)
            await self.workload.touch()
