"""A runner whose runs cannot take all the memory: each process has a limit, and so has the container.

It passes every run on to another runner. A run that fails because of a limit says so; see ``run_memory`` and
``memory_guard``.

Keeps the container from running out of memory: when it is nearly full, the largest run is killed.

The kernel would kill a process of its choice, or the whole container with every run and the operator. A thread of its
own looks at the use of the container's memory, which costs two small files. Only when there is little left are the runs
measured, by the memory that each does not share with others. A run that is killed is told what it had.

How much memory a run may take and has taken, and what a run that took too much is told.

Ansible often does not say that memory ran out: it shows the text of an exception, and a ``MemoryError`` has none. So a
failure without a reason is judged by the size of the largest process of the run. The functions explain runs that have
failed: one that succeeded before it could be killed has succeeded.
"""

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Self

import psutil

from rolecall.kube.quantities import format_bytes
from rolecall.runner.runs.events import RunSummary, TaskFailure, cut
from rolecall.runner.runs.process import OnEvent, Runner, RunSpec
from rolecall.runner.runs.run_processes import processes_by_run, processes_of_run
from rolecall.system.control_groups import ContainerMemory, container_memory
from rolecall.system.logs import get_logger
from rolecall.system.processes import KILL_LIMIT_SECONDS, kill_all

logger = get_logger("memory")

FULL_SHARE = 0.85
"""The part of the container's memory in use at which a run is killed."""

_HALF_FULL_SHARE = 0.5
_PERIOD_SECONDS, _SHORT_PERIOD_SECONDS = 0.5, 0.05
_RUNS_MATTER_SHARE = 0.1
"""If all runs together have less than this, killing one helps nobody: the memory is held by something else."""


@dataclass(frozen=True, slots=True)
class Killed:
    """A run that was killed: what it had, and what the container had in use, of how much."""

    run_bytes: int
    used_bytes: int
    limit_bytes: int

    def __str__(self) -> str:
        """Return what happened and what to do, as the message of a failure."""
        run, used, limit = map(format_bytes, (self.run_bytes, self.used_bytes, self.limit_bytes))
        return (
            f"out of memory: the container had {used} of its {limit} in use, and this run had {run}, more than any "
            "other, so it was killed. Let the role handle less at once, lower --max-concurrent-runs, or raise the "
            "memory limit of the container"
        )


class MemoryGuard:
    """Guards the memory of the container while it is entered; ``add`` and ``remove`` say which runs there are."""

    def __init__(self, memory: ContainerMemory) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._runs: dict[str, Killed | None] = {}
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory-guard", daemon=True)
        self._has_warned = False

    def __enter__(self) -> Self:
        """Start looking."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop looking."""
        self._is_stopping.set()
        self._thread.join()

    @property
    def memory(self) -> ContainerMemory:
        """The memory that is guarded."""
        return self._memory

    def add(self, ident: str) -> None:
        """Say that a run begins, which may be killed from now on."""
        with self._lock:
            self._runs[ident] = None

    def remove(self, ident: str) -> Killed | None:
        """Say that a run has ended; return why it was killed, None if it was not."""
        with self._lock:
            return self._runs.pop(ident, None)

    def check(self) -> float:
        """Look once, and kill the largest run if there is little memory left. Return the seconds to the next look."""
        share = self._memory.used_bytes() / self._memory.limit_bytes
        if share >= FULL_SHARE:
            self._make_room()
        elif share < _HALF_FULL_SHARE:
            self._has_warned = False
        return _PERIOD_SECONDS if share < _HALF_FULL_SHARE else _SHORT_PERIOD_SECONDS

    def _watch(self) -> None:
        wait_seconds = _PERIOD_SECONDS
        while not self._is_stopping.wait(wait_seconds):
            try:
                wait_seconds = self.check()
            except OSError:  # out of descriptors, for instance: the next look may work
                logger.exception("Could not look at the memory of the runs")

    def _make_room(self) -> None:
        with self._lock:
            idents = set(self._runs)
        found = {ident: _size(processes) for ident, processes in processes_by_run().items() if ident in idents}
        used, limit = self._memory.used_bytes(), self._memory.limit_bytes
        if sum(found.values()) < limit * _RUNS_MATTER_SHARE:
            self._warn(used, limit, sum(found.values()))
            return
        largest = max(found, key=lambda ident: found[ident])
        killed = Killed(found[largest], used, limit)
        with self._lock:
            if largest not in self._runs:
                return
            self._runs[largest] = killed
        logger.warning("Killing the largest run", job=largest, reason=str(killed))
        kill_all(lambda: processes_of_run(largest), KILL_LIMIT_SECONDS)

    def _warn(self, used_bytes: int, limit_bytes: int, runs_bytes: int) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "The memory of the container is nearly full, and not because of runs",
                used=format_bytes(used_bytes),
                limit=format_bytes(limit_bytes),
                runs=format_bytes(runs_bytes),
            )


def _size(processes: list[psutil.Process]) -> int:
    """Return the memory of these processes; a page that several processes share counts by its shares."""
    total = 0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            try:
                total += process.memory_full_info().pss
            except psutil.AccessDenied:
                total += process.memory_info().rss
    return total


SMALLEST_DEFAULT_BYTES = 256 << 20
"""A run that is forked from a prepared process has about 60 MiB from the start; kubectl and helm need some too."""

_DEFAULT_SHARE = 0.5
_SUSPICIOUS_SHARE = 0.4
"""A process fails long before it reaches its limit: what grows asks for as much again as it has."""

_SAID = re.compile(r"MemoryError|[Oo]ut of memory|[Cc]annot allocate")
_SAYS_NOTHING = re.compile(
    r"(?:Error rendering template\.|[Ff]ailed\.|probably a bug:?|without a message|ended early|exit code -?\d+.*)\s*\Z"
)


def resolve_memory_limit(asked_bytes: int | None, container_bytes: int | None) -> int:
    """Return how much memory each process of a run may have, 0 for no limit.

    Unless it was asked for, that is half of the container's memory; without a limit of the container there is none.
    """
    if asked_bytes is not None:
        return asked_bytes
    if container_bytes is None:
        return 0
    return max(SMALLEST_DEFAULT_BYTES, int(container_bytes * _DEFAULT_SHARE))


def explain_memory_limit(summary: RunSummary, limit_bytes: int) -> RunSummary:
    """Return the summary with "out of memory" in front of a failure for which a process reached its limit."""
    if limit_bytes <= 0:
        return summary
    limit, peak = format_bytes(limit_bytes), format_bytes(summary.peak_memory_bytes)
    advice = "let the role handle less at once, or raise --run-memory-limit"
    said = [failure for failure in summary.failures if _SAID.search(failure.message)]
    if said:
        text = f"out of memory: a process of the run needed more than {limit} ({advice})"
    elif summary.peak_memory_bytes >= limit_bytes * _SUSPICIOUS_SHARE and _SAYS_NOTHING.search(summary.message):
        text = f"probably out of memory: a process of the run had {peak} and may have {limit} ({advice})"
    else:
        return summary
    return _with_prefix(summary, text, said or summary.failures[-1:])


def explain_kernel_kill(summary: RunSummary, container_bytes: int) -> RunSummary:
    """Return the summary of a run in whose time the kernel killed a process of the container for want of memory."""
    text = (
        f"probably out of memory: the {format_bytes(container_bytes)} of the container were full, and the kernel "
        "killed a process (lower --max-concurrent-runs, or raise the memory limit of the container)"
    )
    return _with_prefix(summary, text, summary.failures[-1:])


def explain_kill(summary: RunSummary, why: object) -> RunSummary:
    """Return the summary of a run that was killed: what it reports itself is a consequence, except the task."""
    task = summary.failures[-1].task if summary.failures else ""
    return replace(summary, failures=(TaskFailure(task, "", cut(str(why))),))


def _with_prefix(summary: RunSummary, text: str, changed: Sequence[TaskFailure]) -> RunSummary:
    failures = (
        replace(each, message=cut(f"{text}: {each.message}")) if each in changed else each for each in summary.failures
    )
    return replace(summary, failures=tuple(failures))


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
