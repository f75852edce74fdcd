"""A relay between an operator and its API server that can delay and reject requests, and drop packets.

It terminates TLS with its own certificate to see requests. To drop packets, including keepalive probes, it attaches a
socket filter that accepts no byte, which requires no privileges.
"""

import asyncio
import ctypes
import json
import socket
import ssl
import struct
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import aiohttp
import yaml
from aiohttp import web

from rolecall.workbench.controlplane.certificates import CertificateAuthority, KeyPair, kubeconfig

HOST = "127.0.0.1"
NO_LIMIT = aiohttp.ClientTimeout()
Edit = Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]]
"""A change of the parts of a response on their way."""
Respond = Callable[[web.Request], Awaitable[web.StreamResponse]]
_OF_THE_CONNECTION = frozenset({"host", "connection", "keep-alive", "transfer-encoding", "content-length", "upgrade"})
_ATTACH_FILTER, _DETACH_FILTER = 26, 27
_LARGEST_BODY = 16 * 1024**2
_ACCEPT_NOTHING = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
_FILTER = struct.pack("HP", 1, ctypes.addressof(_ACCEPT_NOTHING))


def drop_packets(connection: socket.socket) -> None:
    """Make the kernel silently drop all packets to a connection or a listening socket."""
    connection.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, _FILTER)


def accept_packets(connection: socket.socket) -> None:
    """Undo ``drop_packets``."""
    connection.setsockopt(socket.SOL_SOCKET, _DETACH_FILTER, 0)


@dataclass(slots=True)
class Relay:
    """A relay for one operator to the API server ``upstream``; ``start`` it."""

    upstream: str
    token: str
    delay_seconds: float = 0.0
    """The delay of each request and each part of a response."""
    rejection_status: int = 0
    """The status of all responses; 0 forwards requests."""
    rejected: int = 0
    """The number of rejected requests."""
    choose: Callable[[web.Request], Respond | None] = lambda _request: None
    """Returns what responds to a request instead of ``forward``, if anything."""
    _runner: web.AppRunner = field(init=False)
    _session: aiohttp.ClientSession = field(init=False)
    _listener: socket.socket = field(default_factory=socket.socket)
    _is_open: asyncio.Event = field(default_factory=asyncio.Event)
    _watches: set[asyncio.Transport] = field(default_factory=set)
    _dead: set[asyncio.Transport] = field(default_factory=set)

    @classmethod
    def to(cls, account: Path) -> Self:
        """Return a relay to the API server of a kubeconfig with a token."""
        content = yaml.safe_load(account.read_text())
        return cls(content["clusters"][0]["cluster"]["server"], content["users"][0]["user"]["token"])

    async def start(self, written: Path) -> None:
        """Listen, and write a kubeconfig for this relay."""
        unverified = ssl.create_default_context()
        unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE  # a test's own server, on loopback
        connector = aiohttp.TCPConnector(ssl=unverified, limit=0)
        self._session = aiohttp.ClientSession(
            connector=connector, auto_decompress=False, timeout=NO_LIMIT, skip_auto_headers=("Content-Type",)
        )
        application = web.Application(client_max_size=_LARGEST_BODY)
        application.router.add_route("*", "/{path:.*}", self._respond)
        self._runner = web.AppRunner(application, handler_cancellation=True, access_log=None)
        await self._runner.setup()
        authority = CertificateAuthority("relay")
        self._listener.bind((HOST, 0))
        await web.SockSite(self._runner, self._listener, ssl_context=context_of(authority.server(HOST))).start()
        self._is_open.set()
        _write_kubeconfig(written, self.address[1], authority.own.certificate, self.token)

    @property
    def address(self) -> tuple[str, int]:
        """The listening address."""
        return HOST, int(self._listener.getsockname()[1])

    async def close(self) -> None:
        """Close all connections."""
        for transport in self._dead:
            transport.abort()
        await self._runner.cleanup()
        await self._session.close()

    def cut(self) -> None:
        """Drop every packet in both directions until ``restore``."""
        self._is_open.clear()
        for connection in self._sockets():
            drop_packets(connection)

    def restore(self) -> None:
        """Stop dropping packets; both kernels deliver what they retransmit."""
        self._is_open.set()
        for connection in self._sockets():
            accept_packets(connection)

    def kill_watches(self) -> int:
        """Permanently drop every packet of all connections that have a watch now; return their number."""
        for transport in self._watches:
            self._dead.add(transport)
            drop_packets(transport.get_extra_info("socket"))
        return len(self._watches)

    def end_watches(self) -> None:
        """Close all connections that have a watch now, so that the operator watches again."""
        for transport in self._watches:
            transport.abort()

    def _sockets(self) -> list[socket.socket]:
        connections = self._runner.server.connections if self._runner.server else ()
        transports = [connection.transport for connection in connections if connection.transport is not None]
        living = [each for each in transports if each not in self._dead and not each.is_closing()]
        return [self._listener, *(each.get_extra_info("socket") for each in living)]

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(self.delay_seconds)
        await self._is_open.wait()
        if self.rejection_status:
            self.rejected += 1
            return rejection(self.rejection_status)
        respond = self.choose(request) or self.forward
        transport = request.transport
        if request.query.get("watch") not in ("true", "1") or transport is None:
            return await respond(request)
        self._watches.add(transport)
        try:
            return await respond(request)
        finally:
            self._watches.discard(transport)

    async def forward(self, request: web.Request, edit: Edit = lambda parts: parts) -> web.StreamResponse:
        """Forward a request, and its response as it arrives."""
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _OF_THE_CONNECTION}
        body = await request.read()
        try:
            async with self._session.request(
                request.method, self.upstream + request.raw_path, headers=headers, data=body or None
            ) as upstream:
                kept = {
                    name: value for name, value in upstream.headers.items() if name.lower() not in _OF_THE_CONNECTION
                }
                response = web.StreamResponse(status=upstream.status, headers=kept)
                await response.prepare(request)
                async for part in edit(self._parts(request, upstream)):
                    await response.write(part)
        except aiohttp.ClientError:
            # The API server is unavailable: break the operator's connection, as without a relay.
            if isinstance(request.transport, asyncio.Transport):
                request.transport.abort()
            return web.Response(status=502)
        await response.write_eof()
        return response

    async def exchange(self, request: web.Request) -> web.Response:
        """Forward a request that is no watch, and return its whole response."""
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _OF_THE_CONNECTION}
        body = await request.read()
        async with self._session.request(
            request.method, self.upstream + request.raw_path, headers=headers, data=body or None
        ) as upstream:
            kept = {name: value for name, value in upstream.headers.items() if name.lower() not in _OF_THE_CONNECTION}
            return web.Response(status=upstream.status, headers=kept, body=await upstream.read())

    async def _parts(self, request: web.Request, upstream: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        async for part in upstream.content.iter_any():
            await asyncio.sleep(self.delay_seconds)
            await self._is_open.wait()
            if request.transport in self._dead:
                await asyncio.Event().wait()
            yield part


_REASONS = {
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def rejection(status: int) -> web.Response:
    """Return a response as the API server sends it, without naming an object."""
    body = {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "reason": _REASONS.get(status, ""),
        "message": "rejected by the relay",
        "code": status,
    }
    headers = {"Retry-After": "1"} if status == 429 else {}
    return web.Response(status=status, text=json.dumps(body), content_type="application/json", headers=headers)


def context_of(pair: KeyPair) -> ssl.SSLContext:
    """Return the TLS context of a server with this certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.NamedTemporaryFile() as file:  # a context reads only files
        file.write(pair.certificate + pair.key)
        file.flush()
        context.load_cert_chain(file.name)
    return context


def _write_kubeconfig(path: Path, port: int, authority: bytes, token: str) -> None:
    """Write a kubeconfig with the authority in a separate file, as in a pod: a client copies an embedded one."""
    content = yaml.safe_load(kubeconfig("relay", f"https://{HOST}:{port}", authority, {"token": token}))
    file = path.with_name("authority.crt")
    file.write_bytes(authority)
    del content["clusters"][0]["cluster"]["certificate-authority-data"]
    content["clusters"][0]["cluster"]["certificate-authority"] = str(file)
    path.write_text(yaml.safe_dump(content))
