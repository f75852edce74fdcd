"""How long runs block the operator's event loop, which delays the proxy and the renewal of the Lease.

Twenty concurrent runs are in this process, with the real launcher, workspaces and secrets. Their processes only write
events, as fast as they are read, and leave the files of these events, which the next run of the object removes. A task
that sleeps for a few milliseconds measures by how much it wakes up too late, and how much CPU time the loop's
thread has taken meanwhile: on a machine that does other work too, only the latter says something about rolecall.
"""

import asyncio
import logging
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import structlog
from bench.report import Row
from bench.stage import PROJECT, Stage, progress
from bench.widgets import WIDGET

from rolecall.kube.references import RawObject
from rolecall.runner.config.content import RoleContent
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.watches import Watch
from rolecall.runner.proxy.server import Proxy
from rolecall.runner.reconcile.own_writes import OwnWrites
from rolecall.runner.runs.api_access import ApiAccess
from rolecall.runner.runs.launcher import Launcher
from rolecall.runner.runs.process import LINE_LIMIT_BYTES, ProcessRunner, RunProcess, RunSpec

RUNS, EVENTS, ROUNDS = 20, 5_000, 3
GOAL_MILLISECONDS = 100.0
_SLEEP_SECONDS = 0.002


@dataclass(slots=True)
class Delay:
    """The largest delay of the loop, and the largest CPU time between two turns of it, in milliseconds."""

    late: float = 0.0
    worked: float = 0.0

    async def watch(self) -> None:
        """Measure until cancelled."""
        while True:
            due, spent = time.monotonic() + _SLEEP_SECONDS, time.thread_time()
            await asyncio.sleep(_SLEEP_SECONDS)
            self.late = max(self.late, 1000 * (time.monotonic() - due))
            self.worked = max(self.worked, 1000 * (time.thread_time() - spent))


class ChattyStarter:
    """Starts ``bench/chatty_run.py`` as the process of each run."""

    async def start(self, spec: RunSpec) -> RunProcess:
        """Start it; see ``process.Starter``."""
        return await asyncio.create_subprocess_exec(
            *(sys.executable, str(PROJECT / "bench" / "chatty_run.py")),
            *(str(spec.workspace.artifacts(spec.ident)), str(EVENTS)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_LIMIT_BYTES,
        )


async def measure(stage: Stage) -> list[Row]:
    """Let twenty objects have three runs each, all objects concurrently."""
    # The lines are written as by the operator, but not read here.
    with Path("/dev/null").open("w") as nowhere:  # noqa: ASYNC230 - before anything is measured
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
            logger_factory=structlog.WriteLoggerFactory(nowhere),
        )
        try:
            delays = [await _round(stage, number) for number in range(ROUNDS)]
        finally:
            structlog.reset_defaults()
    late, worked = [each.late for each in delays], [each.worked for each in delays]
    what = f"{RUNS} concurrent runs of {EVENTS:,} events"
    return [
        Row(f"{what}: largest delay of the event loop", max(late), "ms", GOAL_MILLISECONDS, _remark(late)),
        Row(f"{what}: its largest CPU time at a stretch", max(worked), "ms", GOAL_MILLISECONDS, _remark(worked)),
    ]


def _remark(values: list[float]) -> str:
    return f"rounds: {', '.join(f'{each:.0f}' for each in values)} ms"


async def _round(stage: Stage, number: int) -> Delay:
    launcher = _launcher(stage)
    delay = Delay()
    watch = asyncio.create_task(delay.watch())
    summaries = await asyncio.gather(
        *(launcher.run(_object(which), f"{number}{which:02d}", finalizing=False) for which in range(RUNS))
    )
    watch.cancel()
    if wrong := [summary.message for summary in summaries if summary.rc != 0]:
        raise RuntimeError(f"a run could not be measured: {wrong[0]}")
    progress(f"{RUNS} runs of {EVENTS} events, round {number + 1} of {ROUNDS}: largest delay {delay.late:.0f} ms")
    return delay


def _launcher(stage: Stage) -> Launcher:
    directory = stage.directory / "loop-delay"
    directory.mkdir(exist_ok=True)
    client = stage.client
    access = ApiAccess(client, Proxy(client), OwnWrites(), lambda _resource, _ownership: None, directory)
    watch = Watch(WIDGET, RoleContent(directory), max_runner_artifacts=1)
    return Launcher(watch, ProcessRunner(ChattyStarter()), access, Settings(log_events="everything"), directory)


def _object(number: int) -> RawObject:
    metadata = {"namespace": "default", "name": f"chatty-{number}", "uid": str(number), "resourceVersion": "1"}
    return {"apiVersion": WIDGET.api_version, "kind": WIDGET.kind, "metadata": metadata, "spec": {}}
