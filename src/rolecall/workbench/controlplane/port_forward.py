"""Port forwarding to simulated pods: SPDY frames in the messages of a WebSocket, as kubectl sends them.

A client opens two SPDY streams for each of its connections: one for an error, and then one for the data, which is
connected to a port of this machine. SPDY needs no flow control here: the WebSocket has that of its connection. See
https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/.
"""

import asyncio
import io
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from aiohttp import web

from rolecall.workbench.controlplane.components import HOST

PROTOCOL = "SPDY/3.1+portforward.k8s.io"
CHUNK_BYTES = 32 * 1024
HEAD_BYTES = 8
SYN_STREAM, SYN_REPLY, RST_STREAM, PING = 0x80030001, 0x80030002, 0x80030003, 0x80030006
"""The first four bytes of control frames; those of a data frame are its stream, a smaller number."""

FINAL = 1
"""The flag of a stream's last frame in one direction."""

_words, _rest = Path(__file__).with_name("spdy_headers.txt").read_text().splitlines()
DICTIONARY = b"".join(len(word).to_bytes(4) + word.encode() for word in _words.split("\t")) + _rest.encode()
"""The text that the compression of headers starts with, from the specification."""


class PortForward:
    """The connection of one client."""

    def __init__(self, connection: web.WebSocketResponse, find_target: Callable[[int], int]) -> None:
        """Take the WebSocket and a function that returns this machine's port for a pod's port, or raises OSError."""
        self._connection = connection
        self._find_target = find_target
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)
        self._errors: dict[str, int] = {}  # the error streams, by their request's ID
        self._writers: dict[int, asyncio.StreamWriter] = {}  # by data stream
        self._downloads = asyncio.TaskGroup()

    async def run(self) -> None:
        """Serve until the client closes the connection."""
        buffer = bytearray()
        async with self._downloads:
            async for message in self._connection:
                buffer += message.data
                while len(buffer) >= (end := HEAD_BYTES + int.from_bytes(buffer[5:HEAD_BYTES])):
                    await self._receive(int.from_bytes(buffer[:4]), buffer[4], bytes(buffer[HEAD_BYTES:end]))
                    del buffer[:end]
            for writer in self._writers.values():
                writer.transport.abort()  # ends its download

    async def _receive(self, first: int, flags: int, body: bytes) -> None:
        if first == SYN_STREAM:
            headers = _headers(self._inflate.decompress(body[10:]))
            block = self._deflate.compress(bytes(4)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
            await self._send(SYN_REPLY, 0, body[:4] + block)
            await self._open(int.from_bytes(body[:4]), headers)
        elif first == PING:
            await self._send(PING, flags, body)
        elif first == RST_STREAM and (writer := self._writers.pop(int.from_bytes(body[:4]), None)):
            writer.close()
        elif writer := self._writers.get(first):
            with suppress(ConnectionError):  # the download reports the end
                writer.write(body)
                await writer.drain()
                if flags & FINAL:
                    writer.write_eof()

    async def _open(self, stream: int, headers: dict[str, str]) -> None:
        request, port = headers.get("requestid", ""), int(headers["port"])
        if headers["streamtype"] == "error":
            self._errors[request] = stream
            return
        error = self._errors.pop(request)
        try:
            reader, self._writers[stream] = await asyncio.open_connection(HOST, self._find_target(port))
        except OSError as problem:
            await self._end(stream, error, f"error forwarding port {port}: {problem}".encode())
            return
        self._downloads.create_task(self._download(reader, stream, error))

    async def _download(self, reader: asyncio.StreamReader, stream: int, error: int) -> None:
        with suppress(ConnectionError):
            while chunk := await reader.read(CHUNK_BYTES):
                await self._send(stream, 0, chunk)
        await self._end(stream, error)

    async def _end(self, stream: int, error: int, problem: bytes = b"") -> None:
        await self._send(error, FINAL, problem)
        await self._send(stream, FINAL, b"")
        if writer := self._writers.pop(stream, None):
            writer.close()

    async def _send(self, first: int, flags: int, body: bytes) -> None:
        with suppress(ConnectionError):  # the client left, which ends the loop over its messages
            await self._connection.send_bytes(first.to_bytes(4) + bytes([flags]) + len(body).to_bytes(3) + body)


def _headers(block: bytes) -> dict[str, str]:
    """Return the headers of a decompressed block: their number, then names and values, each with its length."""
    reader = io.BytesIO(block[4:])
    strings = [reader.read(int.from_bytes(length)).decode() for length in iter(lambda: reader.read(4), b"")]
    return dict(zip(strings[::2], strings[1::2], strict=True))
