"""A listening socket with a limit on its open connections, and a log for invalid requests of their clients.

Any pod can connect to the operator's servers. Without a limit, connections could use up the file descriptors and the
memory of the operator. But a limit that an attacker shares with others shuts them out once the attacker reaches it. So
a new connection above the limit replaces an old one, and no client can keep more than its share:

- Connections whose request is being served, and all others, have separate parts of the limit. Neither idle or
  half-open connections nor clients that read slowly can take the part of the other.
- In each part, the address with most connections loses its oldest one. So only as many addresses as there are places
  can replace a connection of another address, and only with connections that are newer.
- One connection is accepted in each turn of the event loop, so that a request which has arrived is read before many
  newer connections replace its own.

Everyone who connects can send invalid requests, too: the log has at most one short line a minute about them.
"""

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from rolecall.system.logs import get_logger

logger = get_logger("serving")

BACKLOG = 1024
"""The connections that the kernel queues: each waits for one turn of the event loop per connection before it."""

_LOG_EVERY_SECONDS = 60.0


@dataclass(slots=True)
class _Connection:
    socket: socket.socket
    peer: str
    since: float
    """The time of its last change: accepted, request received, or response sent."""

    is_in_use: bool = False


class LimitedListener(socket.socket):
    """A listening socket with at most ``limit`` open connections; ``name`` identifies the server in the log.

    Up to ``protected`` connections aren't replaced while their requests are served.
    """

    def __init__(self, listener: socket.socket, limit: int, protected: int, name: str) -> None:
        super().__init__(listener.family, listener.type, listener.proto, fileno=listener.detach())
        self._limit, self._protected, self._name = limit, protected, name
        self._connections: dict[int, _Connection] = {}
        self._must_pause = False
        self._warn_at = 0.0

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept the next connection. Raise BlockingIOError if there is none, if it is rejected, and after each one.

        An event loop accepts connections until this error, and continues in its next turn.
        """
        if self._must_pause:
            self._must_pause = False
            raise BlockingIOError
        connection, address = super().accept()
        if not self._make_room(address[0]):
            connection.close()
            raise BlockingIOError
        self._must_pause = True
        self._connections[connection.fileno()] = _Connection(connection, address[0], time.monotonic())
        return connection, address

    @contextmanager
    def in_use(self, transport: asyncio.BaseTransport | None) -> Iterator[None]:
        """Mark the connection of a request as in use while the request is served."""
        accepted = transport.get_extra_info("socket") if transport is not None else None
        connection = self._connections.get(accepted.fileno()) if accepted is not None else None
        if connection is not None:
            connection.is_in_use, connection.since = True, time.monotonic()
        try:
            yield
        finally:
            if connection is not None:
                connection.is_in_use, connection.since = False, time.monotonic()

    def _make_room(self, peer: str) -> bool:
        """Return whether another connection, of this address, can be open, after closing one if necessary."""
        # A transport closes its socket when its connection ends.
        self._connections = {fd: each for fd, each in self._connections.items() if each.socket.fileno() == fd}
        if len(self._connections) < self._limit:
            return True
        now = time.monotonic()
        if now >= self._warn_at:
            self._warn_at = now + _LOG_EVERY_SECONDS
            logger.warning("Too many connections; new ones replace old ones", server=self._name, limit=self._limit)
        is_in_use = sum(each.is_in_use for each in self._connections.values()) > self._protected
        part = {fd: each for fd, each in self._connections.items() if each.is_in_use == is_in_use}
        if not part:
            return False
        of_peer = Counter(each.peer for each in part.values())
        of_peer[peer] += not is_in_use  # the new connection will be one of the others
        replaced = min(part, key=lambda fd: (-of_peer[part[fd].peer], part[fd].since))
        with suppress(OSError):  # the peer may have closed it just now
            self._connections.pop(replaced).socket.shutdown(socket.SHUT_RDWR)
        return True


class RequestLog:
    """The logger of an aiohttp server: one line a minute for errors of its clients, a traceback for all others."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._log_at = 0.0

    def exception(self, message: str, *args: object, exc_info: BaseException | None = None) -> None:
        """Log an error while a request was read or served; of a client's, only its type, as its text may be secret."""
        if not isinstance(exc_info, HttpProcessingError | web.RequestPayloadError | ConnectionError):
            text = message % args if args else message
            logger.error(text, server=self._name, exc_info=exc_info)
            return
        is_due = (now := time.monotonic()) >= self._log_at
        self._log_at = now + _LOG_EVERY_SECONDS if is_due else self._log_at
        log = logger.info if is_due else logger.debug
        log("Invalid request, or the client disconnected", server=self._name, error=type(exc_info).__name__)

    debug = exception
