"""Keeps the container from running out of memory: when it is nearly full, the largest run is killed.

The kernel would kill a process of its choice, or the whole container with every run and the operator. A thread of its
own looks at the use of the container's memory, which costs two small files. Only when there is little left are the runs
measured, by the memory that each does not share with others. A run that is killed is told what it had.
"""

import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

import psutil

from rolecall.kube.quantities import format_bytes
from rolecall.runner.runs.run_processes import processes_by_run, processes_of_run
from rolecall.system.container_memory import ContainerMemory
from rolecall.system.logs import get_logger
from rolecall.system.process_tree import KILL_LIMIT_SECONDS, kill_all

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
