"""Upgraded connections: exec, attach and port-forward, over WebSocket or SPDY.

The request goes to the API server on a new connection, with the operator's credentials. If the API server switches
protocols, bytes are copied between the two connections in both directions until either side closes or the run is
revoked. If it declines the upgrade, its response is returned like any other. The upgraded protocol is not inspected,
but the proxy selects the version whose errors have an HTTP status, see ``_offer_without_v5``.
"""

import asyncio
import http.client
import io
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from rolecall.kube.errors import UnreachableError
from rolecall.kube.transport import probe_peer
from rolecall.runner.proxy.forward import (
    CONNECT_TIMEOUT_SECONDS,
    Headers,
    TraceContext,
    Upstream,
    end_to_end_headers,
    upstream_headers,
)
from rolecall.runner.proxy.request_info import origin_form

CHUNK_BYTES: Final = 1 << 16
SWITCHING_PROTOCOLS: Final = 101
PROTOCOL_HEADER: Final = "Sec-WebSocket-Protocol"
V4_CHANNEL: Final = "v4.channel.k8s.io"
V5_CHANNEL: Final = "v5.channel.k8s.io"
CLOSE_TIMEOUT_SECONDS: Final = 5.0
"""How long one side may take to read the remaining bytes after the other side has closed."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The status line and headers of a response, raw and parsed."""

    raw: bytes
    status: int
    reason: str
    headers: Headers


class HijackedResponse(web.StreamResponse):
    """The response for a request whose connection was hijacked from aiohttp: it sends nothing."""

    async def prepare(self, request: web.BaseRequest) -> None:
        """Send nothing."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Send nothing."""


class _HijackedProtocol(asyncio.StreamReaderProtocol):
    """Reads from a connection that was hijacked from aiohttp, and notifies aiohttp when it is lost."""

    def __init__(self, reader: asyncio.StreamReader, previous: asyncio.BaseProtocol) -> None:
        super().__init__(reader)
        self._previous = previous

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify both the reader and aiohttp."""
        super().connection_lost(exc)
        self._previous.connection_lost(exc)


def is_upgrade(request: web.BaseRequest) -> bool:
    """Return whether a request asks for a protocol upgrade."""
    return "Upgrade" in request.headers and "upgrade" in request.headers.get("Connection", "").lower()


async def forward_upgrade(request: web.BaseRequest, upstream: Upstream, context: TraceContext) -> web.StreamResponse:
    """Forward an upgrade request with its trace context, and copy bytes until the upgraded connection ends.

    Raises UnreachableError if the connection fails, OSError or EOFError if it closes before a complete response.
    """
    reader, writer = await _connect(upstream)
    try:
        writer.write(await _request_head(request, upstream, context))
        head = await _read_head(reader)
        if head.status != SWITCHING_PROTOCOLS:
            return await _declined_response(reader, head)
        client_reader, client_writer = _hijack(request)
        client_writer.write(head.raw)
        await _pipe((client_reader, client_writer), (reader, writer))
        return HijackedResponse()
    finally:
        writer.transport.abort()


async def _connect(upstream: Upstream) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    url = URL(upstream.base_url)
    is_tls = url.scheme == "https"
    context, name = (upstream.ssl_context, upstream.tls_server_name) if is_tls else (None, None)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_connection(url.host, url.port, ssl=context, server_hostname=name)
    except OSError as error:
        raise UnreachableError(f"connection failed: {error!r}") from error
    probe_peer(writer.get_extra_info("socket"))
    return reader, writer


async def _request_head(request: web.BaseRequest, upstream: Upstream, context: TraceContext) -> bytes:
    url = URL(upstream.base_url)
    headers = upstream_headers(request.headers)
    context.put_into(headers)
    headers.update(await upstream.auth_headers())
    headers["Host"] = url.authority
    headers["Connection"] = "Upgrade"
    headers["Upgrade"] = request.headers["Upgrade"]
    _offer_without_v5(headers)
    target = url.raw_path.rstrip("/") + origin_form(request.raw_path)
    lines = [f"{request.method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogateescape")


def _offer_without_v5(headers: Headers) -> None:
    """Remove version 5 of the remote command protocol from an offer that includes version 4.

    With version 5 an API server may switch protocols before it connects to the kubelet. An unreachable kubelet is then
    an error without an exit code in the stream, which the Python client and k8s_exec fail to parse. kubectl offers only
    version 5 and reports such an error.
    """
    offered = [token.strip() for value in headers.getall(PROTOCOL_HEADER, []) for token in value.split(",")]
    if {V4_CHANNEL, V5_CHANNEL} <= set(offered):
        headers[PROTOCOL_HEADER] = ", ".join(token for token in offered if token != V5_CHANNEL)


async def _read_head(reader: asyncio.StreamReader) -> ResponseHead:
    raw = await reader.readuntil(b"\r\n\r\n")
    status_line, _, fields = raw.partition(b"\r\n")
    _, status, reason = [*status_line.decode("latin-1").split(" ", 2), "", ""][:3]
    headers = http.client.parse_headers(io.BytesIO(fields))
    return ResponseHead(raw, int(status), reason, CIMultiDict(headers.items()))


async def _declined_response(reader: asyncio.StreamReader, head: ResponseHead) -> web.Response:
    """Return the response of an API server that does not switch protocols."""
    if "chunked" in head.headers.get("Transfer-Encoding", "").lower():
        body = await _read_chunks(reader)
    elif "Content-Length" in head.headers:
        body = await reader.readexactly(int(head.headers["Content-Length"]))
    else:
        body = await reader.read()
    headers = end_to_end_headers(head.headers)
    headers.popall("Content-Length", None)
    return web.Response(status=head.status, reason=head.reason, headers=headers, body=body)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    chunks = []
    while size := int((await reader.readline()).partition(b";")[0], 16):
        chunks.append(await reader.readexactly(size))
        await reader.readline()
    return b"".join(chunks)


def _hijack(request: web.BaseRequest) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
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


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


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
