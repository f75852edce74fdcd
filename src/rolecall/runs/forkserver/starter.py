"""The runner that forks each play from a process in which Ansible is imported already.

A play is the same program as a cold one and keeps the same promises; only its start differs. While the server is not
there, because it has died or something that it has imported has changed on disk, a run waits for the next one, or
starts cold when that is quicker.
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
from rolecall.process_tree import kill_run_processes
from rolecall.runs.forkserver.client import ForkServer, ServerGoneError, StaleServerError
from rolecall.runs.forkserver.freshness import GROWTH_LIMIT_BYTES
from rolecall.runs.process_runner import RunProcess, SubprocessRunner, describe, inherited_environment
from rolecall.runs.runner import RunSpec

logger = get_logger("warm")

_READY_LIMIT_SECONDS = 20.0
_ANSWER_LIMIT_SECONDS = 20.0
_PAUSE_AFTER_FAILURE_SECONDS = 60.0


class ForkserverRunner(SubprocessRunner):
    """Runs each job in a process that a warm server forks; use it as an asynchronous context manager.

    `contents` are the folders of the roles and playbooks for which the server shall prepare itself. A server that has
    grown by more than `growth_limit_bytes` is replaced.
    """

    def __init__(self, contents: Sequence[Path] = (), growth_limit_bytes: int = GROWTH_LIMIT_BYTES) -> None:
        super().__init__()
        self._growth_limit_bytes = growth_limit_bytes
        self._contents = tuple(contents)
        self._server: ForkServer | None = None
        self._launching = asyncio.Lock()
        self._retiring: set[asyncio.Task[None]] = set()
        self._cold_until = 0.0

    async def __aenter__(self) -> Self:
        """Start the server; it prepares itself in the background."""
        self._server = await ForkServer.launch(self._contents, self._growth_limit_bytes)
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the server, and those that were waiting for their last plays."""
        for task in self._retiring:
            task.cancel()
        await asyncio.gather(*self._retiring, return_exceptions=True)
        if self._server:
            await self._server.stop()

    @property
    def server(self) -> ForkServer | None:
        """The server of new plays, if there is one."""
        return self._server

    async def start(self, job: RunSpec) -> RunProcess:
        """Fork the process of a play, or start it cold when there is no server."""
        forking = asyncio.create_task(self._fork(job))
        try:
            process = await asyncio.shield(forking)
        except asyncio.CancelledError:
            await _undo(forking, job.ident)
            raise
        return process or await super().start(job)

    async def _fork(self, job: RunSpec) -> RunProcess | None:
        """Return the forked process; None when the play has to start cold. Raises OSError."""
        surroundings = {"directory": os.getcwd(), "environment": inherited_environment()}  # noqa: PTH109 - as it is
        lines = [json.dumps(surroundings).encode() + b"\n", describe(job).to_line()]
        for _ in range(2):
            server = await self._ready_server()
            if not server:
                return None
            try:
                async with asyncio.timeout(_ANSWER_LIMIT_SECONDS):
                    return await server.start(job.ident, lines)
            except StaleServerError as error:
                logger.info("The warm server is replaced", reason=str(error))
                self._retire(server)
            except ServerGoneError:
                pass  # the next one is tried
            except TimeoutError:
                server.process.kill()
                raise OSError("the warm server does not answer") from None
        return None

    async def _ready_server(self) -> ForkServer | None:
        """Return a server that takes requests, a new one if need be; None when that does not work."""
        async with self._launching:
            server = self._server
            if server is None or not server.is_alive:
                if time.monotonic() < self._cold_until:
                    return None
                if server:
                    logger.warning("The warm server has ended and is started again")
                    await server.stop()
                server = self._server = await ForkServer.launch(self._contents, self._growth_limit_bytes)
            try:
                async with asyncio.timeout(_READY_LIMIT_SECONDS):
                    await asyncio.shield(server.ready)
            except (ServerGoneError, TimeoutError) as error:
                logger.warning(
                    "Runs start cold for a while: the warm server could not prepare itself", error=repr(error)
                )
                self._cold_until = time.monotonic() + _PAUSE_AFTER_FAILURE_SECONDS
                await server.stop()
                self._server = None
                return None
        return server

    def _retire(self, server: ForkServer) -> None:
        """Let a server finish its plays and end it then."""
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
    """End a play that was started for a run that nobody wants any more."""
    await asyncio.wait({forking})
    process = None if forking.cancelled() or forking.exception() else forking.result()
    if process:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    await asyncio.to_thread(kill_run_processes, ident)
