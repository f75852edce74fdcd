"""What the operator does with the answers of a fork server, and without them; the test answers in its place."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
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


class ServerEnd:
    """The end of a server's control socket that the test holds, beside a process that stands for the server."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.streams: list[int] = []

    async def request(self) -> str:
        """Wait for the next request and return the name of its run; its descriptors are kept in ``streams``."""
        receive = asyncio.to_thread(socket.recv_fds, self.control, 4096, 3)
        message, self.streams, _, _ = await asyncio.wait_for(receive, 20)
        return str(json.loads(message)["start"])

    def answer(self, *descriptors: int, **message: Any) -> None:
        """Send a message to the operator."""
        socket.send_fds(self.control, [json.dumps(message).encode()], descriptors)

    async def fork(self) -> psutil.Process:
        """Answer the next request with a process."""
        ident = await self.request()
        process = psutil.Popen(SLEEP)
        descriptor = os.pidfd_open(process.pid)
        self.answer(descriptor, started=ident, pid=process.pid)
        os.close(descriptor)
        return process

    async def input(self) -> bytes:
        """Read what a process that is forked for the last request would find on its stdin, up to the end."""
        for descriptor in self.streams[1:]:
            os.close(descriptor)
        with os.fdopen(self.streams[0], "rb") as file:
            return await asyncio.to_thread(file.read)


@pytest.fixture
async def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[ForkServer, ServerEnd]]:
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
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten every limit: nothing that a test waits for will come."""
    monkeypatch.setattr(client, "RESPONSE_LIMIT_SECONDS", 0.05)
    monkeypatch.setattr(client, "_CANCEL_LIMIT_SECONDS", 0.05)
    monkeypatch.setattr(client, "KILL_LIMIT_SECONDS", 0.05)
    monkeypatch.setattr(client, "REAP_LIMIT_SECONDS", 0.05)


async def started(server: ForkServer, end: ServerEnd, ident: str) -> tuple[ForkedProcess, psutil.Process]:
    """Start a run to which the server answers as it should."""
    run, process = await asyncio.gather(server.start(ident, INPUT), end.fork())
    return run, process


async def soon(what: Awaitable[Any]) -> Any:
    """Await what must not take long."""
    return await asyncio.wait_for(what, 20)


async def test_a_run_gets_its_input_when_the_server_has_answered(pair: tuple[ForkServer, ServerEnd]) -> None:
    server, end = pair
    run, process = await started(server, end, "1")
    assert await asyncio.to_thread(os.read, end.streams[0], 100) == b"input\n"
    run.kill()
    end.answer(ended="1", code=process.wait())
    assert await soon(run.wait()) == -signal.SIGKILL
    assert server.is_alive
    assert server.idle.is_set()


@pytest.mark.usefixtures("hasty")
async def test_a_server_that_does_not_answer_takes_no_further_requests_and_its_runs_go_on(
    pair: tuple[ForkServer, ServerEnd], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, end = pair
    with monkeypatch.context() as patch:
        patch.setattr(client, "RESPONSE_LIMIT_SECONDS", 20)
        run, process = await started(server, end, "1")
    with pytest.raises(ServerGoneError, match="doesn't respond"):
        await server.start("2", INPUT)
    assert not server.is_alive
    assert is_alive(process)
    assert run.returncode is None
    assert not server.idle.is_set()
    process.kill()
    assert await soon(run.wait()) == UNKNOWN_CODE
    assert server.idle.is_set()


@pytest.mark.usefixtures("hasty")
async def test_the_end_of_a_run_is_seen_although_the_server_does_not_tell_it(
    pair: tuple[ForkServer, ServerEnd], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, end = pair
    with monkeypatch.context() as patch:
        patch.setattr(client, "RESPONSE_LIMIT_SECONDS", 20)
        run, _ = await started(server, end, "1")
    run.terminate()
    assert await soon(run.wait()) == UNKNOWN_CODE
    assert not server.is_alive


@pytest.mark.usefixtures("hasty")
async def test_a_process_that_is_forked_too_late_finds_no_input(pair: tuple[ForkServer, ServerEnd]) -> None:
    server, end = pair
    with pytest.raises(ServerGoneError):
        await server.start("1", INPUT)
    assert await end.request() == "1"
    assert await soon(end.input()) == b""


@pytest.mark.usefixtures("hasty")
async def test_what_a_server_says_too_late_is_ignored(pair: tuple[ForkServer, ServerEnd]) -> None:
    server, end = pair
    with pytest.raises(ServerGoneError):
        await server.start("1", INPUT)
    assert await end.request() == "1"
    descriptors = psutil.Process().num_fds()
    handle = os.pidfd_open(os.getpid())
    end.answer(handle, started="1", pid=os.getpid())
    os.close(handle)
    end.answer(ended="1", code=1)
    end.answer(ready=[])
    await soon(server.ready)
    assert server.idle.is_set()
    assert psutil.Process().num_fds() == descriptors


@pytest.mark.usefixtures("hasty")
async def test_a_start_that_is_cancelled_leaves_nothing_to_do(
    pair: tuple[ForkServer, ServerEnd], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, end = pair
    monkeypatch.setattr(client, "RESPONSE_LIMIT_SECONDS", 20)
    starting = asyncio.create_task(server.start("1", INPUT))
    assert await end.request() == "1"
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(starting)
    assert await soon(end.input()) == b""
    assert server.idle.is_set()


async def test_a_failed_fork_fails_its_run_alone(pair: tuple[ForkServer, ServerEnd]) -> None:
    server, end = pair
    starting = asyncio.create_task(server.start("1", INPUT))
    end.answer(failed=await end.request(), reason="no process left")
    with pytest.raises(OSError, match="no process left"):
        await soon(starting)
    assert server.is_alive
    run, _ = await started(server, end, "2")
    assert run.returncode is None


async def test_a_process_without_a_handle_is_not_started(pair: tuple[ForkServer, ServerEnd]) -> None:
    server, end = pair
    starting = asyncio.create_task(server.start("1", INPUT))
    end.answer(started=await end.request(), pid=os.getpid())
    with pytest.raises(OSError, match="too many open files"):
        await soon(starting)
    assert await soon(end.input()) == b""


async def test_a_stopped_server_is_ended(pair: tuple[ForkServer, ServerEnd]) -> None:
    server, _ = pair
    server.process.send_signal(signal.SIGSTOP)
    await soon(server.stop())
    assert server.process.returncode == -signal.SIGKILL


@pytest.mark.usefixtures("hasty")
async def test_a_server_that_cannot_be_killed_is_left_to_itself(
    pair: tuple[ForkServer, ServerEnd], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _ = pair
    kill: Callable[[], None] = server.process.kill
    monkeypatch.setattr(server.process, "kill", lambda: None)
    with capture_logs() as logs:
        await soon(server.stop())
    assert [(line["log_level"], line["pid"]) for line in logs] == [("error", server.process.pid)]
    assert server.idle.is_set()
    kill()
