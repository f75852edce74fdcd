"""A runner that limits what its runs leave on disk: each run, all runs together, and the variables that stay behind.

It passes every run on to another runner. The disk is looked at in a thread of its own, one run after the other, before
the next run of the object can begin.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from rolecall.kube.references import GVK
from rolecall.runner.runs.artifact_budget import ArtifactBudget
from rolecall.runner.runs.events import RunSummary
from rolecall.runner.runs.runner import OnEvent, Runner, RunSpec
from rolecall.runner.runs.workspace import Workspace
from rolecall.system.logs import get_logger
from rolecall.system.private_files import write_private

logger = get_logger("artifacts")

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
