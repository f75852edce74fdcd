"""Removes the workspaces of objects that were deleted without a last reconcile by this operator.

A workspace is removed with its object, by the reconcile that finds the object gone. There is none if the object was
deleted while the operator was down, or after another replica had taken it over. So every workspace without an object
is removed once the informer of its kind has synced, and again whenever such a deletion is seen. Only directories of the
form of a workspace are touched, of the watched kinds and namespaces. A work directory belongs to one operator.
"""

import asyncio
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rolecall.kube.references import ObjectKey
from rolecall.runner.controller.informer import Informer
from rolecall.runner.runs.api_access import KUBECONFIG_PREFIX
from rolecall.runner.runs.run_processes import processes_of_run
from rolecall.runner.runs.workspace import Workspace, workspaces_of
from rolecall.system.blocking_work import run_in_thread
from rolecall.system.logs import get_logger

logger = get_logger("workspace")
_REMOVED = ".removed-"
_STARTING_SECONDS = 60.0
"""How old the kubeconfig of a run can be whose process has not started yet."""


@dataclass(frozen=True, slots=True)
class OrphanedWorkspaces:
    """Finds the orphaned workspaces of one kind below ``root``.

    ``is_busy`` says whether a reconcile is running, ``forget`` drops what is known about an object that is gone.
    """

    root: Path
    informer: Informer
    namespaces: tuple[str, ...]
    is_busy: Callable[[ObjectKey], bool]
    forget: Callable[[ObjectKey], None]
    _asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def keep_removing(self) -> None:
        """Remove orphaned workspaces now and after each ``look_again``, until cancelled."""
        while True:
            self._asked.clear()
            await self.remove()
            await self._asked.wait()

    def look_again(self) -> None:
        """Have ``keep_removing`` look once more: an object may have left a workspace just now."""
        self._asked.set()

    async def remove(self) -> None:
        """Wait until the informer has synced, then remove every workspace without an object."""
        await self.informer.synced()
        try:
            await self._remove()
        except OSError as error:
            logger.warning("Could not remove orphaned workspaces", reason=str(error))

    async def _remove(self) -> None:
        gone = [key for key in await run_in_thread(self._found) if self._move_aside(key)]
        for key in gone:
            self.forget(key)
            logger.info("Removed an orphaned workspace", gvk=str(self.informer.gvk), object=str(key))
        await run_in_thread(self._remove_moved)

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
        try:
            path.rename(self.root / f"{_REMOVED}{secrets.token_hex(8)}")
        except FileNotFoundError:  # a reconcile has removed it meanwhile
            return False
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
