"""The runner that starts a new process for each play.

The process (`play`) drives ansible-runner and ends everything below itself; this side reads its events, limits its
time, asks it to end, and kills it when it does not. If that process is itself killed, what it leaves is found by the
mark in its environment.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Protocol

from rolecall.kube.durations import format_duration
from rolecall.logs import get_logger
from rolecall.process_tree import RUN_VARIABLE, RUNNER_MODULE, become_subreaper, kill_abandoned_runs, kill_run_processes
from rolecall.runs.events import RunEvent, RunSummary
from rolecall.runs.run_summary import Ending, RunSummaryBuilder
from rolecall.runs.runner import OnEvent, RoleContent, RunSpec
from rolecall.runs.runner_process import RunnerInput

logger = get_logger("cold")

LINE_LIMIT_BYTES = 64 * 1024 * 1024
_ERROR_LIMIT_BYTES = 2048
_REVOKE_LIMIT_SECONDS = 5.0
_KILL_AFTER_SECONDS = 20.0
"""How long after the grace the play's process may need to kill what is left, before it is killed itself."""


class RunProcess(Protocol):
    """The process of one play, as far as a runner needs it; `asyncio.subprocess.Process` is one."""

    @property
    def stdout(self) -> asyncio.StreamReader | None:
        """What it says: lines of JSON."""

    @property
    def stderr(self) -> asyncio.StreamReader | None:
        """What it prints besides."""

    @property
    def returncode(self) -> int | None:
        """Its exit code, below zero for a signal; None as long as it lives."""

    async def wait(self) -> int:
        """Return the exit code once the process has ended."""

    def terminate(self) -> None:
        """Ask it to end. Raises ProcessLookupError when it has ended."""

    def kill(self) -> None:
        """End it. Raises ProcessLookupError when it has ended."""


class SubprocessRunner:
    """Runs each job in a process of its own.

    Making one makes this process the one to which orphans climb, and ends what runs of a killed operator have left.
    """

    def __init__(self) -> None:
        become_subreaper()
        if stranded := kill_abandoned_runs():
            logger.warning("Ended runs that a killed operator had left", jobs=stranded)

    async def run(self, job: RunSpec, on_event: OnEvent) -> RunSummary:
        """Run the job; see `runner.Runner`."""
        try:
            process = await self.start(job)
        except OSError as error:
            return RunSummaryBuilder().finish(Ending("error", reason=f"cannot start a process for the play: {error}"))
        conversation = _RunOutput(process, on_event, unreachable_ok=job.unreachable_ok)
        reading = asyncio.create_task(conversation.read(), name=f"read {job.ident}")
        try:
            ending = await _wait(job, conversation, reading)
        except BaseException:
            await _without_interruption(_end(job, conversation, reading))
            raise
        finally:
            job.workspace.finish(job.ident)
        return conversation.folder.finish(ending)

    async def start(self, job: RunSpec) -> RunProcess:
        """Start a process that runs `play` and has been told about the job. Raises OSError."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", RUNNER_MODULE),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_LIMIT_BYTES,
            env=inherited_environment() | {RUN_VARIABLE: job.ident},
            start_new_session=True,
        )
        assert process.stdin  # noqa: S101 - just asked for
        process.stdin.write(describe(job).to_line())
        return process


class _RunOutput:
    """What one play's process says."""

    def __init__(self, process: RunProcess, on_event: OnEvent, *, unreachable_ok: bool = False) -> None:
        self.process = process
        self.folder = RunSummaryBuilder(unreachable_ok=unreachable_ok)
        self.ending: dict[str, Any] = {}
        self._on_event = on_event
        self._started = time.monotonic()
        self._errors = b""

    async def drain(self) -> None:
        """Throw away what is still said, so that the process does not wait for a reader."""
        stdout = self.process.stdout
        while stdout and await stdout.read(_ERROR_LIMIT_BYTES):
            pass

    @property
    def duration_seconds(self) -> float:
        return time.monotonic() - self._started

    async def read(self) -> None:
        """Read until the process has ended."""
        await asyncio.gather(self._read_events(), self._read_errors())
        await self.process.wait()

    def own_ending(self) -> Ending:
        """How the play ended by itself; a process that did not tell has crashed or was killed."""
        duration = self.duration_seconds
        if not self.ending:
            code = self.process.returncode
            printed = self._errors.decode(errors="replace").strip()
            reason = f"the process of the play ended unexpectedly with exit code {code}"
            return Ending("error", None, duration, f"{reason}: {printed}" if printed else reason)
        return Ending(self.ending["status"], self.ending.get("rc"), duration, self.ending.get("reason", ""))

    async def _read_events(self) -> None:
        assert self.process.stdout  # noqa: S101 - the process was started with a pipe
        async for line in self.process.stdout:
            if line.startswith(b'{"ending"'):
                last = json.loads(line)
                self.ending = last["ending"]
                if last["survivors"]:
                    logger.error("Processes of the run cannot be ended", pids=last["survivors"])
            elif line.startswith(b'{"notes"'):
                for note in json.loads(line)["notes"]:
                    logger.debug("Part of a run was not warm", reason=note)
            else:
                event = RunEvent.from_json(line)
                self.folder.add(event)
                self._on_event(event)

    async def _read_errors(self) -> None:
        assert self.process.stderr  # noqa: S101 - the process was started with a pipe
        while chunk := await self.process.stderr.read(_ERROR_LIMIT_BYTES):
            self._errors = (self._errors + chunk)[-_ERROR_LIMIT_BYTES:]


def describe(job: RunSpec) -> RunnerInput:
    """Return what the play's process is told about a job."""
    is_role = isinstance(job.content, RoleContent)
    return RunnerInput(
        ident=job.ident,
        workspace=str(job.workspace.path),
        role=str(job.content.path) if is_role else "",
        playbook="" if is_role else str(job.content.path),
        verbosity=job.verbosity,
        grace_seconds=job.grace_seconds,
        environment=dict(job.environment),
        secrets=dict(job.secret_environment),
    )


def inherited_environment() -> dict[str, str]:
    """Return this process's environment without its own way to the cluster: a run has one of its own."""
    return {name: value for name, value in os.environ.items() if not name.startswith("K8S_AUTH_")}


async def _wait(job: RunSpec, conversation: _RunOutput, reading: asyncio.Task[None]) -> Ending:
    try:
        async with asyncio.timeout(job.timeout_seconds):
            await asyncio.shield(reading)
    except TimeoutError:
        reason = f"the run took longer than its timeout of {format_duration(job.timeout_seconds or 0)} and was ended"
        await _without_interruption(_end(job, conversation, reading))
        return Ending("timeout", None, conversation.duration_seconds, reason)
    if not conversation.ending:
        await _revoke(job)
        await asyncio.to_thread(kill_run_processes, job.ident)
    return conversation.own_ending()


async def _end(job: RunSpec, conversation: _RunOutput, reading: asyncio.Task[None]) -> None:
    """Ask the play's process to end, kill it if it does not, and see to it that nothing of the run is left."""
    await _revoke(job)
    process = conversation.process
    draining = asyncio.create_task(conversation.drain()) if reading.done() else reading
    with suppress(ProcessLookupError):
        process.terminate()
    await asyncio.wait({asyncio.create_task(process.wait())}, timeout=job.grace_seconds + _KILL_AFTER_SECONDS)
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    await asyncio.to_thread(kill_run_processes, job.ident)
    await asyncio.wait({reading, draining})


async def _revoke(job: RunSpec) -> None:
    """Take the run's access away; should that fail, its processes have to end all the same."""
    try:
        async with asyncio.timeout(_REVOKE_LIMIT_SECONDS):
            await job.revoke()
    except Exception:
        logger.exception("The access of a run could not be revoked")


async def _without_interruption(work: Coroutine[Any, Any, None]) -> None:
    """Do the work to its end, whoever cancels in the meantime; then let the cancellation through."""
    task = asyncio.create_task(work)
    interruption: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            interruption = error
    task.result()
    if interruption:
        raise interruption
