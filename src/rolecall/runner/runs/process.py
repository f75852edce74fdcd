"""The operator's runner: follows the process of a run from its start to its end.

A ``Starter`` gives it the process, a new interpreter or a fork. This module reads the events and limits the time;
``termination`` ends the process. The process (``runner_process``) drives ansible-runner and ends everything below
itself. If it is killed, the processes that it leaves are found by the run's mark in their environment.

The interfaces between a reconcile and the processes of its run.

The reconciler hands a ``RunSpec`` to a ``Runner`` and gets a ``RunSummary``. Every runner promises: no process of the
run is left when ``run`` returns or raises, a run that fails is a summary and never an exception, and a cancelled
``run`` ends its processes first. The operator's runner is ``process_runner.ProcessRunner``; a ``Starter`` gives it the
process of each run.

The cold way to start a run: a new interpreter for each.

It needs no preparation and works with any version of ansible-core.

How a run is ended: its grace period, the revocation of its credentials, and what is killed when.

The order is always the same. The credentials are revoked, so that nothing is written any more. The process of the run
gets SIGTERM, passes it on to everything below itself, and kills what is left after the grace period. If the process
does not end either, it is killed. At last every process that carries the run's mark is killed.
"""

import asyncio
import json
import os
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from rolecall.kube.quantities import format_duration
from rolecall.runner.config.content import Content, RoleContent
from rolecall.runner.config.settings import Settings
from rolecall.runner.runs.api_access import DiscoveryGrant
from rolecall.runner.runs.events import RunEvent, RunSummary
from rolecall.runner.runs.run_processes import (
    OPERATOR_VARIABLE,
    RUN_VARIABLE,
    RUNNER_MODULE,
    kill_abandoned_runs,
    kill_run_processes,
    operator_mark,
)
from rolecall.runner.runs.run_summary import Ending, RunSummaryBuilder
from rolecall.runner.runs.runner_process import RunnerInput
from rolecall.runner.runs.workspace import Workspace
from rolecall.system.blocking_work import run_in_thread, uninterrupted
from rolecall.system.logs import get_logger
from rolecall.system.processes import KILL_LIMIT_SECONDS, become_subreaper

OnEvent = Callable[[RunEvent], None]


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Everything that one run of a role or playbook needs; its workspace must be prepared for ``ident``.

    ``environment`` is added to the run's environment, and so is ``secret_environment``, whose values appear in no file,
    event or message of the run. ``revoke`` invalidates these values: it is awaited before a run is ended.
    ``timeout_seconds`` is the longest time that the run may take (None: no limit), ``grace_seconds`` the time between
    asking its processes to end and killing them. With ``unreachable_ok`` an unreachable host does not fail the run.
    Each of its processes may take ``memory_limit_bytes`` of memory (0: no limit), all
    its artifacts together ``artifact_limit_bytes`` of disk. ``output_in_events`` says
    whether the file of an event repeats what is printed for it in ``stdout``. ``discovery`` tells a warm run what its
    API server serves.
    """

    ident: str
    workspace: Workspace
    content: Content
    verbosity: int = 2
    environment: Mapping[str, str] = field(default_factory=dict)
    secret_environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    revoke: Callable[[], Awaitable[None]] | None = None
    timeout_seconds: float | None = None
    grace_seconds: float = 5.0
    unreachable_ok: bool = False
    memory_limit_bytes: int = 0
    artifact_limit_bytes: int = 0
    output_in_events: bool = True
    discovery: DiscoveryGrant | None = None


class Runner(Protocol):
    """Runs a role or playbook; calls may overlap."""

    async def run(self, spec: RunSpec, on_event: OnEvent) -> RunSummary:
        """Run to the end, pass every event to ``on_event`` on the way, and return the summary.

        Cancelling the call ends the run within its grace period and then raises ``asyncio.CancelledError``.
        """
        ...


class RunProcess(Protocol):
    """The process of one run, ``runner_process``; ``asyncio.subprocess.Process`` is one."""

    @property
    def stdout(self) -> asyncio.StreamReader | None:
        """Events and the result of the run, as lines of JSON."""

    @property
    def stderr(self) -> asyncio.StreamReader | None:
        """Whatever else it prints."""

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for a signal; None while it is running."""

    async def wait(self) -> int:
        """Wait until the process has ended and return its exit code."""

    def terminate(self) -> None:
        """Send SIGTERM. Raises ProcessLookupError if the process has ended."""

    def kill(self) -> None:
        """Send SIGKILL. Raises ProcessLookupError if the process has ended."""


class Starter(Protocol):
    """Starts the process of a run; calls may overlap."""

    async def start(self, spec: RunSpec) -> RunProcess:
        """Start a process that has been given ``spec``. Raises OSError.

        Cancelling the call leaves no process of the run behind.
        """
        ...


def new_ident() -> str:
    """Return a new name for a run: a random number of 63 bits, in decimal, as the Go runner names its runs."""
    return str(secrets.randbits(63))


LINE_LIMIT_BYTES = 64 * 1024 * 1024
"""The longest line, which is an event, that is read from a run's process."""


class SubprocessStarter:
    """Starts each run in a new interpreter."""

    async def start(self, spec: RunSpec) -> RunProcess:
        """Start ``runner_process`` and send it the spec; see ``runner.Starter``."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", RUNNER_MODULE),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_LIMIT_BYTES,
            env=inherited_environment() | {RUN_VARIABLE: spec.ident},
            start_new_session=True,
        )
        assert process.stdin  # noqa: S101 - just asked for
        process.stdin.write(runner_input(spec).to_line())
        return process


def runner_input(spec: RunSpec) -> RunnerInput:
    """Return the part of a spec that the process of the run needs."""
    is_role = isinstance(spec.content, RoleContent)
    return RunnerInput(
        ident=spec.ident,
        workspace=str(spec.workspace.path),
        role=str(spec.content.path) if is_role else "",
        playbook="" if is_role else str(spec.content.path),
        verbosity=spec.verbosity,
        grace_seconds=spec.grace_seconds,
        memory_limit_bytes=spec.memory_limit_bytes,
        artifact_limit_bytes=spec.artifact_limit_bytes,
        output_in_events=spec.output_in_events,
        environment=dict(spec.environment),
        secrets=dict(spec.secret_environment),
    )


def inherited_environment() -> dict[str, str]:
    """Return the operator's environment and mark, without its own access to the cluster: a run has its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("K8S_AUTH_")}
    return environment | {OPERATOR_VARIABLE: operator_mark()}


logger = get_logger("runner")

GRACE_SECONDS = 5.0
"""The time between SIGTERM and SIGKILL."""

_GRACE_SHARE = 0.2
_REVOKE_LIMIT_SECONDS = 5.0
_KILL_AFTER_SECONDS = 20.0
"""How long after the grace period the process may take to kill what is left, before it is killed itself."""


def grace_seconds(settings: Settings) -> float:
    """Return the grace period of runs.

    With leader election it is a share of the time between the renewal deadline and the end of the Lease, so that runs
    have ended before another replica may start.
    """
    if not settings.leader_elect:
        return GRACE_SECONDS
    window = settings.lease_duration_seconds - settings.renew_deadline_seconds
    return min(GRACE_SECONDS, max(0.0, window) * _GRACE_SHARE)


async def stop_process(spec: RunSpec, process: RunProcess) -> None:
    """Terminate the process of a run, kill it if that does not help, and kill all that is left of the run."""
    await revoke(spec)
    with suppress(ProcessLookupError):
        process.terminate()
    waiting = asyncio.create_task(process.wait())
    await asyncio.wait({waiting}, timeout=spec.grace_seconds + _KILL_AFTER_SECONDS)
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        await asyncio.wait({waiting}, timeout=KILL_LIMIT_SECONDS)
    waiting.cancel()
    await kill_rest(spec)


async def kill_rest(spec: RunSpec) -> None:
    """Kill every process that carries the mark of the run; one that hangs in the kernel is left to itself."""
    if survivors := await run_in_thread(lambda: kill_run_processes(spec.ident)):
        logger.error("Processes of the run could not be killed and are left to themselves", pids=survivors)


async def revoke(spec: RunSpec) -> None:
    """Revoke the run's credentials; its processes are ended even if that fails."""
    try:
        async with asyncio.timeout(_REVOKE_LIMIT_SECONDS):
            if spec.revoke is not None:
                await spec.revoke()
    except Exception:
        logger.exception("Could not revoke the credentials of a run")


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
            await run_in_thread(lambda: spec.workspace.finish(spec.ident))
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
