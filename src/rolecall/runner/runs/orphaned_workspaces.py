"""Removes the workspaces and kubeconfigs that runs left behind without a last reconcile by this operator.

A workspace is removed with its object, by the reconcile that finds the object deleted. There is no such reconcile if
the object was deleted while the operator was down, or after another replica had taken it over. So every workspace
without an object is removed once the informer of its kind has synced, and again whenever such a deletion is seen. Only
directories in the form of a workspace are removed, of the watched kinds and namespaces. A work directory belongs to one
operator.
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
from rolecall.runner.runs.process_marks import processes_of_run
from rolecall.runner.runs.workspace import Workspace, workspaces_of
from rolecall.system.blocking_work import run_in_thread
from rolecall.system.logs import get_logger

logger = get_logger("workspace")
_REMOVED = ".removed-"
_STARTING_SECONDS = 60.0
"""The maximum age of a kubeconfig of a run whose process hasn't started yet."""


@dataclass(frozen=True, slots=True)
class OrphanedWorkspaces:
    """Finds the orphaned workspaces of one kind below ``root``.

    ``is_busy`` returns whether a reconcile is running, ``forget`` drops what is known about a deleted object.
    """

    root: Path
    informer: Informer
    namespaces: tuple[str, ...]
    is_busy: Callable[[ObjectKey], bool]
    forget: Callable[[ObjectKey], None]
    _requested: asyncio.Event = field(default_factory=asyncio.Event)

    async def keep_removing(self) -> None:
        """Remove orphaned workspaces now and after each ``request_scan``, until cancelled."""
        while True:
            self._requested.clear()
            await self.remove()
            await self._requested.wait()

    def request_scan(self) -> None:
        """Have ``keep_removing`` scan again: an object may have just left a workspace."""
        self._requested.set()

    async def remove(self) -> None:
        """Wait until the informer has synced, then remove every workspace without an object."""
        await self.informer.synced()
        try:
            for key in await run_in_thread(lambda: workspaces_of(self.root, self.informer.gvk)):
                is_watched = not (key.namespace and self.namespaces) or key.namespace in self.namespaces
                if is_watched and self._move_aside(key):
                    self.forget(key)
                    logger.info("Removed an orphaned workspace", gvk=str(self.informer.gvk), object=str(key))
            await run_in_thread(self._remove_moved)
        except OSError as error:
            logger.warning("Could not remove orphaned workspaces", reason=str(error))

    def _move_aside(self, key: ObjectKey) -> bool:
        """Move a workspace aside in one step, so that no run of a new object of that name can start in it.

        This runs on the event loop, so that nothing can happen between the check and the move.
        """
        if self.informer.store.get(key) is not None or self.is_busy(key):
            return False
        try:
            Workspace(self.root, self.informer.gvk, key).path.rename(self.root / f"{_REMOVED}{secrets.token_hex(8)}")
        except FileNotFoundError:  # a reconcile has removed it in the meantime
            return False
        return True

    def _remove_moved(self) -> None:
        for directory in self.root.glob(f"{_REMOVED}*"):
            shutil.rmtree(directory, ignore_errors=True)


def remove_old_kubeconfigs(directory: Path, *, is_shared: bool) -> None:
    """Remove the kubeconfigs that runs of a killed operator left behind. Blocks.

    Files of others remain. In a shared directory, such as that of all temporary files, so do those that another
    operator may have written for a run that it is just starting.
    """
    for path in directory.glob(f"{KUBECONFIG_PREFIX}*"):
        ident = path.name.removeprefix(KUBECONFIG_PREFIX)
        try:
            found = path.lstat()
        except FileNotFoundError:
            continue
        is_own = ident.isdecimal() and stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
        is_old = not is_shared or time.time() - found.st_mtime >= _STARTING_SECONDS
        if is_own and is_old and not processes_of_run(ident):
            path.unlink(missing_ok=True)
