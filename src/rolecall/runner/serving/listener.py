"""The addresses of the operator's own servers, and how they listen.

Addresses have the format of Go programs: ``:8443`` for all interfaces, ``127.0.0.1:8443`` or ``[::1]:8443`` for one,
port 0 for any free port; ``0`` or an empty string disables a server. If the operator cannot listen on an address, it
reports one error with the flag. A client that sends nothing, or does not read its answer, is disconnected after a time.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from rolecall.runner.config.errors import ConfigurationError
from rolecall.system.limited_listener import LimitedListener

SHUTDOWN_SECONDS = 1.0
CONNECTIONS = 64
"""How many connections each server has at most."""

REQUEST_SECONDS = 30.0
"""How long a client may take to send a request, and then to read the answer."""

_HIGHEST_PORT = 65535


@dataclass(frozen=True, slots=True)
class Address:
    """An address to listen on; ``host`` is empty for all interfaces, ``flag`` is the flag that sets the address."""

    host: str
    port: int
    flag: str

    def __str__(self) -> str:
        """Return the address as written in the flag."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, flag: str) -> Address | None:
    """Return the address in the text, None if it disables the server. Raise ConfigurationError."""
    if text in ("", "0"):
        return None
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not port.isdecimal() or int(port) > _HIGHEST_PORT or (":" in bare and bare == host):
        raise ConfigurationError(f"{flag}: expected an address such as ':8443', or '0' to disable, found {text!r}")
    return Address(bare, int(port), flag)


@asynccontextmanager
async def serve(
    application: web.Application, address: Address, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve an application and yield its port. Raise ConfigurationError if it cannot listen on the address."""
    try:
        listener = _listener(address)
    except OSError as error:
        # An unresolvable name has an error number below zero and its own text.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise ConfigurationError(f"cannot listen on {str(address)!r} ({address.flag}): {reason}") from error
    application.middlewares.append(_answered_in_time(listener))
    runner = web.AppRunner(
        application, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS, keepalive_timeout=REQUEST_SECONDS
    )
    try:
        await runner.setup()
        await web.SockSite(runner, listener, ssl_context=tls).start()
        yield int(listener.getsockname()[1])
    finally:
        await runner.cleanup()
        listener.close()


def _answered_in_time(listener: LimitedListener) -> Middleware:
    """Return what keeps a connection open while its request is answered, and ends it if that takes too long."""

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        with listener.in_use(request.transport):
            try:
                async with asyncio.timeout(REQUEST_SECONDS):
                    response = await handler(request)
                    await response.prepare(request)
                    await response.write_eof()
            except TimeoutError:
                if request.transport is not None:
                    request.transport.abort()
                raise ConnectionResetError("the client took too long") from None
            return response

    return answer


def _listener(address: Address) -> LimitedListener:
    """Open a socket; for all interfaces, use IPv4 and IPv6 if the system supports both."""
    return LimitedListener(_open(address), CONNECTIONS, address.flag.removeprefix("--"))


def _open(address: Address) -> socket.socket:
    if address.host:
        family, _, _, _, where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(where, family=family)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", address.port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", address.port))
