"""Removes the workspaces of objects that were deleted while no operator was running.

A workspace is removed with its object. If the object was deleted while the operator was down, the workspace is found
at the next start: once the informer of its kind has synced, every workspace without an object is removed. Only
directories of the form of a workspace are touched, of the watched kinds and namespaces. A work directory belongs to one
operator.
"""

import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rolecall.blocking_work import in_thread
from rolecall.controller.source.informer import Informer
from rolecall.kube.references import ObjectKey
from rolecall.logs import get_logger
from rolecall.runs.api_access import KUBECONFIG_PREFIX
from rolecall.runs.run_processes import processes_of_run
from rolecall.runs.workspace import Workspace, workspaces_of

logger = get_logger("workspace")
_REMOVED = ".removed-"
_STARTING_SECONDS = 60.0
"""How old the kubeconfig of a run can be whose process has not started yet."""


@dataclass(frozen=True, slots=True)
class OrphanedWorkspaces:
    """Finds the orphaned workspaces of one kind below ``root``; ``is_busy`` says whether a reconcile is running."""

    root: Path
    informer: Informer
    namespaces: tuple[str, ...]
    is_busy: Callable[[ObjectKey], bool]

    async def remove(self) -> None:
        """Wait until the informer has synced, then remove every workspace without an object."""
        await self.informer.synced()
        try:
            await self._remove()
        except OSError as error:
            logger.warning("Could not remove orphaned workspaces", reason=str(error))

    async def _remove(self) -> None:
        gone = [key for key in await in_thread(self._found) if self._move_aside(key)]
        for key in gone:
            logger.info("Removed an orphaned workspace", gvk=str(self.informer.gvk), object=str(key))
        await in_thread(self._remove_moved)

    def _found(self) -> list[ObjectKey]:
        keys = workspaces_of(self.root, self.informer.gvk)
        return [key for key in keys if not (key.namespace and self.namespaces) or key.namespace in self.namespaces]

    def _remove_moved(self) -> None:
        for folder in self.root.glob(f"{_REMOVED}*"):
            shutil.rmtree(folder, ignore_errors=True)

    def _move_aside(self, key: ObjectKey) -> bool:
        """Move a workspace aside in one step, so that no run of a new object of that name can start in it.

        This is done on the loop, because nothing may come between the question and the step.
        """
        if self.informer.store.get(key) is not None or self.is_busy(key):
            return False
        path = Workspace(self.root, self.informer.gvk, key).path
        path.rename(self.root / f"{_REMOVED}{secrets.token_hex(8)}")
        return True


def remove_old_kubeconfigs(directory: Path, *, is_shared: bool) -> None:
    """Remove the kubeconfigs of runs of a killed operator. Blocks.

    Files of others stay. In a directory that is shared, such as that of all temporary files, so do those that another
    operator may have written for a run that it is just starting.
    """
    for path in directory.glob(f"{KUBECONFIG_PREFIX}*"):
        ident = path.name.removeprefix(KUBECONFIG_PREFIX)
        age_seconds = _STARTING_SECONDS if is_shared else 0.0
        if ident.isdecimal() and _is_own_and_old(path, age_seconds) and not processes_of_run(ident):
            path.unlink(missing_ok=True)


def _is_own_and_old(path: Path, age_seconds: float) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    is_own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
    return is_own and time.time() - found.st_mtime >= age_seconds
