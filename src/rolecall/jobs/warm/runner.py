"""The runner that forks each play from a process in which Ansible is imported already.

A play is the same program as a cold one and keeps the same promises; only its start differs. While the server is not
there, because it has died or something that it has imported has changed on disk, a run waits for the next one, or
starts cold when that is quicker. Neighbours: `rolecall.jobs.cold` reads, limits and ends plays; `client` is the way to
the server.
"""

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from rolecall.jobs.cold import ColdRunner, PlayProcess, describe, inherited_environment
from rolecall.jobs.runner import Job
from rolecall.jobs.warm.client import ServerGoneError, WarmServer
from rolecall.logs import get_logger

logger = get_logger("warm")

_READY_LIMIT_SECONDS = 20.0


class WarmRunner(ColdRunner):
    """Runs each job in a process that a warm server forks; use it as an asynchronous context manager."""

    def __init__(self, contents: Sequence[Path] = ()) -> None:
        super().__init__()
        self._contents = tuple(contents)
        self._server: WarmServer | None = None
        self._launching = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Start the server; it prepares itself in the background."""
        self._server = await WarmServer.launch(self._contents)
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the server."""
        if self._server:
            await self._server.stop()

    async def start(self, job: Job) -> PlayProcess:
        """Fork the process of a play, or start it cold when there is no server."""
        try:
            server = await self._ready_server()
            surroundings = {"directory": os.getcwd(), "environment": inherited_environment()}  # noqa: PTH109 - as it is
            return await server.start(job.ident, [json.dumps(surroundings).encode() + b"\n", describe(job).to_line()])
        except (ServerGoneError, TimeoutError) as error:
            logger.debug("Part of a run was not warm", reason=f"the warm server is not there ({error!r})")
            return await super().start(job)

    async def _ready_server(self) -> WarmServer:
        async with self._launching:
            if self._server is None or not self._server.is_alive:
                if self._server:
                    logger.warning("The warm server has ended and is started again")
                    await self._server.stop()
                self._server = await WarmServer.launch(self._contents)
            server = self._server
        async with asyncio.timeout(_READY_LIMIT_SECONDS):
            await asyncio.shield(server.ready)
        return server
