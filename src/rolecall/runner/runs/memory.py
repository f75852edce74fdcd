"""Keeps the container from running out of memory: each process of a run has a limit, and so have all runs together.

When the container is nearly full, the kernel would kill a process of its choice, or the whole container with the
operator. ``MemoryGuard`` kills the largest run before that. Its thread reads the container's memory use, which costs
two small files; only when little is left does it measure the runs, by the memory that they don't share with others.
``outcome.explain_memory`` reports the reason.
"""

import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

import psutil

from rolecall.kube.quantities import format_bytes
from rolecall.runner.runs.outcome import MemoryKill
from rolecall.runner.runs.process_marks import kill_run_processes, processes_by_run
from rolecall.system.control_groups import ContainerMemory, container_memory
from rolecall.system.logs import get_logger

logger = get_logger("memory")

FULL_SHARE = 0.85
"""The part of the container's memory in use at which a run is killed."""

_HALF_FULL_SHARE = 0.5
_PERIOD_SECONDS, _SHORT_PERIOD_SECONDS = 0.5, 0.05
_RUNS_MATTER_SHARE = 0.1
"""If all runs together have less than this, killing one doesn't help: something else has the memory."""

_MIN_DEFAULT_BYTES = 256 << 20
"""A run that is forked from a prepared process starts with about 60 MiB; kubectl and helm need some too."""

_DEFAULT_SHARE = 0.5


def resolve_memory_limit(requested_bytes: int | None, container_bytes: int | None) -> int:
    """Return how much memory each process of a run may have, 0 for no limit.

    The default is half of the container's memory, or no limit if the container has none.
    """
    if requested_bytes is not None:
        return requested_bytes
    return max(_MIN_DEFAULT_BYTES, int(container_bytes * _DEFAULT_SHARE)) if container_bytes is not None else 0


@dataclass(slots=True)
class _WatchedRun:
    kernel_kills_before: int
    kill: MemoryKill | None = None


class MemoryGuard:
    """Guards the memory of the container while it is entered; ``add`` and ``remove`` announce runs.

    ``requested_bytes`` is the limit for each process of a run, see ``resolve_memory_limit``.
    """

    def __init__(self, requested_bytes: int | None, container: ContainerMemory | None = None) -> None:
        self._container = container or container_memory()
        available = self._container.limit_bytes if self._container else None
        self.limit_bytes = resolve_memory_limit(requested_bytes, available)
        self._lock = threading.Lock()
        self._runs: dict[str, _WatchedRun] = {}
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory-guard", daemon=True)
        self._has_warned = False

    def __enter__(self) -> Self:
        """Start watching, if the container has a limit."""
        each = format_bytes(self.limit_bytes) if self.limit_bytes else "no limit"
        if self._container is None:
            logger.info("Not guarding the memory of the container: no limit", run_memory_limit=each)
        else:
            limit = format_bytes(self._container.limit_bytes)
            logger.info("Guarding the memory of the container", limit=limit, run_memory_limit=each)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop watching."""
        self._is_stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def add(self, ident: str) -> None:
        """Add a run, which may be killed from now on."""
        run = _WatchedRun(self._container.kernel_kills() if self._container else 0)
        with self._lock:
            self._runs[ident] = run

    def remove(self, ident: str) -> MemoryKill | None:
        """Remove a run that has ended; return the kill that may explain its failure, if there was one."""
        with self._lock:
            run = self._runs.pop(ident)
        container = self._container
        if run.kill is None and container and container.kernel_kills() > run.kernel_kills_before:
            full = f"the {format_bytes(container.limit_bytes)} of the container were full"
            advice = "lower --max-concurrent-runs, or raise the memory limit of the container"
            return MemoryKill(
                f"probably out of memory: {full}, and the kernel killed a process ({advice})", by_kernel=True
            )
        return run.kill

    def _watch(self) -> None:
        wait_seconds = _PERIOD_SECONDS
        while not self._is_stopping.wait(wait_seconds):
            try:
                wait_seconds = self.check()
            except OSError:  # for example, too many open files; the next check may succeed
                logger.exception("Failed to read run memory")

    def check(self) -> float:
        """Kill the largest run if little memory is left. Return the seconds to the next check."""
        assert self._container  # noqa: S101 - otherwise the thread doesn't run
        share = self._container.used_bytes() / self._container.limit_bytes
        if share >= FULL_SHARE:
            self._make_room(self._container)
        elif share < _HALF_FULL_SHARE:
            self._has_warned = False
        return _PERIOD_SECONDS if share < _HALF_FULL_SHARE else _SHORT_PERIOD_SECONDS

    def _make_room(self, container: ContainerMemory) -> None:
        with self._lock:
            idents = set(self._runs)
        sizes = {ident: _size(processes) for ident, processes in processes_by_run().items() if ident in idents}
        used, limit = format_bytes(container.used_bytes()), format_bytes(container.limit_bytes)
        total_bytes = sum(sizes.values())
        if total_bytes < container.limit_bytes * _RUNS_MATTER_SHARE:
            if not self._has_warned:
                self._has_warned = True
                message = "The memory of the container is nearly full, not because of runs"
                logger.warning(message, used=used, limit=limit, runs=format_bytes(total_bytes))
            return
        largest = max(sizes, key=lambda ident: sizes[ident])
        kill = MemoryKill(
            f"out of memory: the container had {used} of its {limit} in use, and this run had "
            f"{format_bytes(sizes[largest])}, more than any other, so it was killed. Let the role process less at a "
            "time, lower --max-concurrent-runs, or raise the memory limit of the container"
        )
        with self._lock:
            if largest not in self._runs:
                return
            self._runs[largest].kill = kill
        logger.warning("Killing the largest run", job=largest, reason=kill.reason)
        kill_run_processes(largest, starter_reaps=True)


def _size(processes: list[psutil.Process]) -> int:
    """Return the memory of these processes; a page that several processes share is split among them."""
    total = 0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            try:
                total += process.memory_full_info().pss
            except psutil.AccessDenied:
                total += process.memory_info().rss
    return total
