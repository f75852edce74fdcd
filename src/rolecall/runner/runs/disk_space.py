"""Removes what runs leave on disk: artifacts beyond the limit, and orphaned workspaces and kubeconfigs.

Artifacts are also removed with their object and by ``maxRunnerArtifacts``. Each removal frees a tenth of the limit, so
removals are rare. All disk work happens in one thread, one run after the other, before the next run of the object can
start; errors are logged and don't stop runs.

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
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Never

from rolecall.kube.quantities import format_bytes
from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.controller.informer import Informer
from rolecall.runner.runs.process_marks import processes_of_run
from rolecall.runner.runs.run import KUBECONFIG_PREFIX
from rolecall.runner.runs.workspace import Workspace, workspaces_of
from rolecall.system.blocking_work import run_in_thread
from rolecall.system.files import DiskBudget, entries_of, write_private
from rolecall.system.logs import get_logger

logger = get_logger("workspace")

MAX_KEPT_VARIABLES_BYTES = 64 << 10
"""The largest file of variables that stays in a workspace: there is one for each object, as long as it exists."""

_RUN_SHARE = 8
_KEEP_SHARE = 0.9
_BLOCK_BYTES = 512

_REMOVED = ".removed-"
_STARTING_SECONDS = 60.0
"""The maximum age of a kubeconfig of a run whose process hasn't started yet."""


class ArtifactBudget:
    """The artifact directories of runs that have ended, with their sizes on disk, in the order in which they ended.

    With a limit of 0 nothing is limited. ``load``, ``add``, and ``drop_large_variables`` block.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.run_limit_bytes = limit_bytes // _RUN_SHARE
        self._budget = DiskBudget(limit_bytes, _remove, _KEEP_SHARE)
        self._created_at = time.time_ns()
        self._thread = ThreadPoolExecutor(1, "artifacts")

    @property
    def total_bytes(self) -> int:
        """The disk space in use; directories that others have removed since are included."""
        return self._budget.total_bytes

    @contextmanager
    def running(self, root: Path, kinds: Iterable[GVK]) -> Iterator[None]:
        """Add the runs of earlier operators below ``root`` in the background, and finish all work on exit."""
        with self._thread:
            if self._budget.limit_bytes:
                self._thread.submit(_log_errors, lambda: self.load(root, kinds))
            yield

    async def add_run(self, workspace: Workspace, ident: str, *, is_failed: bool) -> None:
        """Add a run that has ended, and remove others if there are too many now."""
        if self._budget.limit_bytes:

            def add() -> None:
                drop_large_variables(workspace)
                self.add(workspace.artifacts(ident), is_failed=is_failed)

            await asyncio.get_running_loop().run_in_executor(self._thread, _log_errors, add)

    def load(self, root: Path, kinds: Iterable[GVK]) -> None:
        """Add the artifacts of earlier operators."""
        found = {directory: _changed_at(directory) for gvk in kinds for directory in _directories(root, gvk)}
        for directory in sorted(found, key=lambda each: found[each]):
            if found[directory] < self._created_at:  # a newer one belongs to a run that hasn't ended
                self._budget.add(directory, size_on_disk(directory), is_failed=not _was_successful(directory))
        self._remove_surplus()

    def add(self, directory: Path, *, is_failed: bool) -> None:
        """Add the artifacts of a run that has ended, and remove others if there are too many now."""
        self._budget.add(directory, size_on_disk(directory), is_failed=is_failed)
        self._remove_surplus(newest=directory)

    def _remove_surplus(self, newest: Path | None = None) -> None:
        before = self._budget.total_bytes
        if count := self._budget.remove_surplus(newest):
            logger.info(
                "Removed old artifacts: total size exceeds --max-artifacts-size",
                runs=count,
                removed=format_bytes(before - self._budget.total_bytes),
                limit=format_bytes(self._budget.limit_bytes),
            )


def size_on_disk(directory: Path) -> int:
    """Return the disk space of the files and directories in a directory, except what vanishes in the meantime."""
    total = 0
    for path, _, names in os.walk(directory):
        for each in (path, *(f"{path}/{name}" for name in names)):
            with suppress(FileNotFoundError):
                total += os.lstat(each).st_blocks * _BLOCK_BYTES
    return total


def drop_large_variables(workspace: Workspace) -> None:
    """Empty the file with the variables of the last run if it is large."""
    variables = workspace.path / "env" / "extravars"
    if variables.is_file() and variables.stat().st_size > MAX_KEPT_VARIABLES_BYTES:
        write_private(variables, "{}")


def _log_errors(work: Callable[[], None]) -> None:
    try:
        work()
    except OSError:
        logger.exception("Failed to remove old artifacts")


def _directories(root: Path, gvk: GVK) -> Iterator[Path]:
    for key in workspaces_of(root, gvk):
        artifacts = Workspace(root, gvk, key).path / "artifacts"
        yield from (each for each in entries_of(artifacts) if each.is_dir() and not each.is_symlink())


def _changed_at(directory: Path) -> int:
    try:
        return directory.stat().st_mtime_ns
    except FileNotFoundError:  # removed in the meantime, so its size is 0
        return 0


def _was_successful(directory: Path) -> bool:
    try:
        return (directory / "status").read_text() == "successful"
    except OSError:
        return False


def _remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    latest = directory.with_name("latest")
    if latest.is_symlink() and not latest.exists():
        latest.unlink(missing_ok=True)


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

    async def keep_removing(self) -> Never:
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
        await self.informer.synced.wait()
        try:
            for key in await run_in_thread(lambda: workspaces_of(self.root, self.informer.gvk)):
                is_watched = not (key.namespace and self.namespaces) or key.namespace in self.namespaces
                if is_watched and self._move_aside(key):
                    self.forget(key)
                    logger.info("Removed an orphaned workspace", gvk=str(self.informer.gvk), object=str(key))
            await run_in_thread(self._remove_moved)
        except OSError as error:
            logger.warning("Failed to remove orphaned workspaces", reason=str(error))

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
