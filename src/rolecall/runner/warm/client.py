"""The operator's end of the fork server: launch it, request forks, and notice that it has exited or doesn't respond.

Every wait for the server has a limit, and the limit counts only time without progress: a server that uses CPU time is
slow because CPU is short, and replacing it would discard its work and need more CPU. A server that neither responds nor
makes progress gets no further requests. Its runs continue; their pidfds report when they end. When the server exits,
its children get ``runner_process.PARENT_DIED`` and become children of the operator, which reaps them itself.

A run gets its input after the server has responded. A process that is forked later, because the server was suspended
or because the start was cancelled, finds its input closed and ends without having done anything.
"""

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil

from rolecall.runner.runs.process import LINE_LIMIT_BYTES, inherited_environment
from rolecall.runner.warm.ansible_patches.patches import PatchStatus
from rolecall.runner.warm.forked_child import SLOT_VALUE, SLOT_VARIABLE, TITLE_ROOM
from rolecall.system.blocking_work import run_in_thread
from rolecall.system.files import OwnedDirectory
from rolecall.system.logs import get_logger

logger = get_logger("forkserver")

SERVER_MODULE = "rolecall.runner.warm.server"

UNKNOWN_CODE = 255
"""The exit code of a process whose parent doesn't report it, as in asyncio."""

RESPONSE_LIMIT_SECONDS = 10.0
"""How long a response, or the exit code of a child that has ended, may take while the server makes no progress.

It needs milliseconds.
"""

KILL_LIMIT_SECONDS = 5.0
"""How long a killed server may take to end; one that hangs in the kernel doesn't."""

_SHORTAGES = {
    psutil.STATUS_RUNNING: "CPU: raise the pod's CPU limit or request",
    psutil.STATUS_DISK_SLEEP: "disk or memory: raise the pod's memory limit, or use a faster disk",
    psutil.STATUS_STOPPED: "nothing: a signal has stopped the server's process; send it SIGCONT",
}
_OTHER_SHORTAGE = "no resource: the server waits, probably in a plugin or collection that waits when it is imported"
_CANCEL_LIMIT_SECONDS = 1.0
_MESSAGE_LIMIT_BYTES = 65536


class ServerGoneError(Exception):
    """The server can't fork: it has exited, or it doesn't respond."""


class StaleServerError(ServerGoneError):
    """The files that the server has imported have changed, so it refuses to fork."""


@dataclass(slots=True, eq=False)
class ForkedProcess:
    """A forked run, with the interface of a process that asyncio has started; see ``process.RunProcess``.

    The server sends a pidfd with each process. Signals go to it, so they can't reach another process that got the same
    id. It also reports the end of the process; ``await_code`` then waits for the exit code.
    """

    ident: str
    stdin: asyncio.WriteTransport
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader
    await_code: Callable[["ForkedProcess"], Coroutine[Any, Any, None]]
    pid: int = 0
    started: asyncio.Future[None] = field(default_factory=asyncio.Future)
    """Done when the process has been forked; or ServerGoneError or OSError."""
    ended: asyncio.Future[int] = field(default_factory=asyncio.Future)
    """Done with the exit code when the process has ended."""
    _descriptor: int = -1
    _is_adopted: bool = False
    _reporting: asyncio.Task[None] | None = None
    """Waits for the exit code of the process, which has ended."""

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for a signal; None while it is running."""
        return self.ended.result() if self.ended.done() else None

    async def wait(self) -> int:
        """Wait until the process has ended and return its exit code."""
        return await asyncio.shield(self.ended)

    def terminate(self) -> None:
        """Send SIGTERM. Raises ProcessLookupError if the process has ended."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL. Raises ProcessLookupError if the process has ended."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._descriptor < 0:
            raise ProcessLookupError
        signal.pidfd_send_signal(self._descriptor, number)

    def set_started(self, pid: int, descriptor: int) -> None:
        """Record the process id and the pidfd that the server has sent; the pidfd is closed at the end."""
        self.pid, self._descriptor = pid, descriptor
        asyncio.get_running_loop().add_reader(descriptor, self._on_exit)
        if not self.started.done():
            self.started.set_result(None)

    def set_ended(self, code: int, error: Exception | None = None) -> None:
        """Record the exit code, or the ``error`` because of which the process wasn't even forked."""
        if not self.started.done():
            self.started.set_exception(error or ServerGoneError("the server has exited"))
            self.started.exception()  # the caller may have been cancelled
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
        self.stdin.close()
        if not self.ended.done():
            self.ended.set_result(code)

    def adopt(self) -> None:
        """Reap the process in this process, because the server has exited."""
        self._is_adopted = True
        if self._descriptor < 0:
            self.set_ended(-signal.SIGKILL)
        elif self._reporting:
            self._reap()

    def _on_exit(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        if self._is_adopted:
            self._reap()
        else:
            self._reporting = asyncio.create_task(self.await_code(self))

    def _reap(self) -> None:
        code = UNKNOWN_CODE
        with suppress(ChildProcessError):
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            code = os.waitstatus_to_exitcode(status) if pid else UNKNOWN_CODE
        self.set_ended(code)


class ForkServer:
    """A running server; ``launch`` starts one."""

    def __init__(self, process: asyncio.subprocess.Process, control: socket.socket, directory: OwnedDirectory) -> None:
        self.process = process
        self.is_unresponsive = False
        """Whether a response is overdue."""
        self._control = control
        self._directory = directory
        self._children: dict[str, ForkedProcess] = {}
        self._unreaped: list[int] = []
        self._adopting: asyncio.Task[None] | None = None
        self.launched_at = time.monotonic()
        self._progress = (0.0, self.launched_at)
        """The CPU time when it was last known to grow, and the time of that."""
        loop = asyncio.get_running_loop()
        self.idle = asyncio.Event()
        self.idle.set()
        self.ready: asyncio.Future[list[PatchStatus]] = loop.create_future()
        """Done with the patches of Ansible when the server takes requests; it takes none without the patch ``fork``."""
        self.ready.add_done_callback(lambda future: future.cancelled() or future.exception())
        loop.add_reader(control, self._read)

    @classmethod
    async def launch(cls, contents: Sequence[Path], hash_seed: int = 0) -> Self:
        """Start a server that prepares itself for the roles and playbooks in ``contents``. Raises OSError.

        ``hash_seed`` orders sets in its runs, unless PYTHONHASHSEED does; 0 is a random one.
        """
        seed = {"PYTHONHASHSEED": str(hash_seed)} if hash_seed else {}
        with ExitStack() as undo:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            undo.enter_context(ours)
            with theirs:
                directory = await run_in_thread(lambda: OwnedDirectory.make("rolecall-fork-server-"))
                undo.callback(directory.remove)
                arguments = (theirs.fileno(), directory.path, TITLE_ROOM, *contents)
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", SERVER_MODULE),
                    *map(str, arguments),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    env=seed | inherited_environment() | {SLOT_VARIABLE: SLOT_VALUE},
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            ours.settimeout(0)
            undo.pop_all()
        return cls(process, ours, directory)

    @property
    def is_alive(self) -> bool:
        """Whether the server takes requests."""
        return self._control.fileno() >= 0 and not self.is_unresponsive

    @property
    def is_unused(self) -> bool:
        """Whether the server is ready and takes requests, and has no runs."""
        return self.is_alive and self.ready.done() and self.idle.is_set()

    @property
    def cpu_seconds(self) -> float:
        """The CPU time that the server has used; 0 if it has ended."""
        try:
            times = psutil.Process(self.process.pid).cpu_times()
        except psutil.Error:
            return 0.0
        return float(times.user + times.system)

    @property
    def stalled_seconds(self) -> float:
        """For how long the server has made no progress, that is, used no CPU time; 0 if it has since the last read."""
        used, now = self.cpu_seconds, time.monotonic()
        if used > self._progress[0]:
            self._progress = (used, now)
        return now - self._progress[1]

    @property
    def shortage(self) -> str:
        """What keeps the server from being faster, and the remedy."""
        try:
            return _SHORTAGES.get(psutil.Process(self.process.pid).status(), _OTHER_SHORTAGE)
        except psutil.Error:
            return _OTHER_SHORTAGE

    async def start(self, ident: str, lines: Sequence[bytes], discovery: Sequence[int] = ()) -> ForkedProcess:
        """Fork a child and write these lines to its stdin, which stays open.

        The child also gets the descriptors of ``discovery``, see ``discovery_image.RunDiscovery``.

        Raises ServerGoneError if there is no response, and OSError if the server can't fork. A process that is forked
        after that, or after a cancellation, ends by itself.
        """
        process = await self._request(ident, discovery)
        try:
            if not await self._responds(process.started):
                self._set_unresponsive(process)
                raise ServerGoneError("the server doesn't respond")
            process.started.result()
        except asyncio.CancelledError:
            process.stdin.close()
            await asyncio.wait({process.ended}, timeout=_CANCEL_LIMIT_SECONDS)
            if not process.pid:
                self._set_ended(ident)
            raise
        process.stdin.write(b"".join(lines))
        return process

    async def stop(self) -> None:
        """Kill the server, with which its children end, and remove its directory.

        A server that hangs in the kernel is left running.
        """
        self._close()
        with suppress(ProcessLookupError):
            self.process.kill()
        if self._adopting:
            await self._adopting
        if self.process.returncode is None:
            logger.error("Failed to kill the fork server; leaving it running", pid=self.process.pid)
        await run_in_thread(self._directory.remove)

    async def _request(self, ident: str, discovery: Sequence[int]) -> ForkedProcess:
        """Send a request for a fork; return the process that the response will be about. Raises ServerGoneError."""
        loop = asyncio.get_running_loop()
        # As files, which close themselves: this may be cancelled between any two of them.
        (their_stdin, stdin), (stdout, their_stdout), (stderr, their_stderr) = (_pipe() for _ in range(3))
        with their_stdin, their_stdout, their_stderr:
            readers = await _reader(stdout), await _reader(stderr)
            transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, stdin)
            theirs = [*(file.fileno() for file in (their_stdin, their_stdout, their_stderr)), *discovery]
            message = {"start": ident, "descriptors": len(theirs)}
            try:
                socket.send_fds(self._control, [json.dumps(message).encode()], theirs)
            except OSError as error:
                transport.close()
                if isinstance(error, BlockingIOError):  # it hasn't read any request for a long time
                    self.is_unresponsive = True
                raise ServerGoneError("the server takes no requests") from error
        process = self._children[ident] = ForkedProcess(ident, transport, *readers, self._await_code)
        self.idle.clear()
        return process

    def _read(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, _MESSAGE_LIMIT_BYTES, 1)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        if data:
            self._handle(json.loads(data), descriptors)
        else:
            self._close()

    def _handle(self, message: Mapping[str, Any], descriptors: list[int]) -> None:
        """Handle a message of the server; a response that arrives too late is ignored."""
        match message:
            case {"ready": statuses}:
                self.ready.set_result([PatchStatus(*status) for status in statuses])
            case {"started": ident, "pid": pid} if child := self._children.get(ident):
                if descriptors:
                    child.set_started(pid, descriptors.pop())
                else:
                    self._set_ended(ident, error=OSError("the operator has too many open files"))
            case {"stale": ident, "reason": reason}:
                self._set_ended(ident, error=StaleServerError(reason))
            case {"failed": ident, "reason": reason}:
                self._set_ended(ident, error=OSError(reason))
            case {"ended": ident, "code": code}:
                self._set_ended(ident, code)
        for descriptor in descriptors:
            os.close(descriptor)

    def _set_ended(self, ident: str, code: int = UNKNOWN_CODE, error: Exception | None = None) -> None:
        if child := self._children.pop(ident, None):
            child.set_ended(code, error)
        if not self._children:
            self.idle.set()

    async def _responds(self, response: asyncio.Future[Any]) -> bool:
        """Wait for a response while the server makes progress; return whether it has come."""
        requested = time.monotonic()
        while not response.done():
            waited = min(self.stalled_seconds, time.monotonic() - requested)
            if waited >= RESPONSE_LIMIT_SECONDS:
                return False
            await asyncio.wait({response}, timeout=RESPONSE_LIMIT_SECONDS - waited)
        return True

    async def _await_code(self, child: ForkedProcess) -> None:
        """Wait for the exit code of a process that has ended."""
        if not await self._responds(child.ended):
            self._set_unresponsive(child)

    def _set_unresponsive(self, child: ForkedProcess) -> None:
        """Record that a response about a child is overdue."""
        self.is_unresponsive = True
        if child.pid:
            self._unreaped.append(child.pid)
        self._set_ended(child.ident)

    def _close(self) -> None:
        if self._control.fileno() < 0:
            return
        asyncio.get_running_loop().remove_reader(self._control)
        self._control.close()
        if not self.ready.done():
            self.ready.set_exception(ServerGoneError("the server exited while it was preparing itself"))
        self._adopting = asyncio.create_task(self._adopt_children())

    async def _adopt_children(self) -> None:
        """Reap the children here, because they become the operator's when the server has exited."""
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


async def _reader(file: Any) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=LINE_LIMIT_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    return reader
