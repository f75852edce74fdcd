"""A runner whose runs cannot take all the memory: each process has a limit, and so has the container.

It passes every run on to another runner. A run that fails because of a limit says so; see ``run_memory`` and
``memory_guard``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Self

from rolecall.kube.quantities import format_bytes
from rolecall.runner.runs.events import RunSummary
from rolecall.runner.runs.memory_guard import Killed, MemoryGuard
from rolecall.runner.runs.run_memory import (
    explain_kernel_kill,
    explain_kill,
    explain_memory_limit,
    resolve_memory_limit,
)
from rolecall.runner.runs.runner import OnEvent, Runner, RunSpec
from rolecall.system.container_memory import ContainerMemory, container_memory
from rolecall.system.logs import get_logger

logger = get_logger("memory")


@dataclass(frozen=True, slots=True)
class GuardedRunner:
    """Runs everything with ``runner``, each process with at most ``limit_bytes`` of memory (0: no limit)."""

    runner: Runner
    limit_bytes: int
    guard: MemoryGuard | None

    @classmethod
    @contextmanager
    def of(cls, runner: Runner, asked_bytes: int | None, memory: ContainerMemory | None = None) -> Iterator[Self]:
        """Yield a runner that guards the memory of the container; ``asked_bytes`` is the limit for each process."""
        found = memory or container_memory()
        limit_bytes = resolve_memory_limit(asked_bytes, found.limit_bytes if found else None)
        each = format_bytes(limit_bytes) if limit_bytes else "no limit"
        if found is None:
            logger.info("The container has no memory limit, so that its memory is not guarded", process_of_a_run=each)
            yield cls(runner, limit_bytes, None)
            return
        limit = format_bytes(found.limit_bytes)
        logger.info("Guarding the memory of the container", limit=limit, process_of_a_run=each)
        with MemoryGuard(found) as guard:
            yield cls(runner, limit_bytes, guard)

    async def run(self, spec: RunSpec, on_event: OnEvent) -> RunSummary:
        """Run the spec; see ``runner.Runner``."""
        guard, limited = self.guard, replace(spec, memory_limit_bytes=self.limit_bytes)
        if guard is None:
            return self._explained(await self.runner.run(limited, on_event))
        kills = guard.memory.kernel_kills()
        guard.add(spec.ident)
        killed: Killed | None = None
        try:
            summary = await self.runner.run(limited, on_event)
        finally:
            killed = guard.remove(spec.ident)
        full_bytes = guard.memory.limit_bytes if guard.memory.kernel_kills() > kills else 0
        return self._explained(summary, killed, full_bytes)

    def _explained(self, summary: RunSummary, killed: Killed | None = None, full_bytes: int = 0) -> RunSummary:
        """Return the summary with the reason why it failed; ``full_bytes`` if the kernel killed in a full container."""
        if summary.is_successful:
            return summary
        if killed:
            return explain_kill(summary, killed)
        return (
            explain_kernel_kill(summary, full_bytes) if full_bytes else explain_memory_limit(summary, self.limit_bytes)
        )
