"""The operator's view of a run that the fork server has forked.

It has the interface of a process that asyncio has started. The server sends a pidfd with each process: signals go to
it, so they cannot reach another process that has got the same id, and it tells the end of the process even if the
server does not. Its exit code is then unknown.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress

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
