"""Where the operator's own servers listen, and listening there.

An address is what Go programs take: ``:8443`` for all interfaces, ``127.0.0.1:8443`` or ``[::1]:8443`` for one, port 0
for any that is free; ``0`` or nothing switches a server off. What cannot be listened on is one clear error.
"""

import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from rolecall.config.errors import ConfigurationError

SHUTDOWN_SECONDS = 1.0
_HIGHEST_PORT = 65535


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen: a host, empty for all interfaces, and a port; ``flag`` is where the user said so."""

    host: str
    port: int
    flag: str

    def __str__(self) -> str:
        """Give the text that a user writes."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, flag: str) -> Address | None:
    """Return the address of a text, None for none. Raises ConfigurationError."""
    if text in ("", "0"):
        return None
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not port.isdecimal() or int(port) > _HIGHEST_PORT or (":" in bare and bare == host):
        raise ConfigurationError(f"{flag}: expected an address such as ':8443', or '0' for none, found {text!r}")
    return Address(bare, int(port), flag)


@asynccontextmanager
async def serve(
    application: web.Application, address: Address, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve an application and yield its port. Raises ConfigurationError when the address cannot be listened on."""
    try:
        listener = _listener(address)
    except OSError as error:
        # A name that cannot be resolved has a number below zero and a text of its own.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise ConfigurationError(f"cannot listen on {str(address)!r} ({address.flag}): {reason}") from error
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
    try:
        await runner.setup()
        await web.SockSite(runner, listener, ssl_context=tls).start()
        yield int(listener.getsockname()[1])
    finally:
        await runner.cleanup()
        listener.close()


def _listener(address: Address) -> socket.socket:
    """Open one socket; for all interfaces it takes both families where the system has both."""
    if address.host:
        family, _, _, _, where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(where, family=family)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", address.port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", address.port))
