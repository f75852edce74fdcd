"""Removing what runs have left of objects that went while no operator was looking.

A workspace goes with its object. One whose object was deleted while the operator was down is found at the next start:
as soon as an informer knows all objects of its kind, each workspace without an object is removed. Only folders that
have the form of a workspace are touched, of the watched kinds and namespaces. A work directory is one operator's own.
"""

import asyncio
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rolecall.controller.source.informer import Informer
from rolecall.kube.references import ObjectKey
from rolecall.logs import get_logger
from rolecall.process_tree import processes_of_run
from rolecall.runs.api_access import KUBECONFIG_PREFIX
from rolecall.runs.workspace import Workspace, workspaces_of

logger = get_logger("workspace")
_TAKEN = ".removed-"


@dataclass(frozen=True, slots=True)
class OrphanedWorkspaces:
    """The workspaces of one kind below ``root``; ``is_busy`` tells whether an object is being reconciled."""

    root: Path
    informer: Informer
    namespaces: tuple[str, ...]
    is_busy: Callable[[ObjectKey], bool]

    async def remove(self) -> None:
        """Wait until all objects are known, then remove each workspace that has none."""
        await self.informer.synced()
        try:
            await self._remove()
        except OSError as error:
            logger.warning("Workspaces without an object could not be removed", reason=str(error))

    async def _remove(self) -> None:
        gone = [key for key in await asyncio.to_thread(self._found) if self._take_away(key)]
        for key in gone:
            logger.info("Workspace removed, its object is gone", gvk=str(self.informer.gvk), object=str(key))
        for folder in self.root.glob(f"{_TAKEN}*"):
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def _found(self) -> list[ObjectKey]:
        keys = workspaces_of(self.root, self.informer.gvk)
        return [key for key in keys if not (key.namespace and self.namespaces) or key.namespace in self.namespaces]

    def _take_away(self, key: ObjectKey) -> bool:
        """Move a workspace aside in one step, so that no run of a new object of that name can begin in it."""
        if self.informer.store.get(key) is not None or self.is_busy(key):
            return False
        path = Workspace(self.root, self.informer.gvk, key).path
        path.rename(self.root / f"{_TAKEN}{secrets.token_hex(8)}")
        return True


def remove_old_kubeconfigs(root: Path) -> None:
    """Remove the kubeconfigs of runs that a killed operator had under way. Blocks."""
    for path in root.glob(f"{KUBECONFIG_PREFIX}*"):
        if not processes_of_run(path.name.removeprefix(KUBECONFIG_PREFIX)):
            path.unlink(missing_ok=True)
