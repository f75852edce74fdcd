"""The operator's end of the fork server: launch it, ask it for forks, notice when it dies.

A forked run is a ``ForkedProcess``, which has the interface of a process that asyncio has started. Signals go to its
pidfd, so they cannot reach another process that has got the same id. When the server dies, its children get
``runner_process.PARENT_DIED`` and become children of the operator, which reaps them itself.
"""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from rolecall.logs import get_logger
from rolecall.owned_directories import OwnedDirectory
from rolecall.runs.forkserver.freshness import GROWTH_LIMIT_BYTES
from rolecall.runs.forkserver.process_titles import SLOT_VALUE, SLOT_VARIABLE, TITLE_ROOM
from rolecall.runs.subprocess_starter import LINE_LIMIT_BYTES, inherited_environment

logger = get_logger("forkserver")

SERVER_MODULE = "rolecall.runs.forkserver.server"
_MESSAGE_LIMIT_BYTES = 4096


class ServerGoneError(Exception):
    """The server ended before it could fork."""


class StaleServerError(ServerGoneError):
    """What the server has imported is no longer what is on disk, so it refuses to fork."""


class ForkedProcess:
    """A run that the server has forked; see ``runner.RunProcess``."""

    def __init__(self, ident: str, stdout: asyncio.StreamReader, stderr: asyncio.StreamReader) -> None:
        self.ident = ident
        self.pid = 0
        self.stdout, self.stderr = stdout, stderr
        self._descriptor = -1
        self._started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for a signal; None while it is running."""
        return self._ended.result() if self._ended.done() else None

    async def started(self) -> None:
        """Wait until it has been forked. Raises ServerGoneError."""
        await asyncio.shield(self._started)

    async def wait(self) -> int:
        """Wait until the process has ended and return its exit code."""
        return await asyncio.shield(self._ended)

    def terminate(self) -> None:
        """Send SIGTERM. Raises ProcessLookupError if the process has ended."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL. Raises ProcessLookupError if the process has ended."""
        self._signal(signal.SIGKILL)

    def set_started(self, pid: int) -> None:
        """Record the process id that the server has sent."""
        self.pid = pid
        with suppress(ProcessLookupError):
            self._descriptor = os.pidfd_open(pid)
        if not self._started.done():
            self._started.set_result(None)

    def set_ended(self, code: int, error: Exception | None = None) -> None:
        """Record the exit code; ``error`` says why the process was not even forked."""
        if not self._started.done():
            self._started.set_exception(error or ServerGoneError("the server has ended"))
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        if not self._ended.done():
            self._ended.set_result(code)

    def adopt(self) -> None:
        """Reap the process in this process, because the server is gone."""
        if self._descriptor < 0:
            self.set_ended(-signal.SIGKILL)
            return
        asyncio.get_running_loop().add_reader(self._descriptor, self._reap)

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        code = -int(signal.SIGKILL)
        with suppress(ChildProcessError):
            code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.set_ended(code)

    def _signal(self, number: signal.Signals) -> None:
        if self._descriptor < 0:
            raise ProcessLookupError
        signal.pidfd_send_signal(self._descriptor, number)


class ForkServer:
    """A running server; ``launch`` starts one."""

    def __init__(self, process: asyncio.subprocess.Process, control: socket.socket, directory: OwnedDirectory) -> None:
        self.process = process
        self._control = control
        self._directory = directory
        self._children: dict[str, ForkedProcess] = {}
        loop = asyncio.get_running_loop()
        self.idle = asyncio.Event()
        self.idle.set()
        self.ready: asyncio.Future[None] = loop.create_future()
        self.ready.add_done_callback(lambda future: future.cancelled() or future.exception())
        loop.add_reader(control, self._read)

    @classmethod
    async def launch(cls, contents: Sequence[Path], growth_limit_bytes: int = GROWTH_LIMIT_BYTES) -> Self:
        """Start a server that prepares itself for the roles and playbooks in ``contents``. Raises OSError."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        directory = OwnedDirectory.make("rolecall-fork-server-")
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", SERVER_MODULE),
                *(str(theirs.fileno()), str(directory.path), str(growth_limit_bytes), TITLE_ROOM, *map(str, contents)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                env=inherited_environment() | {SLOT_VARIABLE: SLOT_VALUE},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        ours.settimeout(0)
        return cls(process, ours, directory)

    @property
    def is_alive(self) -> bool:
        """Whether the server takes requests."""
        return self._control.fileno() >= 0

    async def start(self, ident: str, lines: Sequence[bytes]) -> ForkedProcess:
        """Fork a child and write these lines to its stdin, which stays open. Raises ServerGoneError, OSError."""
        loop = asyncio.get_running_loop()
        pipes = [os.pipe() for _ in range(3)]
        (their_stdin, stdin), (stdout, their_stdout), (stderr, their_stderr) = pipes
        theirs = [their_stdin, their_stdout, their_stderr]
        process = ForkedProcess(ident, await _reader(loop, stdout), await _reader(loop, stderr))
        self._children[ident] = process
        self.idle.clear()
        try:
            socket.send_fds(self._control, [json.dumps({"start": ident}).encode()], theirs)
        except OSError as error:
            del self._children[ident]
            os.close(stdin)
            raise ServerGoneError from error
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(stdin, "wb", 0))
        transport.write(b"".join(lines))
        process._ended.add_done_callback(lambda _: transport.close())  # noqa: SLF001 - one subject, two classes
        await process.started()
        return process

    async def stop(self) -> None:
        """Stop the server and its children, and remove its directory."""
        self._close()
        with suppress(ProcessLookupError):
            self.process.terminate()
        await self.process.wait()
        self._directory.remove()

    def _read(self) -> None:
        try:
            message = self._control.recv(_MESSAGE_LIMIT_BYTES)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if message:
            self._take(json.loads(message))
        else:
            self._close()

    def _take(self, message: Mapping[str, Any]) -> None:
        if "ready" in message:
            self.ready.set_result(None)
        elif "started" in message:
            self._children[message["started"]].set_started(message["pid"])
        elif "stale" in message:
            self._children.pop(message["stale"]).set_ended(-1, StaleServerError(message["reason"]))
            self._check_idle()
        elif "ended" in message:
            self._children.pop(message["ended"]).set_ended(message["code"])
            self._check_idle()

    def _check_idle(self) -> None:
        if not self._children:
            self.idle.set()

    def _close(self) -> None:
        if not self.is_alive:
            return
        asyncio.get_running_loop().remove_reader(self._control)
        self._control.close()
        if not self.ready.done():
            self.ready.set_exception(ServerGoneError("the server ended while it was preparing itself"))
        for child in self._children.values():
            child.adopt()
        self._children.clear()
        self.idle.set()


async def _reader(loop: asyncio.AbstractEventLoop, descriptor: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=LINE_LIMIT_BYTES, loop=loop)
    file = os.fdopen(descriptor, "rb", 0)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader, loop=loop), file)
    return reader
