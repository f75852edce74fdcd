"""Start runs warm: fork them from a process that has imported Ansible already.

A forked run is the same program as one in a new interpreter and keeps the same promises; only its start differs. If
there is no fork server, because it has exited, doesn't respond, or has imported a file that has changed since, a run
waits for the next server. Runs always start in a new interpreter if Ansible has changed where the fork relies on it;
see ``ansible_patches.patches``.

**A server that makes progress is never replaced**, regardless of how long its start takes: if CPU is short, another
server would need the same CPU time again. A run waits for it, because a start in a new interpreter needs more CPU time
than the rest of the server's start. It doesn't wait for a server that makes no progress, or needs far more CPU time
than usual: then it starts cold, and the server continues.

A server may end when it has had no run for some time, which frees its memory; the next run waits for another one, as
the first one does. **A run never gets a server that is about to end**: from the start of a run until its end there is
no timer, and the timer retires the server in one step of the event loop.
"""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from rolecall.kube.quantities import format_duration
from rolecall.runner.config.watches import Watch
from rolecall.runner.runs.content import watched_directories
from rolecall.runner.runs.process import ColdStarter, RunProcess, RunSpec, Starter, inherited_environment
from rolecall.runner.runs.process_marks import kill_run_processes
from rolecall.runner.warm.ansible_patches.patches import PatchStatus, names_in_use
from rolecall.runner.warm.client import ForkServer, ServerGoneError, StaleServerError
from rolecall.system.blocking_work import run_in_thread
from rolecall.system.logs import get_logger

logger = get_logger("forkserver")

_COLD_AFTER_FAILURE_SECONDS, _LONGEST_COLD_SECONDS = 60.0, 900.0

OnReplaced = Callable[[str], None]
OnPatches = Callable[[Sequence[PatchStatus]], None]


@dataclass(frozen=True, slots=True)
class StartLimits:
    """How long runs wait for a starting server."""

    without_progress_seconds: float = 5.0
    """How long runs wait for a server that uses no CPU time; then they start cold, and the server continues."""

    cpu_seconds: float = 10.0
    """How much CPU time of a server runs wait for. It needs one to three seconds, and a cold run up to five."""

    stalled_seconds: float = 60.0
    """How long a server may use no CPU time before it is replaced."""

    slow_seconds: float = 15.0
    """The age at which a starting server is logged as slow."""

    poll_seconds: float = 1.0


@dataclass(slots=True, eq=False)
class ForkserverStarter:
    """Starts each run as a fork of a server; use it as an asynchronous context manager.

    The server prepares itself for the roles and playbooks in ``contents``. ``on_replaced`` receives the reason whenever
    a server takes no further runs: ``stale``, ``exited``, ``unresponsive``, or ``start_timeout``. It isn't called when
    a server ends because of ``idle_seconds``. ``on_patches`` receives the status of each patch of Ansible when a server
    is ready.
    """

    contents: Sequence[Path] = ()
    on_replaced: OnReplaced = lambda _reason: None
    on_patches: OnPatches = lambda _statuses: None
    limits: StartLimits = StartLimits()
    hash_seed: int = 0
    """That of ``ForkServer.launch``."""

    idle_seconds: float = 0.0
    """The time without a run after which a server ends; 0 means never."""

    server: ForkServer | None = field(default=None, init=False)
    """The server that forks new runs, if there is one."""

    has_ended_idle: bool = field(default=False, init=False)
    """Whether there is no server because of ``idle_seconds``; the next run starts one."""

    _starting: int = field(default=0, init=False)
    """The number of runs that wait for a server or for their process."""

    _idle_timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _patches: Sequence[PatchStatus] = field(default=(), init=False)
    _preparing: asyncio.Task[ForkServer | None] | None = field(default=None, init=False)
    _retiring: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _cold_until: float = field(default=0.0, init=False)
    _cold_seconds: float = field(default=_COLD_AFTER_FAILURE_SECONDS, init=False)
    _slow: ForkServer | None = field(default=None, init=False)
    """The server whose slow start was logged."""

    async def __aenter__(self) -> Self:
        """Launch the server, which prepares itself in the background; log the patches that can't be used."""
        await self._launch()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the server, and those that wait for their last runs."""
        self.idle_seconds = 0.0
        self._restart_idle_time()
        unfinished = [*self._retiring, *([self._preparing] if self._preparing else [])]
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        if self.server:
            await self.server.stop()

    async def start(self, spec: RunSpec) -> RunProcess:
        """Fork the process of a run, or start a new interpreter if there is no server; see ``process.Starter``."""
        self._starting += 1
        self._restart_idle_time()
        try:
            process = await self._fork(spec)
        except asyncio.CancelledError:
            await run_in_thread(lambda: kill_run_processes(spec.ident))
            raise
        finally:
            self._starting -= 1
            self._restart_idle_time()
        return process or await ColdStarter().start(spec)

    async def renew(self, hash_seed: int) -> bool:
        """Replace the server by one with another hash seed, if it is ready; return whether this was done."""
        if not self.server or not self.server.ready.done() or (self._preparing and not self._preparing.done()):
            return False
        self.hash_seed = hash_seed
        self._retire(self.server)
        await self._launch()
        return True

    async def _fork(self, spec: RunSpec) -> RunProcess | None:
        """Return the forked process; None when the run has to start in a new interpreter. Raises OSError."""
        surroundings = {"directory": os.getcwd(), "environment": inherited_environment()}  # noqa: PTH109 - as it is
        lines = [json.dumps(surroundings).encode() + b"\n", spec.runner_input.to_line()]
        discovery = spec.environment.discovery
        for _ in range(2):
            # All runs wait for the same server, and continue to wait when one of them is cancelled.
            if self._preparing is None or self._preparing.done():
                self._preparing = asyncio.create_task(self._ready_server())
            server = await asyncio.shield(self._preparing)
            if not server:
                return None
            try:
                process = await server.start(spec.ident, lines, discovery.descriptors if discovery else ())
            except StaleServerError as error:
                logger.info("Replacing the fork server", reason=str(error))
                self._retire(server, "stale")
            except ServerGoneError:
                pass  # the next one is tried
            else:
                process.ended.add_done_callback(lambda _: self._restart_idle_time())
                return process
        return None

    async def _ready_server(self) -> ForkServer | None:
        """Return a server that takes requests, a new one if necessary; None if runs shouldn't wait for one."""
        if (server := self.server) and not server.is_alive:
            if server.is_unresponsive:
                message = "The fork server does not respond; starting another one"
                logger.warning(message, pid=server.process.pid)
                self._retire(server, "unresponsive")
            else:
                logger.warning("The fork server has exited; starting another one")
                self._retire(server, "exited")
        if not self.server and time.monotonic() >= self._cold_until:
            await self._launch()
        if not (server := self.server):
            return None
        try:
            patches = await self._patches_of(server)
        except (ServerGoneError, TimeoutError) as error:
            self._start_cold(error)
            self._retire(server, "start_timeout" if isinstance(error, TimeoutError) else "exited")
            return None
        if patches is None:
            return None
        self._cold_seconds = _COLD_AFTER_FAILURE_SECONDS
        if "fork" not in names_in_use(patches):
            self._cold_until = float("inf")
            self._retire(server)
            return None
        return server

    async def _patches_of(self, server: ForkServer) -> list[PatchStatus] | None:
        """Wait until a server is ready and return its patches; None if runs shouldn't wait any longer.

        Raises ServerGoneError if it has exited, and TimeoutError if it makes no progress.
        """
        limits = self.limits
        while not server.ready.done():
            stalled, used = server.stalled_seconds, server.cpu_seconds
            if stalled >= limits.stalled_seconds:
                raise TimeoutError(f"it has used no CPU time for {stalled:.0f} s")
            waits = stalled < limits.without_progress_seconds and used < limits.cpu_seconds
            age = time.monotonic() - server.launched_at
            if (not waits or age >= limits.slow_seconds) and self._slow is not server:
                self._slow = server
                logger.warning(
                    "The fork server starts slowly; keeping it while it makes progress",
                    runs="wait for it" if waits else "start cold until it is ready",
                    seconds=round(age, 1),
                    cpu_seconds=round(used, 1),
                    short=server.shortage,
                )
            if not waits:
                return None
            await asyncio.wait({server.ready}, timeout=limits.poll_seconds)
        return server.ready.result()

    async def _launch(self) -> None:
        try:
            server = self.server = await ForkServer.launch(self.contents, self.hash_seed)
        except OSError as error:
            self._start_cold(error)
        else:
            server.ready.add_done_callback(lambda ready: self._report_ready(server, ready))
        self.has_ended_idle = False

    def _report_ready(self, server: ForkServer, ready: asyncio.Future[list[PatchStatus]]) -> None:
        """Log that a server is ready and each patch that an unknown function disables, once; report all patches."""
        if ready.cancelled() or ready.exception():
            return
        age, used = time.monotonic() - server.launched_at, server.cpu_seconds
        logger.info("The fork server is ready", seconds=round(age, 1), cpu_seconds=round(used, 1))
        statuses = ready.result()
        for status in statuses:
            if status.state == "disabled" and not status.lacks and status not in self._patches:
                message = "Running without a patch of Ansible"
                if status.name == "fork":
                    message = "Running without the patch fork; every run starts cold"
                also = [each.name for each in statuses if each.lacks == status.name]
                logger.warning(message, patch=status.name, reason=status.reason, also=also)
        self._patches = statuses
        self.on_patches(statuses)
        self._restart_idle_time()

    def _restart_idle_time(self) -> None:
        """Count the time without a run from now on, or not at all while a run is starting or running."""
        if self._idle_timer:
            self._idle_timer.cancel()
            self._idle_timer = None
        if self.idle_seconds and not self._starting and (server := self.server) and server.is_unused:
            loop = asyncio.get_running_loop()
            self._idle_timer = loop.call_later(self.idle_seconds, self._end_idle, server)

    def _end_idle(self, server: ForkServer) -> None:
        """End a server that has had no run; the next run replaces one that has exited in the meantime."""
        if server.is_unused:
            reason = f"no run for {format_duration(self.idle_seconds)}; the next run starts another one"
            logger.info("Ending the fork server", reason=reason, pid=server.process.pid)
            self.has_ended_idle = True
            self._retire(server)

    def _start_cold(self, error: Exception) -> None:
        message = "Fork server not ready; runs start cold until the next attempt"
        logger.warning(message, error=repr(error), next_attempt_seconds=self._cold_seconds)
        self._cold_until = time.monotonic() + self._cold_seconds
        self._cold_seconds = min(2 * self._cold_seconds, _LONGEST_COLD_SECONDS)

    def _retire(self, server: ForkServer, reason: str = "") -> None:
        """Give a server no further runs, and stop it when its runs have ended; report the reason if there is one."""
        if self.server is not server:
            return  # another run has retired it
        self.server = None
        self._restart_idle_time()
        if reason:
            self.on_replaced(reason)
        task = asyncio.create_task(_stop_when_idle(server))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)


async def _stop_when_idle(server: ForkServer) -> None:
    try:
        await server.idle.wait()
    finally:
        await server.stop()


@asynccontextmanager
async def starter_for(  # noqa: PLR0913 - all but two have defaults
    watches: Iterable[Watch],
    *,
    warm: bool,
    on_replaced: OnReplaced = lambda _reason: None,
    on_patches: OnPatches = lambda _statuses: None,
    hash_seed: int = 0,
    idle_seconds: float = 0.0,
) -> AsyncIterator[Starter]:
    """Yield the starter of runs; a warm one prepares itself in the background for the content of the watches.

    ``on_replaced``, ``on_patches``, ``hash_seed``, and ``idle_seconds`` are those of `ForkserverStarter`.
    """
    if not warm:
        yield ColdStarter()
        return
    contents = sorted(set().union(*map(watched_directories, watches)))
    forkserver = ForkserverStarter(contents, on_replaced, on_patches, hash_seed=hash_seed, idle_seconds=idle_seconds)
    async with forkserver as starter:
        yield starter
