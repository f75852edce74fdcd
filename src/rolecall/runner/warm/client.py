"""The operator's end of the fork server: launch it, ask it for forks, notice when it dies or does not answer.

A server that does not answer in time gets no further requests. Its runs go on: their pidfds tell when they end. When
the server dies, its children get ``runner_process.PARENT_DIED`` and become children of the operator, which reaps them
itself. Every wait for the server has a limit.

A run gets its input after the server has answered. A process that is forked later, because the server was stopped
meanwhile or because the start was cancelled, finds its input closed and ends without having done anything.

The operator's view of a run that the fork server has forked.

It has the interface of a process that asyncio has started. The server sends a pidfd with each process: signals go to
it, so they cannot reach another process that has got the same id, and it tells the end of the process even if the
server does not. Its exit code is then unknown.
"""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

from rolecall.runner.runs.process import LINE_LIMIT_BYTES, inherited_environment
from rolecall.runner.warm.ansible_patches.patches import PatchStatus
from rolecall.runner.warm.forked_child import SLOT_VALUE, SLOT_VARIABLE, TITLE_ROOM
from rolecall.runner.warm.freshness import GROWTH_LIMIT_BYTES
from rolecall.system.blocking_work import run_in_thread
from rolecall.system.files import OwnedDirectory
from rolecall.system.logs import get_logger

UNKNOWN_CODE = 255
"""The exit code of a process whose parent does not tell it, as in asyncio."""

REAP_LIMIT_SECONDS = 10.0
"""How long the server may take to tell the exit code of a process that has ended."""


class ServerGoneError(Exception):
    """The server cannot fork: it has ended, or it does not answer."""


class ForkedProcess:
    """A run that the server has forked; see ``runner.RunProcess``.

    ``on_unreaped`` is called with the name of the run if its process has ended and the server does not say so.
    """

    def __init__(
        self,
        ident: str,
        stdout: asyncio.StreamReader,
        stderr: asyncio.StreamReader,
        on_unreaped: Callable[[str], None],
    ) -> None:
        self.ident = ident
        self.pid = 0
        self.stdout, self.stderr = stdout, stderr
        self._loop = asyncio.get_running_loop()
        self._descriptor = -1
        self._is_adopted = False
        self._on_unreaped = on_unreaped
        self._overdue: asyncio.TimerHandle | None = None
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[int] = self._loop.create_future()

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for a signal; None while it is running."""
        return self._ended.result() if self._ended.done() else None

    async def started(self) -> None:
        """Wait until it has been forked. Raises ServerGoneError or OSError."""
        await asyncio.shield(self._started)

    async def wait(self) -> int:
        """Wait until the process has ended and return its exit code."""
        return await asyncio.shield(self._ended)

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call back when the process has ended."""
        self._ended.add_done_callback(lambda _: callback())

    def terminate(self) -> None:
        """Send SIGTERM. Raises ProcessLookupError if the process has ended."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL. Raises ProcessLookupError if the process has ended."""
        self._signal(signal.SIGKILL)

    def set_started(self, pid: int, descriptor: int) -> None:
        """Record the process id and the pidfd that the server has sent; the pidfd is closed at the end."""
        self.pid, self._descriptor = pid, descriptor
        self._loop.add_reader(descriptor, self._exited)
        if not self._started.done():
            self._started.set_result(None)

    def set_ended(self, code: int, error: Exception | None = None) -> None:
        """Record the exit code; ``error`` says why the process was not even forked."""
        if not self._started.done():
            self._started.set_exception(error or ServerGoneError("the server has ended"))
            self._started.exception()  # nobody may be waiting any more
        if self._overdue:
            self._overdue.cancel()
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
        if not self._ended.done():
            self._ended.set_result(code)

    def adopt(self) -> None:
        """Reap the process in this process, because the server is gone."""
        self._is_adopted = True
        if self._descriptor < 0:
            self.set_ended(-signal.SIGKILL)
        elif self._overdue:
            self._reap()

    def _exited(self) -> None:
        self._loop.remove_reader(self._descriptor)
        if self._is_adopted:
            self._reap()
        else:
            self._overdue = self._loop.call_later(REAP_LIMIT_SECONDS, self._on_unreaped, self.ident)

    def _reap(self) -> None:
        code = UNKNOWN_CODE
        with suppress(ChildProcessError):
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            code = os.waitstatus_to_exitcode(status) if pid else UNKNOWN_CODE
        self.set_ended(code)

    def _signal(self, number: signal.Signals) -> None:
        if self._descriptor < 0:
            raise ProcessLookupError
        signal.pidfd_send_signal(self._descriptor, number)


logger = get_logger("forkserver")

SERVER_MODULE = "rolecall.runner.warm.server"
ANSWER_LIMIT_SECONDS = 10.0
"""How long the server may take to answer a request; it needs milliseconds."""

KILL_LIMIT_SECONDS = 5.0
"""How long a killed server may take to end; one that hangs in the kernel does not."""

_CANCEL_LIMIT_SECONDS = 1.0
_MESSAGE_LIMIT_BYTES = 65536


class StaleServerError(ServerGoneError):
    """What the server has imported is no longer what is on disk, so it refuses to fork."""


class ForkServer:
    """A running server; ``launch`` starts one."""

    def __init__(self, process: asyncio.subprocess.Process, control: socket.socket, directory: OwnedDirectory) -> None:
        self.process = process
        self.is_hanging = False
        """Whether an answer is overdue."""
        self._control = control
        self._directory = directory
        self._children: dict[str, ForkedProcess] = {}
        self._unreaped: list[int] = []
        self._adopting: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        self.idle = asyncio.Event()
        self.idle.set()
        self.ready: asyncio.Future[list[PatchStatus]] = loop.create_future()
        """Done with the patches of Ansible when the server takes requests; it takes none without the patch ``fork``."""
        self.ready.add_done_callback(lambda future: future.cancelled() or future.exception())
        loop.add_reader(control, self._read)

    @classmethod
    async def launch(cls, contents: Sequence[Path], growth_limit_bytes: int = GROWTH_LIMIT_BYTES) -> Self:
        """Start a server that prepares itself for the roles and playbooks in ``contents``. Raises OSError."""
        with ExitStack() as undo:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            undo.enter_context(ours)
            with theirs:
                directory = await run_in_thread(lambda: OwnedDirectory.make("rolecall-fork-server-"))
                undo.callback(directory.remove)
                arguments = (theirs.fileno(), directory.path, growth_limit_bytes, TITLE_ROOM, *contents)
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", SERVER_MODULE),
                    *map(str, arguments),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    env=inherited_environment() | {SLOT_VARIABLE: SLOT_VALUE},
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            ours.settimeout(0)
            undo.pop_all()
        return cls(process, ours, directory)

    @property
    def is_alive(self) -> bool:
        """Whether the server takes requests."""
        return self._control.fileno() >= 0 and not self.is_hanging

    async def start(self, ident: str, lines: Sequence[bytes], discovery: Sequence[int] = ()) -> ForkedProcess:
        """Fork a child and write these lines to its stdin, which stays open.

        It also gets the descriptors of ``discovery``, see ``discovery_image.RunDiscovery``.

        Raises ServerGoneError if there is no answer, and OSError if the server cannot fork. A process that is forked
        after that, or after a cancellation, ends by itself.
        """
        process, stdin = await self._request(ident, discovery)
        try:
            async with asyncio.timeout(ANSWER_LIMIT_SECONDS):
                await process.started()
        except TimeoutError:
            stdin.close()
            self._hangs(ident)
            raise ServerGoneError("the server does not answer") from None
        except asyncio.CancelledError:
            stdin.close()
            await asyncio.wait({asyncio.create_task(process.wait())}, timeout=_CANCEL_LIMIT_SECONDS)
            if not process.pid:
                self._set_ended(ident, UNKNOWN_CODE)
            raise
        except (ServerGoneError, OSError):
            stdin.close()
            raise
        stdin.write(b"".join(lines))
        process.on_end(stdin.close)
        return process

    async def stop(self) -> None:
        """Kill the server, with which its children end, and remove its directory.

        A server that hangs in the kernel is left to itself.
        """
        self._close()
        with suppress(ProcessLookupError):
            self.process.kill()
        if self._adopting:
            await self._adopting
        if self.process.returncode is None:
            logger.error("The fork server could not be killed and is left to itself", pid=self.process.pid)
        await run_in_thread(self._directory.remove)

    async def _request(self, ident: str, discovery: Sequence[int]) -> tuple[ForkedProcess, asyncio.WriteTransport]:
        """Ask for a fork; return the process that may come of it, and its stdin."""
        loop = asyncio.get_running_loop()
        # As files, which close themselves: this may be cancelled between any two of them.
        (their_stdin, stdin), (stdout, their_stdout), (stderr, their_stderr) = (_pipe() for _ in range(3))
        with their_stdin, their_stdout, their_stderr:
            process = ForkedProcess(ident, await _reader(loop, stdout), await _reader(loop, stderr), self._hangs)
            transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, stdin)
            theirs = [*(file.fileno() for file in (their_stdin, their_stdout, their_stderr)), *discovery]
            message = {"start": ident, "descriptors": len(theirs)}
            try:
                socket.send_fds(self._control, [json.dumps(message).encode()], theirs)
            except OSError as error:
                transport.close()
                if isinstance(error, BlockingIOError):  # it has not read any request for a long time
                    self.is_hanging = True
                raise ServerGoneError("the server takes no requests") from error
        self._children[ident] = process
        self.idle.clear()
        return process, transport

    def _hangs(self, ident: str) -> None:
        """Take note that an answer about a child is overdue."""
        self.is_hanging = True
        if child := self._children.pop(ident, None):
            if child.pid:
                self._unreaped.append(child.pid)
            child.set_ended(UNKNOWN_CODE)
        self._check_idle()

    def _read(self) -> None:
        try:
            message, descriptors, _, _ = socket.recv_fds(self._control, _MESSAGE_LIMIT_BYTES, 1)
        except BlockingIOError:
            return
        except OSError:
            message, descriptors = b"", []
        if message:
            self._take(json.loads(message), descriptors)
        else:
            self._close()

    def _take(self, message: Mapping[str, Any], descriptors: list[int]) -> None:
        """Take note of an answer; one that nobody waits for any more is ignored."""
        if "ready" in message:
            self.ready.set_result([PatchStatus(*status) for status in message["ready"]])
        elif "started" in message:
            self._set_started(message["started"], message["pid"], descriptors)
        elif "stale" in message:
            self._set_ended(message["stale"], UNKNOWN_CODE, StaleServerError(message["reason"]))
        elif "failed" in message:
            self._set_ended(message["failed"], UNKNOWN_CODE, OSError(message["reason"]))
        elif "ended" in message:
            self._set_ended(message["ended"], message["code"])

    def _set_started(self, ident: str, pid: int, descriptors: list[int]) -> None:
        child = self._children.get(ident)
        if child and descriptors:
            child.set_started(pid, descriptors[0])
            return
        for descriptor in descriptors:
            os.close(descriptor)
        if child:
            self._set_ended(ident, UNKNOWN_CODE, OSError("the operator has too many open files"))

    def _set_ended(self, ident: str, code: int, error: Exception | None = None) -> None:
        if child := self._children.pop(ident, None):
            child.set_ended(code, error)
        self._check_idle()

    def _check_idle(self) -> None:
        if not self._children:
            self.idle.set()

    def _close(self) -> None:
        if self._control.fileno() < 0:
            return
        asyncio.get_running_loop().remove_reader(self._control)
        self._control.close()
        if not self.ready.done():
            self.ready.set_exception(ServerGoneError("the server ended while it was preparing itself"))
        self._adopting = asyncio.create_task(self._adopt_children())

    async def _adopt_children(self) -> None:
        """Reap the children here from now on: they become the operator's when the server has ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(KILL_LIMIT_SECONDS):
                await self.process.wait()
        for pid in self._unreaped:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 - does not wait
        for child in self._children.values():
            child.adopt()
        self._children.clear()
        self.idle.set()


def _pipe() -> tuple[Any, Any]:
    reading, writing = os.pipe()
    return os.fdopen(reading, "rb", 0), os.fdopen(writing, "wb", 0)


async def _reader(loop: asyncio.AbstractEventLoop, file: Any) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=LINE_LIMIT_BYTES, loop=loop)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader, loop=loop), file)
    return reader
