"""CONNECT tunnels, which client-go opens because it uses the proxy as an HTTP proxy.

For exec and port-forward, client-go sends CONNECT to get a connection to the server behind the HTTP proxy. That server
is the proxy itself, so the proxy continues to serve HTTP on the same connection. Requests inside the tunnel carry no
secret; they belong to the run that opened the tunnel, until it is revoked. Any other destination is refused.
"""

import asyncio
from dataclasses import dataclass, field
from http import HTTPStatus

from aiohttp import web

from rolecall.runner.proxy.error_responses import error_response
from rolecall.runner.proxy.sessions import Caller
from rolecall.runner.proxy.upgrade import HijackedResponse


class _TunnelProtocol(asyncio.Protocol):
    """Serves a connection with the inner protocol, and notifies the outer one when it is lost."""

    def __init__(self, inner: asyncio.Protocol, outer: asyncio.BaseProtocol) -> None:
        self._inner, self._outer = inner, outer
        self.data_received = inner.data_received  # type: ignore[method-assign] # no extra call per chunk
        self.pause_writing = inner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = inner.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to serve."""
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify both protocols."""
        self._inner.connection_lost(exc)
        self._outer.connection_lost(exc)


@dataclass(slots=True)
class ConnectTunnel:
    """The open CONNECT tunnels."""

    _callers: dict[asyncio.BaseTransport, Caller] = field(default_factory=dict)

    def caller_of(self, request: web.BaseRequest) -> Caller | None:
        """Return the caller who opened the tunnel of a request, None for an ordinary connection.

        A revoked session has none: a request could arrive between the revocation and the end of the tunnel.
        """
        caller = None if request.transport is None else self._callers.get(request.transport)
        return None if caller is None or caller.session.is_revoked else caller

    async def serve(self, request: web.BaseRequest, caller: Caller, server: web.Server) -> web.StreamResponse:
        """Serve a tunnel until it is closed or the run is revoked."""
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the run has closed its connection")
        if not _is_own_address(request.raw_path, transport):
            message = f"found CONNECT to {request.raw_path!r}, expected the address of the proxy itself"
            return error_response(HTTPStatus.FORBIDDEN, "Forbidden", message)
        self._callers[transport] = caller
        try:
            transport.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            protocol = _TunnelProtocol(server(), transport.get_protocol())
            transport.set_protocol(protocol)
            protocol.connection_made(transport)
            await asyncio.get_running_loop().create_future()
        finally:
            del self._callers[transport]
            transport.close()
        return HijackedResponse()


def _is_own_address(destination: str, transport: asyncio.Transport) -> bool:
    host, _, port = destination.rpartition(":")
    own_host, own_port = transport.get_extra_info("sockname")[:2]
    return host in {own_host, "localhost"} and port == str(own_port)
