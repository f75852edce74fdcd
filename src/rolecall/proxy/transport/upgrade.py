"""Connections that leave HTTP: exec, attach and port-forward, by WebSocket or SPDY.

The request goes to the API server on a connection of its own, with the operator's credentials. If the API server
switches protocols, the two connections are joined and every byte passes in both directions, until either side ends or
the run is revoked. If it declines, its answer goes back as an ordinary one. What is spoken after the switch is nobody's
business here.
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
from rolecall.proxy.request_info import origin_form
from rolecall.proxy.transport.forward import CONNECT_SECONDS, Headers, Upstream, end_to_end, without_run_credentials

CHUNK_BYTES: Final = 1 << 16
SWITCHING_PROTOCOLS: Final = 101
LAST_BYTES_SECONDS: Final = 5.0
"""How long one side may take to read what the other had sent before it ended."""


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of an answer: as it came, and read."""

    raw: bytes
    status: int
    reason: str
    headers: Headers


class TakenOverResponse(web.StreamResponse):
    """What aiohttp is given for a request whose connection was taken over: nothing is left to send."""

    async def prepare(self, request: web.BaseRequest) -> None:
        """Send nothing."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Send nothing."""


class _TakenOver(asyncio.StreamReaderProtocol):
    """Reads a connection that aiohttp has served so far, and tells aiohttp when it is lost."""

    def __init__(self, reader: asyncio.StreamReader, previous: asyncio.BaseProtocol) -> None:
        super().__init__(reader)
        self._previous = previous

    def connection_lost(self, exc: Exception | None) -> None:
        """Let both the reader and aiohttp clean up."""
        super().connection_lost(exc)
        self._previous.connection_lost(exc)


def is_upgrade(request: web.BaseRequest) -> bool:
    """Tell whether a request asks to leave HTTP."""
    return "Upgrade" in request.headers and "upgrade" in request.headers.get("Connection", "").lower()


async def tunnel(request: web.BaseRequest, upstream: Upstream) -> web.StreamResponse:
    """Carry a request that asks to leave HTTP, for as long as it lasts.

    Raises UnreachableError when no connection can be had, OSError or EOFError when it breaks off before an answer.
    """
    reader, writer = await _connect(upstream)
    try:
        writer.write(await _request_head(request, upstream))
        head = await _read_head(reader)
        if head.status != SWITCHING_PROTOCOLS:
            return await _declined(reader, head)
        client_reader, client_writer = _take_over(request)
        client_writer.write(head.raw)
        await _join((client_reader, client_writer), (reader, writer))
        return TakenOverResponse()
    finally:
        writer.transport.abort()


async def _connect(upstream: Upstream) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    url = URL(upstream.base_url)
    context = upstream.ssl_context if url.scheme == "https" else None
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await asyncio.open_connection(url.host, url.port, ssl=context)
    except OSError as error:
        raise UnreachableError(f"connecting failed: {error!r}") from error


async def _request_head(request: web.BaseRequest, upstream: Upstream) -> bytes:
    url = URL(upstream.base_url)
    headers = without_run_credentials(end_to_end(request.headers))
    headers.update(await upstream.auth_headers())
    headers["Host"] = url.authority
    headers["Connection"] = "Upgrade"
    headers["Upgrade"] = request.headers["Upgrade"]
    target = url.raw_path.rstrip("/") + origin_form(request.raw_path)
    lines = [f"{request.method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogateescape")


async def _read_head(reader: asyncio.StreamReader) -> Head:
    raw = await reader.readuntil(b"\r\n\r\n")
    status_line, _, fields = raw.partition(b"\r\n")
    _, status, reason = [*status_line.decode("latin-1").split(" ", 2), "", ""][:3]
    headers = http.client.parse_headers(io.BytesIO(fields))
    return Head(raw, int(status), reason, CIMultiDict(headers.items()))


async def _declined(reader: asyncio.StreamReader, head: Head) -> web.Response:
    """Make an ordinary answer of one that does not switch protocols."""
    if "chunked" in head.headers.get("Transfer-Encoding", "").lower():
        body = await _read_chunks(reader)
    elif "Content-Length" in head.headers:
        body = await reader.readexactly(int(head.headers["Content-Length"]))
    else:
        body = await reader.read()
    headers = end_to_end(head.headers)
    headers.popall("Content-Length", None)
    return web.Response(status=head.status, reason=head.reason, headers=headers, body=body)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    chunks = []
    while size := int((await reader.readline()).partition(b";")[0], 16):
        chunks.append(await reader.readexactly(size))
        await reader.readline()
    return b"".join(chunks)


def _take_over(request: web.BaseRequest) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Take the run's connection out of aiohttp's hands; the client sends nothing before it has its answer."""
    transport = request.transport
    if transport is None:
        raise ConnectionResetError("the run has closed its connection")
    reader = asyncio.StreamReader()
    protocol = _TakenOver(reader, transport.get_protocol())
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    if not transport.is_reading():
        transport.resume_reading()
    return reader, asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _join(one: Stream, other: Stream) -> None:
    """Pass bytes both ways until one side ends; then both do, as soon as they have read what was sent to them."""
    directions = [asyncio.create_task(_copy(one[0], other[1])), asyncio.create_task(_copy(other[0], one[1]))]
    try:
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)
        await asyncio.gather(_end(one[1]), _end(other[1]))
    finally:
        one[1].transport.abort()


async def _end(writer: asyncio.StreamWriter) -> None:
    """Close a connection, and wait until the other side has read everything, but not for ever."""
    writer.close()
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout(LAST_BYTES_SECONDS):
            await writer.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
