"""The controllers of a shadow, which work only when somebody needs them.

A controller that sees a ReplicaSet before its pods makes them anew. So nothing works while workloads are imported, and
controllers read everything anew afterwards. Most plans change nothing that they look after, and never start them.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from rolecall.runner.proxy.request_info import RequestInfo
from rolecall.system.blocking_work import in_thread
from rolecall.workbench.controlplane.cluster import ControlPlane
from rolecall.workbench.controlplane.components import CONTROLLERS

_GROUPS: Final = frozenset({"apps", "batch", "autoscaling", "policy"})
_CORE: Final = frozenset({"pods", "services", "replicationcontrollers", "namespaces", "persistentvolumeclaims"})


def need_controllers(info: RequestInfo) -> bool:
    """Return whether a request changes what controllers look after; every removal does, because of its dependents."""
    if not info.is_write or info.is_dry_run:
        return False
    is_looked_after = info.group in _GROUPS or (not info.group and info.resource in _CORE)
    return is_looked_after or info.is_removal


@dataclass(slots=True)
class Controllers:
    """Starts and stops the controllers of one control plane."""

    plane: ControlPlane
    are_needed: bool = False
    _are_running: bool = False
    _pauses: int = 0
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def need(self) -> None:
        """Let controllers work from now on."""
        self.are_needed = True
        async with self._lock:
            await self._follow()

    async def pause(self) -> None:
        """Return when no controller works any more, until ``resume``."""
        self._pauses += 1
        async with self._lock:
            await self._follow()

    async def resume(self) -> None:
        """Let controllers work again, if they are needed."""
        self._pauses -= 1
        async with self._lock:
            await self._follow()

    async def rest(self) -> None:
        """Stop the controllers until somebody needs them again."""
        self.are_needed = False
        async with self._lock:
            await self._follow()

    async def _follow(self) -> None:
        should_run = self.are_needed and not self._pauses
        if should_run != self._are_running:
            await in_thread(self._start if should_run else self._kill)
            self._are_running = should_run

    def _start(self) -> None:
        for component in CONTROLLERS:
            self.plane.start_component(component)

    def _kill(self) -> None:
        for component in CONTROLLERS:
            self.plane.stop_component(component, grace_seconds=0)
