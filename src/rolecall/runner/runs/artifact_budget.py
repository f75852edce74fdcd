"""Keeps the artifacts of all runs together below a limit; see ``DiskBudget``.

Artifacts are also removed with their object and by ``maxRunnerArtifacts``. So much is removed at once that it happens
rarely. All methods block; call them from one thread.
"""

import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from rolecall.kube.quantities import format_bytes
from rolecall.kube.references import GVK
from rolecall.runner.runs.workspace import Workspace, workspaces_of
from rolecall.system.disk_budget import DiskBudget
from rolecall.system.logs import get_logger

logger = get_logger("artifacts")
_KEEP_SHARE = 0.9
_BLOCK_BYTES = 512


class ArtifactBudget:
    """The artifact folders of runs that have ended, with their sizes on disk, in the order in which they ended."""

    def __init__(self, limit_bytes: int) -> None:
        self._budget = DiskBudget(limit_bytes, _remove, _KEEP_SHARE)
        self._created_at = time.time_ns()

    @property
    def total_bytes(self) -> int:
        """How much disk space is counted; folders that others have removed since are included."""
        return self._budget.total_bytes

    def load(self, root: Path, kinds: Iterable[GVK]) -> None:
        """Add what earlier operators have left below the directory of the workspaces."""
        found = {folder: _changed_at(folder) for gvk in kinds for folder in _folders(root, gvk)}
        for folder in sorted(found, key=lambda each: found[each]):
            if found[folder] < self._created_at:  # what is newer belongs to a run that has not ended
                self._budget.add(folder, size_on_disk(folder), is_failed=not _was_successful(folder))
        self._remove_surplus()

    def add(self, folder: Path, *, is_failed: bool) -> None:
        """Add the artifacts of a run that has ended, and remove others if there are too many now."""
        self._budget.add(folder, size_on_disk(folder), is_failed=is_failed)
        self._remove_surplus(newest=folder)

    def _remove_surplus(self, newest: Path | None = None) -> None:
        before = self._budget.total_bytes
        if count := self._budget.remove_surplus(newest):
            logger.info(
                "Removed old artifacts, because all together have more than --max-artifacts-size",
                runs=count,
                removed=format_bytes(before - self._budget.total_bytes),
                limit=format_bytes(self._budget.limit_bytes),
            )


def size_on_disk(folder: Path) -> int:
    """Return how much disk space the files and directories in a folder take; what vanishes meanwhile does not count."""
    total = 0
    for path, _, names in os.walk(folder):
        for each in (path, *(f"{path}/{name}" for name in names)):
            with suppress(FileNotFoundError):
                total += os.lstat(each).st_blocks * _BLOCK_BYTES
    return total


def _folders(root: Path, gvk: GVK) -> Iterator[Path]:
    for key in workspaces_of(root, gvk):
        artifacts = Workspace(root, gvk, key).path / "artifacts"
        yield from (each for each in artifacts.glob("*") if each.is_dir() and not each.is_symlink())


def _changed_at(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except FileNotFoundError:  # removed meanwhile, so that its size is 0
        return 0


def _was_successful(folder: Path) -> bool:
    try:
        return (folder / "status").read_text() == "successful"
    except OSError:
        return False


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    latest = folder.with_name("latest")
    if latest.is_symlink() and not latest.exists():
        latest.unlink(missing_ok=True)
