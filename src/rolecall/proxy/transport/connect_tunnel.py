"""Connections within a connection: what client-go does when it reaches the proxy as an HTTP proxy.

For exec and port-forward client-go asks, with CONNECT, for a connection to the server behind the proxy. That server is
the proxy itself, so it goes on serving HTTP on the same connection. The requests in there carry no secret any more:
they belong to the run that asked, for as long as it lives. Any other destination is refused.
"""

import asyncio
from dataclasses import dataclass, field
from http import HTTPStatus

from aiohttp import web

from rolecall.proxy.error_responses import error_response
from rolecall.proxy.sessions import Session
from rolecall.proxy.transport.upgrade import TakenOverResponse


class _Both(asyncio.Protocol):
    """Serves a connection by the inner protocol, and lets the outer one know when it is lost."""

    def __init__(self, inner: asyncio.Protocol, outer: asyncio.BaseProtocol) -> None:
        self._inner, self._outer = inner, outer
        self.data_received = inner.data_received  # type: ignore[method-assign] # no detour for each part
        self.pause_writing = inner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = inner.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve."""
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let both clean up."""
        self._inner.connection_lost(exc)
        self._outer.connection_lost(exc)


@dataclass(slots=True)
class ConnectTunnel:
    """The connections that runs have asked for."""

    _runs: dict[asyncio.BaseTransport, Session] = field(default_factory=dict)

    def run_of(self, request: web.BaseRequest) -> Session | None:
        """Return the run whose connection a request came on, None for an ordinary connection."""
        return None if request.transport is None else self._runs.get(request.transport)

    async def serve(self, request: web.BaseRequest, session: Session, server: web.Server) -> web.StreamResponse:
        """Let ``server`` serve a run's connection until it ends or the run is revoked."""
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the run has closed its connection")
        if not _is_own_address(request.raw_path, transport):
            message = f"found CONNECT to {request.raw_path!r}, expected the address of the proxy itself"
            return error_response(HTTPStatus.FORBIDDEN, "Forbidden", message)
        self._runs[transport] = session
        try:
            transport.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            protocol = _Both(server(), transport.get_protocol())
            transport.set_protocol(protocol)
            protocol.connection_made(transport)
            await asyncio.get_running_loop().create_future()
        finally:
            del self._runs[transport]
            transport.close()
        return TakenOverResponse()


def _is_own_address(destination: str, transport: asyncio.Transport) -> bool:
    host, _, port = destination.rpartition(":")
    own_host, own_port = transport.get_extra_info("sockname")[:2]
    return host in {own_host, "localhost"} and port == str(own_port)
