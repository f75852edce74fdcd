"""The operator's handling of the fork server's responses, and of missing ones; the test responds in its place."""

import asyncio
import itertools
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from structlog.testing import capture_logs

from rolecall.runner.warm import client
from rolecall.runner.warm.client import UNKNOWN_CODE, ForkedProcess, ForkServer, ServerGoneError
from rolecall.system.files import OwnedDirectory
from rolecall.system.processes import is_alive

SLEEP = ("sleep", "300")
INPUT = [b"input\n"]
LIMITS = ("RESPONSE_LIMIT_SECONDS", "_CANCEL_LIMIT_SECONDS", "KILL_LIMIT_SECONDS")


class ServerEnd:
    """The server's end of a control socket, next to a process that stands for the server."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.streams: list[int] = []

    async def request(self) -> str:
        """Wait for the next request and return the name of its run; its descriptors are kept in ``streams``."""
        receive = asyncio.to_thread(socket.recv_fds, self.control, 4096, 3)
        message, self.streams, _, _ = await asyncio.wait_for(receive, 20)
        return str(json.loads(message)["start"])

    def respond(self, *descriptors: int, **message: Any) -> None:
        """Send a message to the operator."""
        socket.send_fds(self.control, [json.dumps(message).encode()], descriptors)

    async def fork(self) -> psutil.Process:
        """Respond to the next request with a process."""
        ident = await self.request()
        process = psutil.Popen(SLEEP)
        descriptor = os.pidfd_open(process.pid)
        self.respond(descriptor, started=ident, pid=process.pid)
        os.close(descriptor)
        return process

    async def input(self) -> bytes:
        """Read the whole stdin of a process that is forked for the last request."""
        for descriptor in self.streams[1:]:
            os.close(descriptor)
        with os.fdopen(self.streams[0], "rb") as file:
            return await asyncio.to_thread(file.read)


Pair = tuple[ForkServer, ServerEnd]


@pytest.fixture
async def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(0)
    process = await asyncio.create_subprocess_exec(*SLEEP)
    server = ForkServer(process, ours, OwnedDirectory.make("server-"))
    with theirs:
        yield server, ServerEnd(theirs)
    with suppress(ProcessLookupError):
        process.kill()
    await server.stop()


@pytest.fixture
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten every limit, for tests that wait for a timeout."""
    for name in LIMITS:
        monkeypatch.setattr(client, name, 0.05)


async def started(pair: Pair, ident: str) -> tuple[ForkedProcess, psutil.Process]:
    """Start a run to which the server responds in time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "RESPONSE_LIMIT_SECONDS", 20)
        return await asyncio.gather(pair[0].start(ident, INPUT), pair[1].fork())


async def soon(awaitable: Awaitable[Any]) -> Any:
    """Await something that must not take long."""
    return await asyncio.wait_for(awaitable, 20)


@pytest.mark.usefixtures("short_limits")
async def test_unresponsive_server_gets_no_further_requests_and_its_runs_continue(pair: Pair) -> None:
    server, _ = pair
    run, process = await started(pair, "1")
    with pytest.raises(ServerGoneError, match="doesn't respond"):
        await server.start("2", INPUT)
    assert not server.is_alive
    assert is_alive(process)
    assert run.returncode is None
    assert not server.idle.is_set()
    process.kill()
    assert await soon(run.wait()) == UNKNOWN_CODE
    assert server.idle.is_set()


@pytest.mark.usefixtures("short_limits")
async def test_late_responses_of_server_that_makes_progress_count(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that uses CPU time is slow, not stuck; replacing it would need the same CPU time again."""
    server, end = pair
    used = itertools.count(0.01, 0.01)  # a busy machine may give a real server no CPU for longer than the limit
    monkeypatch.setattr(ForkServer, "cpu_seconds", property(lambda _: next(used)))
    starting = asyncio.create_task(server.start("1", INPUT))
    await end.request()
    await asyncio.wait({starting}, timeout=0.5)
    assert not starting.done()
    process = psutil.Popen(SLEEP)
    descriptor = os.pidfd_open(process.pid)
    end.respond(descriptor, started="1", pid=process.pid)
    os.close(descriptor)
    run = await soon(starting)
    process.kill()
    await asyncio.wait({run.ended}, timeout=0.5)
    assert server.is_alive
    end.respond(ended="1", code=-9)
    assert await soon(run.wait()) == -9


async def test_pidfd_reports_end_of_run_without_message_of_server(pair: Pair) -> None:
    run, _ = await started(pair, "1")
    run.terminate()
    assert await soon(run.wait()) == UNKNOWN_CODE
    assert not pair[0].is_alive


async def test_response_without_descriptor_does_not_start_run(pair: Pair) -> None:
    server, end = pair
    starting = asyncio.create_task(server.start("1", INPUT))
    end.respond(started=await end.request(), pid=os.getpid())
    with pytest.raises(OSError, match="too many open files"):
        await soon(starting)
    assert await soon(end.input()) == b""


@pytest.mark.usefixtures("short_limits")
async def test_late_responses_are_ignored_and_late_process_finds_no_input(pair: Pair) -> None:
    server, end = pair
    descriptors = psutil.Process().num_fds()
    with pytest.raises(ServerGoneError):
        await server.start("1", INPUT)
    assert await end.request() == "1"
    assert await soon(end.input()) == b""
    handle = os.pidfd_open(os.getpid())
    end.respond(handle, started="1", pid=os.getpid())
    os.close(handle)
    end.respond(ended="1", code=1)
    end.respond(ready=[])
    await soon(server.ready)
    assert server.idle.is_set()
    async with asyncio.timeout(20):
        # Not "!=": what earlier tests have left may be closed in the meantime.
        while psutil.Process().num_fds() > descriptors:  # noqa: ASYNC110 - the loop closes pipes later
            await asyncio.sleep(0)


@pytest.mark.usefixtures("short_limits")
async def test_server_that_cannot_be_killed_is_reported(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    server, _ = pair
    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(server.process, "kill", lambda: None)
        await soon(server.stop())
    assert [(line["log_level"], line["pid"]) for line in logs] == [("error", server.process.pid)]
    assert server.idle.is_set()
