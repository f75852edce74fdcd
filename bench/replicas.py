"""How much more several replicas do that share the work: roles that wait for a second, and one run at a time in each.

The roles take next to no CPU time, so the replicas do not meet on the CPUs of one machine, and what is
lost is lost by sharing. Every object is due again a second after its run, so each replica always has something to do,
however the objects are spread over the shards. Then one more replica joins, and each shard that moves to it is timed.
"""

import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import widgets
from bench.operator_process import Operator, logged_at, running
from bench.report import Row
from bench.stage import Stage, progress, until

MOST, QUICK_MOST = 5, 3
OBJECTS, SHARDS = 200, 60
WINDOW_SECONDS = 30.0
LOST_GOAL_PERCENT = 10.0
_BEFORE_JOINING = 2
_SHARED_SECONDS, _SETTLING_SECONDS = 120.0, 3.0
_TASKS = "- ansible.builtin.wait_for: {timeout: 1}\n"
_FLAGS = ("--zap-encoder=json", "--max-concurrent-runs=1", "--reconcile-period=1s", "--leader-elect")
_TIMES = ("--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=3s")


async def measure(stage: Stage, *, is_quick: bool) -> list[Row]:
    """Measure one replica, then two, and so on."""
    directory = stage.subdirectory("replicas")
    widgets.write_project(directory)
    (directory / "roles" / "widget" / "tasks" / "main.yml").write_text(_TASKS)
    work = _Work(stage, directory, await stage.namespace("bench-replicas"))
    await widgets.create(stage.client, widgets.keys(work.namespace, OBJECTS))
    rates = [await _rate(work, count) for count in range(1, (QUICK_MOST if is_quick else MOST) + 1)]
    shares = [_row(count, rate, rates[0]) for count, rate in enumerate(rates, 1) if count > 1]
    return [*shares, *await _joining(work)]


@dataclass(frozen=True, slots=True)
class _Work:
    """The objects, and the project whose operators share them."""

    stage: Stage
    directory: Path
    namespace: str

    @asynccontextmanager
    async def replica(self, lease: str) -> AsyncIterator[Operator]:
        """Run one more of the replicas that share by this Lease."""
        lock = (f"--leader-election-id={lease}", f"--leader-election-namespace={self.namespace}", f"--shards={SHARDS}")
        command = (sys.executable, "-m", "rolecall", "run", *_FLAGS, *_TIMES, *lock)
        environment = {"KUBECONFIG": str(self.stage.kubeconfig), "WATCH_NAMESPACE": self.namespace}
        async with running(command, self.directory, environment) as operator:
            yield operator


def _row(count: int, rate: float, of_one: float) -> Row:
    lost = 100 * (1 - rate / (count * of_one))
    remark = f"{rate:.2f} runs a second, one does {of_one:.2f}"
    return Row(f"{count} replicas: loss compared with {count} times one replica", lost, "%", LOST_GOAL_PERCENT, remark)


async def _joining(work: _Work) -> list[Row]:
    """Time each shard from the line that it is handed over to the line that the new replica has it."""
    async with AsyncExitStack() as stack:
        former = [await stack.enter_async_context(work.replica("joined")) for _ in range(_BEFORE_JOINING)]
        await _shared(former)
        newcomer = await stack.enter_async_context(work.replica("joined"))
        await _shared([*former, newcomer])
        lines = [line for each in former for line in each.messages("Handing over a shard")]
        given = {line["shard"]: logged_at(line) for line in sorted(lines, key=logged_at)}  # the last time of each
        taken = [(logged_at(line), set(line["held_shards"])) for line in newcomer.messages("Shards of this replica")]
    seconds = [min(at for at, held in taken if shard in held) - given[shard] for shard in taken[-1][1]]
    progress(f"{len(seconds)} shards were handed over to a third replica")
    remark = f"{len(seconds)} shards, runs of 1 s, one at a time"
    return [
        Row("handoff of a shard to a third replica, median", statistics.median(seconds), "s", remark=remark),
        Row("handoff of a shard to a third replica, worst", max(seconds), "s", remark=remark),
    ]


async def _shared(replicas: Sequence[Operator]) -> None:
    async def is_shared() -> bool:
        return sorted(map(_held, replicas)) == sorted(_shares(len(replicas)))

    await until(is_shared, _SHARED_SECONDS, f"{len(replicas)} replicas share the work")


async def _rate(work: _Work, count: int) -> float:
    """Return the runs a second of so many replicas together."""
    async with AsyncExitStack() as stack:
        replicas = [await stack.enter_async_context(work.replica(f"of-{count}")) for _ in range(count)]
        await _shared(replicas)
        began = time.time() + _SETTLING_SECONDS

        async def is_over() -> bool:
            return time.time() > began + WINDOW_SECONDS

        await until(is_over, _SETTLING_SECONDS + 2 * WINDOW_SECONDS, "the window is over")
        ended = began + WINDOW_SECONDS
        runs = sum(_runs(replica, began, ended) for replica in replicas)
    progress(f"{count} replicas: {runs} runs in {WINDOW_SECONDS:.0f} s")
    return runs / WINDOW_SECONDS


def _shares(count: int) -> Sequence[int]:
    share, rest = divmod(SHARDS, count)
    return [share + (number < rest) for number in range(count)]


def _held(replica: Operator) -> int:
    """Return how many shards a replica holds, by its log."""
    lines = replica.messages("Shards of this replica")
    return len(lines[-1]["held_shards"]) if lines else 0


def _runs(replica: Operator, began: float, ended: float) -> int:
    return sum(began <= logged_at(line) < ended for line in replica.messages("Reconcile succeeded"))
