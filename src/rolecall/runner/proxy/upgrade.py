"""Connections that the proxy takes over from aiohttp: upgrades of exec, attach and port-forward, and CONNECT tunnels.

An upgrade (WebSocket or SPDY) goes to the API server on a new connection, with the operator's credentials. If the API
server switches protocols, bytes are copied between the two connections in both directions until either side closes or
the run is revoked. If it declines the upgrade, its response is returned like any other. The upgraded protocol is not
inspected, but the proxy selects the version whose errors have an HTTP status, see ``_offer_without_v5``.

client-go opens CONNECT tunnels for exec and port-forward because it uses the proxy as an HTTP proxy: it asks for a
connection to the server behind the HTTP proxy. That server is the proxy itself, so the proxy continues to serve HTTP on
the same connection. Requests inside the tunnel carry no secret; they belong to the run that opened the tunnel, until it
is revoked. Any other destination is rejected. The Python client opens its tunnels without a secret: such a tunnel gives
no access, and each request inside it needs the secret, which the Python client sends there.
"""

import asyncio
import http.client
import io
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from rolecall.kube.client import Client
from rolecall.kube.errors import UnreachableError
from rolecall.kube.transport import probe_peer, text_of
from rolecall.runner.proxy.forward import (
    CONNECT_TIMEOUT_SECONDS,
    Headers,
    TraceContext,
    end_to_end_headers,
    error_response,
    upstream_headers,
)
from rolecall.runner.proxy.request_info import origin_form
from rolecall.runner.proxy.sessions import Caller

CHUNK_BYTES: Final = 1 << 16
PROTOCOL_HEADER: Final = "Sec-WebSocket-Protocol"
V4_CHANNEL: Final = "v4.channel.k8s.io"
V5_CHANNEL: Final = "v5.channel.k8s.io"
CLOSE_TIMEOUT_SECONDS: Final = 5.0
"""How long one side may take to read the remaining bytes after the other side has closed."""

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class HijackedResponse(web.StreamResponse):
    """The response for a request whose connection was taken over from aiohttp: it sends nothing."""

    def __init__(self) -> None:
        super().__init__(status=HTTPStatus.SWITCHING_PROTOCOLS)

    async def prepare(self, request: web.BaseRequest) -> None:
        """Send nothing."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Send nothing."""


class _HijackedProtocol(asyncio.StreamReaderProtocol):
    """Reads from a connection that was taken over from aiohttp, and notifies aiohttp when it is lost."""

    def __init__(self, reader: asyncio.StreamReader, previous: asyncio.BaseProtocol) -> None:
        super().__init__(reader)
        self._previous = previous

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify both the reader and aiohttp."""
        super().connection_lost(exc)
        self._previous.connection_lost(exc)


def is_upgrade(request: web.BaseRequest) -> bool:
    """Return whether a request wants to upgrade the protocol."""
    return "Upgrade" in request.headers and "upgrade" in request.headers.get("Connection", "").lower()


async def forward_upgrade(request: web.BaseRequest, client: Client, context: TraceContext) -> web.StreamResponse:
    """Forward an upgrade request with its trace context, and copy bytes until the upgraded connection ends.

    Raises UnreachableError if the connection fails, OSError or EOFError if it closes before a complete response.
    """
    url = URL(client.base_url)
    headers = upstream_headers(request.headers, context)
    headers.update(await client.auth_headers())
    headers["Host"] = url.authority
    headers["Connection"] = "Upgrade"
    headers["Upgrade"] = request.headers["Upgrade"]
    _offer_without_v5(headers)
    target = url.raw_path.rstrip("/") + origin_form(request.raw_path)
    lines = [f"{request.method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    reader, writer = await _connect(client, url)
    try:
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogateescape"))
        head = await reader.readuntil(b"\r\n\r\n")
        _, _, status = head.partition(b" ")
        if int(status[:3]) != HTTPStatus.SWITCHING_PROTOCOLS:
            return await _declined_response(reader, head)
        client_reader, client_writer = _take_over(request)
        client_writer.write(head)
        await _pipe((client_reader, client_writer), (reader, writer))
        return HijackedResponse()
    finally:
        writer.transport.abort()


async def _connect(client: Client, url: URL) -> Connection:
    tls, name = (client.ssl_context, client.tls_server_name) if url.scheme == "https" else (None, None)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_connection(url.host, url.port, ssl=tls, server_hostname=name)
    except OSError as error:
        raise UnreachableError(f"connection failed: {text_of(error)}") from error
    probe_peer(writer.get_extra_info("socket"))
    return reader, writer


def _offer_without_v5(headers: Headers) -> None:
    """Remove version 5 of the remote command protocol from an offer that includes version 4.

    With version 5 an API server may switch protocols before it connects to the kubelet. An unreachable kubelet is then
    an error without an exit code in the stream, which the Python client and k8s_exec fail to parse. kubectl offers only
    version 5 and reports such an error.
    """
    offered = [token.strip() for value in headers.getall(PROTOCOL_HEADER, []) for token in value.split(",")]
    if {V4_CHANNEL, V5_CHANNEL} <= set(offered):
        headers[PROTOCOL_HEADER] = ", ".join(token for token in offered if token != V5_CHANNEL)


async def _declined_response(reader: asyncio.StreamReader, head: bytes) -> web.Response:
    """Return the response of an API server that does not switch protocols."""
    status_line, _, fields = head.partition(b"\r\n")
    _, status, reason = [*status_line.decode("latin-1").split(" ", 2), "", ""][:3]
    received = CIMultiDict(http.client.parse_headers(io.BytesIO(fields)).items())
    if "chunked" in received.get("Transfer-Encoding", "").lower():
        body = await _read_chunks(reader)
    elif "Content-Length" in received:
        body = await reader.readexactly(int(received["Content-Length"]))
    else:
        body = await reader.read()
    headers = end_to_end_headers(received)
    headers.popall("Content-Length", None)
    return web.Response(status=int(status), reason=reason, headers=headers, body=body)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    chunks = []
    while size := int((await reader.readline()).partition(b";")[0], 16):
        chunks.append(await reader.readexactly(size))
        await reader.readline()
    return b"".join(chunks)


def _take_over(request: web.BaseRequest) -> Connection:
    """Take over the run's connection from aiohttp; no byte is lost, because the client waits for the response."""
    transport = request.transport
    if transport is None:
        raise ConnectionResetError("the run has closed its connection")
    reader = asyncio.StreamReader()
    protocol = _HijackedProtocol(reader, transport.get_protocol())
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    if not transport.is_reading():
        transport.resume_reading()
    return reader, asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())


async def _pipe(one: Connection, other: Connection) -> None:
    """Copy bytes in both directions until one side closes; close both after they have read the remaining bytes."""
    directions = [asyncio.create_task(_copy(one[0], other[1])), asyncio.create_task(_copy(other[0], one[1]))]
    try:
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)
        await asyncio.gather(_close(one[1]), _close(other[1]))
    finally:
        one[1].transport.abort()


async def _close(writer: asyncio.StreamWriter) -> None:
    """Close a connection, and wait for a limited time until the peer has read everything."""
    writer.close()
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
            await writer.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK_BYTES):
        writer.write(data)
        await writer.drain()


def is_own_address(transport: asyncio.BaseTransport, authority: str) -> bool:
    """Return whether a host with its port is the address at which the proxy accepted a connection."""
    host, port = transport.get_extra_info("sockname")[:2]
    return authority in (f"{host}:{port}", f"localhost:{port}")


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
class ConnectTunnels:
    """The open CONNECT tunnels."""

    _callers: dict[asyncio.BaseTransport, Caller] = field(default_factory=dict)

    def caller_of(self, request: web.BaseRequest) -> Caller | None:
        """Return the caller that opened the tunnel of a request, None for an ordinary connection.

        A revoked session has none: a request could arrive between the revocation and the end of the tunnel.
        """
        caller = None if request.transport is None else self._callers.get(request.transport)
        return None if caller is None or caller.session.is_revoked else caller

    async def serve(self, request: web.BaseRequest, caller: Caller | None, server: web.Server) -> web.StreamResponse:
        """Serve a tunnel until it is closed or the run is revoked; ``caller`` is None if it was opened anonymously."""
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the run has closed its connection")
        if not is_own_address(transport, request.raw_path):
            message = f"found CONNECT to {request.raw_path!r}, expected the address of the proxy itself"
            return error_response(HTTPStatus.FORBIDDEN, "Forbidden", message)
        if caller is not None:
            self._callers[transport] = caller
        try:
            transport.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            protocol = _TunnelProtocol(server(), transport.get_protocol())
            transport.set_protocol(protocol)
            protocol.connection_made(transport)
            await asyncio.get_running_loop().create_future()
        finally:
            self._callers.pop(transport, None)
            transport.close()
        return HijackedResponse()
