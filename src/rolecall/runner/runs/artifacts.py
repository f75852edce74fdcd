"""A runner that limits what its runs leave on disk: each run, all runs together, and the variables that stay behind.

It passes every run on to another runner. The disk is looked at in a thread of its own, one run after the other, before
the next run of the object can begin.

Keeps the artifacts of all runs together below a limit; see ``DiskBudget``.

Artifacts are also removed with their object and by ``maxRunnerArtifacts``. So much is removed at once that it happens
rarely. All methods block; call them from one thread.
"""

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from rolecall.kube.quantities import format_bytes
from rolecall.kube.references import GVK
from rolecall.runner.runs.events import RunSummary
from rolecall.runner.runs.process import OnEvent, Runner, RunSpec
from rolecall.runner.runs.workspace import Workspace, workspaces_of
from rolecall.system.files import DiskBudget, write_private
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


KEPT_VARIABLES_BYTES = 64 << 10
"""The largest file of variables that stays in a workspace: there is one for each object, for as long as it exists."""

_SHARE_OF_A_RUN = 8


@dataclass(frozen=True, slots=True)
class BudgetedRunner:
    """Runs everything with ``runner``; all artifacts together have about ``limit_bytes``, each run an eighth."""

    runner: Runner
    limit_bytes: int
    budget: ArtifactBudget
    thread: ThreadPoolExecutor

    @classmethod
    @asynccontextmanager
    async def of(cls, runner: Runner, limit_bytes: int, root: Path, kinds: Iterable[GVK]) -> AsyncIterator[Self]:
        """Yield a runner for workspaces below ``root``, where earlier operators may have left some of these kinds."""
        with ThreadPoolExecutor(1, "artifacts") as thread:
            budget = ArtifactBudget(limit_bytes)
            thread.submit(_logging, budget.load, root, list(kinds))
            yield cls(runner, limit_bytes, budget, thread)

    async def run(self, spec: RunSpec, on_event: OnEvent) -> RunSummary:
        """Run the spec; see ``runner.Runner``."""
        limited = replace(spec, artifact_limit_bytes=self.limit_bytes // _SHARE_OF_A_RUN)
        is_failed = True
        try:
            summary = await self.runner.run(limited, on_event)
            is_failed = not summary.is_successful
        finally:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self.thread, _logging, self._ended, spec, is_failed)
        return summary

    def _ended(self, spec: RunSpec, is_failed: bool) -> None:  # noqa: FBT001 - passed on by position
        drop_large_variables(spec.workspace)
        self.budget.add(spec.workspace.artifacts(spec.ident), is_failed=is_failed)


def _logging(work: Callable[..., None], *arguments: Any) -> None:
    """Do the work; what goes wrong with the files of runs that are over must not end a run."""
    try:
        work(*arguments)
    except OSError:
        logger.exception("Could not remove old artifacts")


def drop_large_variables(workspace: Workspace) -> None:
    """Empty the file with the variables of the last run if it is large."""
    variables = workspace.path / "env" / "extravars"
    if variables.is_file() and variables.stat().st_size > KEPT_VARIABLES_BYTES:
        write_private(variables, "{}")
