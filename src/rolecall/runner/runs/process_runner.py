"""The operator's runner: follows the process of a run from its start to its end.

A ``Starter`` gives it the process, a new interpreter or a fork. This module reads the events and limits the time;
``termination`` ends the process. The process (``runner_process``) drives ansible-runner and ends everything below
itself. If it is killed, the processes that it leaves are found by the run's mark in their environment.
"""

import asyncio
import json
import time
from typing import Any

from rolecall.kube.durations import format_duration
from rolecall.runner.runs.events import RunEvent, RunSummary
from rolecall.runner.runs.run_processes import kill_abandoned_runs
from rolecall.runner.runs.run_summary import Ending, RunSummaryBuilder
from rolecall.runner.runs.runner import OnEvent, RunProcess, RunSpec, Starter
from rolecall.runner.runs.termination import kill_rest, revoke, stop_process
from rolecall.system.blocking_work import in_thread, uninterrupted
from rolecall.system.logs import get_logger
from rolecall.system.process_tree import become_subreaper

logger = get_logger("runner")

_STDERR_LIMIT_BYTES = 2048
_LAST_OUTPUT_SECONDS = 5.0
_READ_SECONDS = 0.0005
"""For how long the events of one run are read before everything else has its turn: many runs may be read at once."""


class ProcessRunner:
    """Runs each spec in a process that ``starter`` starts.

    The constructor makes this process a subreaper, so that orphans of a run become its children, and kills runs that an
    operator left behind when it was killed.
    """

    def __init__(self, starter: Starter) -> None:
        self._starter = starter
        become_subreaper()
        if abandoned := kill_abandoned_runs():
            logger.warning("Killed the runs of an operator that was killed", jobs=abandoned)

    async def run(self, spec: RunSpec, on_event: OnEvent) -> RunSummary:
        """Run the spec; see ``runner.Runner``."""
        deadline = None if spec.timeout_seconds is None else asyncio.get_running_loop().time() + spec.timeout_seconds
        try:
            async with asyncio.timeout_at(deadline):
                process = await self._starter.start(spec)
        except TimeoutError:
            return RunSummaryBuilder().finish(_timeout(spec, spec.timeout_seconds or 0))
        except OSError as error:
            return RunSummaryBuilder().finish(Ending("error", reason=f"cannot start a process for the run: {error}"))
        output = _RunOutput(process, on_event, unreachable_ok=spec.unreachable_ok)
        reading = asyncio.create_task(output.read(), name=f"read {spec.ident}")
        try:
            ending = await _wait(spec, output, reading, deadline)
        except BaseException:
            await uninterrupted(_stop(spec, output, reading))
            raise
        finally:
            await in_thread(lambda: spec.workspace.finish(spec.ident))
        return output.summary.finish(ending)


class _RunOutput:
    """Reads what the process of one run writes."""

    def __init__(self, process: RunProcess, on_event: OnEvent, *, unreachable_ok: bool = False) -> None:
        self.process = process
        self.summary = RunSummaryBuilder(unreachable_ok=unreachable_ok)
        self.reported_ending: dict[str, Any] = {}
        self._on_event = on_event
        self._started = time.monotonic()
        self._stderr = b""

    async def drain(self) -> None:
        """Discard the rest of the output, so that the process does not block on a full pipe."""
        stdout = self.process.stdout
        while stdout and await stdout.read(_STDERR_LIMIT_BYTES):
            pass

    @property
    def duration_seconds(self) -> float:
        return time.monotonic() - self._started

    async def read(self) -> None:
        """Read until the process has ended."""
        await asyncio.gather(self._read_stdout(), self._read_stderr())
        await self.process.wait()

    def ending(self) -> Ending:
        """Return how the run ended; a process that did not report it has crashed or was killed."""
        duration = self.duration_seconds
        if not self.reported_ending:
            stderr = self._stderr.decode(errors="replace").strip()
            reason = f"the process of the run ended unexpectedly with exit code {self.process.returncode}"
            return Ending("error", None, duration, f"{reason}: {stderr}" if stderr else reason)
        reported = self.reported_ending
        peak = reported.get("peak_memory_bytes", 0)
        return Ending(reported["status"], reported.get("rc"), duration, reported.get("reason", ""), peak)

    async def _read_stdout(self) -> None:
        assert self.process.stdout  # noqa: S101 - the process was started with a pipe
        pause_at = 0.0
        async for line in self.process.stdout:
            self._take(line)
            # Reading does not pause while lines are buffered, and other runs, the proxy and the Lease wait.
            if time.monotonic() >= pause_at:
                await asyncio.sleep(0)
                pause_at = time.monotonic() + _READ_SECONDS

    def _take(self, line: bytes) -> None:
        if line.startswith(b'{"ending"'):
            last = json.loads(line)
            self.reported_ending = last["ending"]
            if last["survivors"]:
                logger.error("Processes of the run could not be killed", pids=last["survivors"])
        elif line.startswith(b'{"notes"'):
            for note in json.loads(line)["notes"]:
                logger.debug("Part of a run was not warm", reason=note)
        else:
            event = RunEvent.from_json(line)
            self.summary.add(event)
            self._on_event(event)

    async def _read_stderr(self) -> None:
        assert self.process.stderr  # noqa: S101 - the process was started with a pipe
        while chunk := await self.process.stderr.read(_STDERR_LIMIT_BYTES):
            self._stderr = (self._stderr + chunk)[-_STDERR_LIMIT_BYTES:]


async def _wait(spec: RunSpec, output: _RunOutput, reading: asyncio.Task[None], deadline: float | None) -> Ending:
    try:
        async with asyncio.timeout_at(deadline):
            await asyncio.shield(reading)
    except TimeoutError:
        await uninterrupted(_stop(spec, output, reading))
        return _timeout(spec, output.duration_seconds)
    if not output.reported_ending:
        await revoke(spec)
        await kill_rest(spec)
    return output.ending()


def _timeout(spec: RunSpec, duration_seconds: float) -> Ending:
    limit = format_duration(spec.timeout_seconds or 0)
    return Ending("timeout", None, duration_seconds, f"the run took longer than its timeout of {limit} and was ended")


async def _stop(spec: RunSpec, output: _RunOutput, reading: asyncio.Task[None]) -> None:
    """End the run; its output is read to the end, so that nothing blocks on a full pipe."""
    draining = asyncio.create_task(output.drain()) if reading.done() else reading
    await stop_process(spec, output.process)
    # A process that could not be killed may keep the pipes open.
    _, unfinished = await asyncio.wait({reading, draining}, timeout=_LAST_OUTPUT_SECONDS)
    for task in unfinished:
        task.cancel()
