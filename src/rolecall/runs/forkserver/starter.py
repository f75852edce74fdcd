"""The warm way to start a run: fork it from a process that has imported Ansible already.

A forked run is the same program as one in a new interpreter and keeps the same promises; only its start differs. When
there is no fork server, because it has died or because a file that it has imported has changed, a run waits for the
next server. If that one does not get ready either, runs start in a new interpreter for a while. They always do with a
version of ansible-core that is not supported.
"""

import asyncio
import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from rolecall.logs import get_logger
from rolecall.runs.ansible_patches.supported_versions import SUPPORTED, installed_version, is_supported
from rolecall.runs.forkserver.client import ForkServer, ServerGoneError, StaleServerError
from rolecall.runs.forkserver.freshness import GROWTH_LIMIT_BYTES
from rolecall.runs.run_processes import kill_run_processes
from rolecall.runs.runner import RunProcess, RunSpec
from rolecall.runs.subprocess_starter import SubprocessStarter, inherited_environment, runner_input
from rolecall.threads import in_own_thread

logger = get_logger("forkserver")

_READY_LIMIT_SECONDS = 20.0
_ANSWER_LIMIT_SECONDS = 20.0
_COLD_AFTER_FAILURE_SECONDS = 60.0


class ForkserverStarter:
    """Starts each run as a fork of a server; use it as an asynchronous context manager.

    ``contents`` are the directories of the roles and playbooks for which the server prepares itself. A server that has
    grown by more than ``growth_limit_bytes`` is replaced.
    """

    def __init__(self, contents: Sequence[Path] = (), growth_limit_bytes: int = GROWTH_LIMIT_BYTES) -> None:
        self._growth_limit_bytes = growth_limit_bytes
        self._contents = tuple(contents)
        self._subprocess = SubprocessStarter()
        self._server: ForkServer | None = None
        self._launching = asyncio.Lock()
        self._retiring: set[asyncio.Task[None]] = set()
        self._cold_until = 0.0

    async def __aenter__(self) -> Self:
        """Launch the server, which prepares itself in the background; log a warning if there can be none."""
        found = installed_version()
        if is_supported(found):
            self._server = await self._launch()
        else:
            self._cold_until = float("inf")
            logger.warning(
                "Runs start cold, which takes about ten times as long: this version of ansible-core is not supported",
                found=found,
                supported=[f"{minor}.*" for minor in SUPPORTED],
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the server, and those that wait for their last runs."""
        for task in self._retiring:
            task.cancel()
        await asyncio.gather(*self._retiring, return_exceptions=True)
        if self._server:
            await self._server.stop()

    @property
    def server(self) -> ForkServer | None:
        """The server that forks new runs, if there is one."""
        return self._server

    async def start(self, spec: RunSpec) -> RunProcess:
        """Fork the process of a run, or start a new interpreter if there is no server; see ``runner.Starter``."""
        forking = asyncio.create_task(self._fork(spec))
        try:
            process = await asyncio.shield(forking)
        except asyncio.CancelledError:
            await _undo(forking, spec.ident)
            raise
        return process or await self._subprocess.start(spec)

    async def _fork(self, spec: RunSpec) -> RunProcess | None:
        """Return the forked process; None when the run has to start in a new interpreter. Raises OSError."""
        surroundings = {"directory": os.getcwd(), "environment": inherited_environment()}  # noqa: PTH109 - as it is
        lines = [json.dumps(surroundings).encode() + b"\n", runner_input(spec).to_line()]
        for _ in range(2):
            server = await self._ready_server()
            if not server:
                return None
            try:
                async with asyncio.timeout(_ANSWER_LIMIT_SECONDS):
                    return await server.start(spec.ident, lines)
            except StaleServerError as error:
                logger.info("Replacing the fork server", reason=str(error))
                self._retire(server)
            except ServerGoneError:
                pass  # the next one is tried
            except TimeoutError:
                server.process.kill()
                raise OSError("the fork server does not answer") from None
        return None

    async def _ready_server(self) -> ForkServer | None:
        """Return a server that takes requests, a new one if need be; None when that does not work."""
        async with self._launching:
            server = self._server
            if server is None or not server.is_alive:
                if time.monotonic() < self._cold_until:
                    return None
                if server:
                    logger.warning("The fork server has died; starting another one")
                    await server.stop()
                server = self._server = await self._launch()
            try:
                async with asyncio.timeout(_READY_LIMIT_SECONDS):
                    await asyncio.shield(server.ready)
            except (ServerGoneError, TimeoutError) as error:
                logger.warning(
                    "Runs start cold for a while: the fork server did not get ready",
                    error=repr(error),
                    next_attempt_seconds=_COLD_AFTER_FAILURE_SECONDS,
                )
                self._cold_until = time.monotonic() + _COLD_AFTER_FAILURE_SECONDS
                await server.stop()
                self._server = None
                return None
        return server

    async def _launch(self) -> ForkServer:
        return await ForkServer.launch(self._contents, self._growth_limit_bytes)

    def _retire(self, server: ForkServer) -> None:
        """Let a server finish its runs, then stop it."""
        if self._server is server:
            self._server = None
            task = asyncio.create_task(_stop_when_idle(server))
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)


async def _stop_when_idle(server: ForkServer) -> None:
    try:
        await server.idle.wait()
    finally:
        await server.stop()


async def _undo(forking: asyncio.Task[RunProcess | None], ident: str) -> None:
    """Kill the process of a run whose start was cancelled."""
    await asyncio.wait({forking})
    process = None if forking.cancelled() or forking.exception() else forking.result()
    if process:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    await in_own_thread(kill_run_processes, ident)
