"""A listening socket with a limit on its open connections.

Any pod can connect to the operator's servers. Without a limit, connections could use up the file descriptors and the
memory of the operator. With one, a connection above the limit replaces the one that has been idle longest, so that idle
connections block no client; if none is idle, the new one is closed.
"""

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from rolecall.system.logs import get_logger

logger = get_logger("serving")

IDLE_SECONDS = 1.0
_WARN_EVERY_SECONDS = 60.0


@dataclass(slots=True)
class _Connection:
    socket: socket.socket
    idle_since: float | None


class LimitedListener(socket.socket):
    """A listening socket with at most ``limit`` open connections; ``name`` identifies the server in the log.

    A connection without a request for ``idle_seconds`` is idle; a new one gets this time to send its first.
    """

    def __init__(self, listener: socket.socket, limit: int, name: str, idle_seconds: float = IDLE_SECONDS) -> None:
        super().__init__(listener.family, listener.type, listener.proto, fileno=listener.detach())
        self._limit, self._name, self._idle_seconds = limit, name, idle_seconds
        self._connections: dict[int, _Connection] = {}
        self._warn_at = 0.0

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept the next connection within the limit. Raise BlockingIOError if there is none."""
        while True:
            connection, address = super().accept()
            if self._make_room():
                self._connections[connection.fileno()] = _Connection(connection, time.monotonic())
                return connection, address
            connection.close()

    @contextmanager
    def in_use(self, transport: asyncio.BaseTransport | None) -> Iterator[None]:
        """Keep the connection of a request open while the request is handled."""
        accepted = transport.get_extra_info("socket") if transport is not None else None
        connection = self._connections.get(accepted.fileno()) if accepted is not None else None
        if connection is not None:
            connection.idle_since = None
        try:
            yield
        finally:
            if connection is not None:
                connection.idle_since = time.monotonic()

    def _make_room(self) -> bool:
        """Return whether another connection can be open, after closing an idle one if necessary."""
        # A transport closes its socket when its connection ends.
        self._connections = {fd: each for fd, each in self._connections.items() if each.socket.fileno() == fd}
        if len(self._connections) < self._limit:
            return True
        now = time.monotonic()
        if now >= self._warn_at:
            self._warn_at = now + _WARN_EVERY_SECONDS
            message = "Too many connections; closing idle ones, rejecting others"
            logger.warning(message, server=self._name, limit=self._limit)
        idle = {fd: each.idle_since for fd, each in self._connections.items() if each.idle_since is not None}
        longest = min(idle, key=lambda fd: idle[fd], default=None)
        if longest is None or now - idle[longest] < self._idle_seconds:
            return False
        with suppress(OSError):  # the peer may have closed it just now
            self._connections.pop(longest).socket.shutdown(socket.SHUT_RDWR)
        return True
