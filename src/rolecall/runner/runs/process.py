"""Runs Ansible, each time in a process of its own, from the start to the outcome.

``ProcessRunner.run`` is the whole flow. A ``Starter`` provides the process: a new interpreter (``ColdStarter``) or a
fork (``warm.starter``). The process, ``runner_process``, drives ansible-runner and ends everything below itself.

Guarantees of every ``Runner``: when ``run`` returns or raises, no process of the run remains; a failed run is an
outcome and never an exception; and a cancelled ``run`` ends its processes first.

A run is always stopped in the same order. First its credentials are revoked, so that nothing is written afterwards.
Then its process receives SIGTERM, passes it on to everything below itself, and kills the rest after the grace period.
If the process doesn't end, it is killed. Last, every process that carries the mark of the run is killed.
"""

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from rolecall.kube.quantities import format_duration
from rolecall.runner.config.content import Content, RoleContent
from rolecall.runner.config.settings import Settings
from rolecall.runner.proxy.sessions import WRITE_GRACE_SECONDS
from rolecall.runner.runs.disk_space import ArtifactBudget
from rolecall.runner.runs.events import RunEvent
from rolecall.runner.runs.memory import MemoryGuard
from rolecall.runner.runs.outcome import NO_RUN, MemoryKill, Outcome, OutcomeBuilder, TaskFailure, explain_memory
from rolecall.runner.runs.process_marks import (
    OPERATOR_VARIABLE,
    PLAYBOOK_MODULE,
    RUN_VARIABLE,
    RUNNER_MODULE,
    kill_abandoned_runs,
    kill_run_processes,
    operator_mark,
)
from rolecall.runner.runs.run import RunEnvironment
from rolecall.runner.runs.runner_process import RunnerInput
from rolecall.runner.runs.workspace import Workspace
from rolecall.system.blocking_work import run_in_thread, uninterrupted
from rolecall.system.logs import get_logger
from rolecall.system.processes import KILL_LIMIT_SECONDS, become_subreaper

logger = get_logger("runner")

OnEvent = Callable[[RunEvent], None]

LINE_LIMIT_BYTES = 64 * 1024 * 1024
"""The longest line (an event) that is read from the process of a run."""

GRACE_SECONDS = 5.0
"""The time between SIGTERM and SIGKILL."""

_GRACE_SHARE = 0.2
STATUS_SECONDS = 3.0
"""The time to write the status of an interrupted run."""
_MAX_REVOKE_SECONDS = 5.0
_KILL_AFTER_SECONDS = 20.0
"""How long after the grace period the process may take to kill the rest, before it is killed itself."""

_LAST_OUTPUT_SECONDS = 5.0
_MAX_STDERR_BYTES = 2048
_READ_SECONDS = 0.0005
"""How long the events of one run are read before other tasks get their turn: many runs may be read at a time."""


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Everything that one run of a role or playbook needs; its workspace must be prepared for ``ident``.

    ``timeout_seconds`` limits the run (None: no limit), and ``grace_seconds`` is the time between asking its processes
    to end and killing them. With ``unreachable_ok`` an unreachable host doesn't fail the run. ``output_in_events``
    repeats the printed text of an event in the event's file. Each process may have ``memory_limit_bytes`` of memory,
    and all artifacts together ``artifact_limit_bytes`` of disk (0: no limit). ``program`` is that of ``RunnerInput``.
    """

    ident: str
    workspace: Workspace
    content: Content
    environment: RunEnvironment = field(default_factory=RunEnvironment)
    verbosity: int = 2
    timeout_seconds: float | None = None
    grace_seconds: float = 5.0
    unreachable_ok: bool = False
    output_in_events: bool = True
    memory_limit_bytes: int = 0
    artifact_limit_bytes: int = 0
    program: str = ""

    @property
    def runner_input(self) -> RunnerInput:
        """The part of the spec that the process of the run needs."""
        is_role = isinstance(self.content, RoleContent)
        return RunnerInput(
            ident=self.ident,
            workspace=str(self.workspace.path),
            temporary=str(self.workspace.temporary),
            role=str(self.content.path) if is_role else "",
            playbook="" if is_role else str(self.content.path),
            program=self.program,
            verbosity=self.verbosity,
            grace_seconds=self.grace_seconds,
            memory_limit_bytes=self.memory_limit_bytes,
            artifact_limit_bytes=self.artifact_limit_bytes,
            output_in_events=self.output_in_events,
            environment=dict(self.environment.variables),
            secrets=dict(self.environment.secrets),
        )


class Runner(Protocol):
    """Runs a role or playbook; calls may overlap."""

    async def run(self, spec: RunSpec, on_event: OnEvent) -> Outcome:
        """Run to the end, pass every event to ``on_event`` on the way, and return the outcome.

        Cancelling the call ends the run within its grace period and then raises ``asyncio.CancelledError``.
        """


class RunProcess(Protocol):
    """The process of one run, ``runner_process``; ``asyncio.subprocess.Process`` is one."""

    @property
    def stdout(self) -> asyncio.StreamReader | None:
        """Events and the result of the run, as lines of JSON."""

    @property
    def stderr(self) -> asyncio.StreamReader | None:
        """Everything else that it prints."""

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
        """Start a process that has received ``spec``. Raises OSError.

        Cancelling the call leaves no process of the run behind.
        """


class ColdStarter:
    """Starts each run in a new interpreter. It needs no preparation and works with any version of ansible-core."""

    async def start(self, spec: RunSpec) -> RunProcess:
        """Start ``runner_process`` and send it the spec; see ``Starter``."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", RUNNER_MODULE),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_LIMIT_BYTES,
            env=inherited_environment() | {RUN_VARIABLE: spec.ident},
            start_new_session=True,
        )
        assert process.stdin  # noqa: S101 - started with a pipe
        process.stdin.write(replace(spec, program=spec.program or PLAYBOOK_MODULE).runner_input.to_line())
        return process


def inherited_environment() -> dict[str, str]:
    """Return the operator's environment and mark, without its own access to the cluster: a run has its own.

    Helm takes its variables before the kubeconfig.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("K8S_AUTH_", "HELM_KUBE"))}
    return environment | {OPERATOR_VARIABLE: operator_mark()}


def new_ident() -> str:
    """Return a new name for a run: a random number of 63 bits, in decimal, as the Go runner names its runs.

    The processes of a run are found, and killed, by its name. It differs between operators, because Python seeds
    ``random`` in each process, and again in a forked one. Only a simulation, whose runs have no processes, may seed it.
    """
    return str(random.getrandbits(63))


def grace_seconds(settings: Settings) -> float:
    """Return the grace period of runs.

    It is a share of the time to stop. With leader election it is a share of the time between the renewal deadline and
    the end of the Lease, so that runs have ended before another replica may start.
    """
    if not settings.leader_elect:
        return min(GRACE_SECONDS, settings.grace_seconds * _GRACE_SHARE)
    window = settings.lease_duration_seconds - settings.renew_deadline_seconds
    return min(GRACE_SECONDS, max(0.0, window) * _GRACE_SHARE)


def cancellation_seconds(settings: Settings) -> float:
    """Return the time in which a cancelled reconcile ends: the parts of ``_stop`` for a deaf role, and the status."""
    return WRITE_GRACE_SECONDS + grace_seconds(settings) + STATUS_SECONDS


class ProcessRunner:
    """Runs each spec in a process that ``starter`` starts, within the limits of ``memory`` and ``artifacts``.

    The constructor makes this process a subreaper, so that orphans of a run become its children, and kills the runs of
    operators that were killed.
    """

    def __init__(
        self, starter: Starter, memory: MemoryGuard | None = None, artifacts: ArtifactBudget | None = None
    ) -> None:
        self.starter = starter
        self._memory = memory
        self._artifacts = artifacts
        become_subreaper()
        if abandoned := kill_abandoned_runs():
            logger.warning("Killed orphaned runs", jobs=abandoned)

    async def run(self, spec: RunSpec, on_event: OnEvent) -> Outcome:
        """Run the spec within its limits; see ``Runner``."""
        if self._artifacts:
            spec = replace(spec, artifact_limit_bytes=self._artifacts.run_limit_bytes)
        if self._memory:
            spec = replace(spec, memory_limit_bytes=self._memory.limit_bytes)
            self._memory.add(spec.ident)
        outcome = NO_RUN
        kill: MemoryKill | None = None
        try:
            outcome = await self._run(spec, on_event)
        finally:
            if self._memory:
                kill = self._memory.remove(spec.ident)
            if self._artifacts:
                await self._artifacts.add_run(spec.workspace, spec.ident, is_failed=not outcome.is_successful)
        return explain_memory(outcome, spec.memory_limit_bytes, kill)

    async def _run(self, spec: RunSpec, on_event: OnEvent) -> Outcome:
        """Start the process, read its events until it ends or takes too long, and return the outcome."""
        deadline = None if spec.timeout_seconds is None else asyncio.get_running_loop().time() + spec.timeout_seconds
        limit = format_duration(spec.timeout_seconds or 0)
        reason = f"the run took longer than its timeout of {limit} and was stopped"
        timed_out = replace(Outcome.of_failure(reason, "timeout"), limit="time")
        try:
            async with asyncio.timeout_at(deadline):
                process = await self.starter.start(spec)
        except TimeoutError:
            return replace(timed_out, duration_seconds=spec.timeout_seconds or 0)
        except OSError as error:
            return Outcome.of_failure(f"cannot start a process for the run: {error}")
        started = time.monotonic()
        output = _Output(process, on_event, OutcomeBuilder(unreachable_ok=spec.unreachable_ok))
        reading = asyncio.create_task(output.read(), name=f"read {spec.ident}")
        try:
            async with asyncio.timeout_at(deadline):
                await asyncio.shield(reading)
            if not output.ending:
                await _revoke(spec)
                await _kill_rest(spec)
            ending = output.ending or output.crash()
        except TimeoutError:
            await uninterrupted(_stop(spec, process, reading))
            ending = timed_out
        except BaseException:
            await uninterrupted(_stop(spec, process, reading))
            raise
        finally:
            duration_seconds = time.monotonic() - started
            if killed := await run_in_thread(lambda: spec.workspace.finish(spec.ident)):
                advice = "wait for them in the same run, with poll or async_status"
                logger.warning("The end of the run killed background jobs", jobs=killed, advice=advice)
                output.builder.doubt("the end of the run killed background jobs")
        return output.builder.finish(replace(ending, duration_seconds=duration_seconds))


class _Output:
    """Reads the output of the process of one run: passes on events, and keeps the ending and the end of stderr."""

    def __init__(self, process: RunProcess, on_event: OnEvent, builder: OutcomeBuilder) -> None:
        self.builder = builder
        self.ending: Outcome | None = None
        self._process = process
        self._on_event = on_event
        self._stderr = b""

    async def read(self) -> None:
        """Read until the process has ended."""
        await asyncio.gather(self._read_stdout(), self._read_stderr())
        await self._process.wait()

    def crash(self) -> Outcome:
        """Return the ending of a process that reported none: it has crashed or was killed."""
        reason = f"the process of the run ended unexpectedly with exit code {self._process.returncode}"
        stderr = self._stderr.decode(errors="replace").strip()
        return Outcome.of_failure(f"{reason}: {stderr}" if stderr else reason)

    async def _read_stdout(self) -> None:
        assert self._process.stdout  # noqa: S101 - started with a pipe
        pause_at = 0.0
        async for line in self._process.stdout:
            if line.startswith(b'{"ending"'):
                last = json.loads(line)
                reason = last["ending"].pop("reason", "")
                self.ending = Outcome(**last["ending"], failures=(TaskFailure("", "", reason),) if reason else ())
                if last["survivors"]:
                    logger.error("Failed to kill processes of the run", pids=last["survivors"])
            elif line.startswith(b'{"notes"'):
                for note in json.loads(line)["notes"]:
                    logger.debug("Process not forked", reason=note)
            else:
                event = RunEvent.from_json(line)
                self.builder.add(event)
                self._on_event(event)
            # Reading doesn't pause while lines are buffered, and other runs, the proxy, and the Lease wait.
            if time.monotonic() >= pause_at:
                await asyncio.sleep(0)
                pause_at = time.monotonic() + _READ_SECONDS

    async def _read_stderr(self) -> None:
        assert self._process.stderr  # noqa: S101 - started with a pipe
        while chunk := await self._process.stderr.read(_MAX_STDERR_BYTES):
            self._stderr = (self._stderr + chunk)[-_MAX_STDERR_BYTES:]


async def _stop(spec: RunSpec, process: RunProcess, reading: asyncio.Task[None]) -> None:
    """Stop the run; its output is read to the end, so that the process doesn't block on a full pipe."""

    async def drain() -> None:
        while process.stdout and await process.stdout.read(_MAX_STDERR_BYTES):
            pass

    draining = asyncio.create_task(drain()) if reading.done() else reading
    await _revoke(spec)
    with suppress(ProcessLookupError):
        process.terminate()
    waiting = asyncio.create_task(process.wait())
    await asyncio.wait({waiting}, timeout=spec.grace_seconds + _KILL_AFTER_SECONDS)
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        await asyncio.wait({waiting}, timeout=KILL_LIMIT_SECONDS)
    waiting.cancel()
    await _kill_rest(spec)
    # A process that could not be killed may keep the pipes open.
    _, unfinished = await asyncio.wait({reading, draining}, timeout=_LAST_OUTPUT_SECONDS)
    for task in unfinished:
        task.cancel()


async def _revoke(spec: RunSpec) -> None:
    """Revoke the run's credentials; its processes are stopped even if that fails."""
    try:
        async with asyncio.timeout(_MAX_REVOKE_SECONDS):
            if spec.environment.revoke is not None:
                await spec.environment.revoke()
    except Exception:
        logger.exception("Failed to revoke the credentials of a run")


async def _kill_rest(spec: RunSpec) -> None:
    """Kill every process that carries the mark of the run, except one that hangs in the kernel."""
    if survivors := await run_in_thread(lambda: kill_run_processes(spec.ident)):
        logger.error("Failed to kill processes of the run; they remain", pids=survivors)
