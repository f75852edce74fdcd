import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import pytest
from kubernetes.aio.client import Configuration

from rolecall.kube.client import Client
from rolecall.kube.references import ObjectKey
from rolecall.runner.proxy.ownership import Owner
from rolecall.runner.proxy.server import Proxy
from rolecall.runner.proxy.sessions import ProxiedRun
from tests.unit.runner.proxy.api_server import ApiServer
from tests.unit.runner.proxy.conftest import CONFIG_MAPS, DEMO, OPERATOR_TOKEN, Run, until

EXEC = "/api/v1/namespaces/ns/pods/web/exec?command=sh&stdin=true"
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\n\r\n"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def test_websocket_is_forwarded_in_both_directions(run: Run, api_server: ApiServer) -> None:
    async with run.session.ws_connect(EXEC, protocols=("v5.channel.k8s.io",)) as socket:
        assert socket.protocol == "v5.channel.k8s.io"
        for data in (b"abc", b"x" * 300_000):
            await socket.send_bytes(data)
            assert await socket.receive_bytes() == data[::-1]
    assert api_server.last.target == EXEC
    assert api_server.last.headers["Authorization"] == OPERATOR_TOKEN
    assert run.credentials.secret not in str(api_server.last.headers)


async def test_v4_is_negotiated_if_client_offers_v5_and_v4(run: Run) -> None:
    """With v5 the API server switches protocols before it connects to the kubelet, so errors have no HTTP status."""
    async with run.session.ws_connect(EXEC, protocols=("v5.channel.k8s.io", "v4.channel.k8s.io")) as socket:
        assert socket.protocol == "v4.channel.k8s.io"


async def test_revocation_closes_websocket(run: Run) -> None:
    async with run.session.ws_connect(EXEC) as socket:
        await socket.send_bytes(b"abc")
        await socket.receive_bytes()
        await run.proxy.revoke(run.itself)
        message = await socket.receive()
        assert message.type in {aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR, aiohttp.WSMsgType.CLOSE}


async def test_upgrade_without_valid_secret_is_rejected(run: Run, api_server: ApiServer) -> None:
    async with aiohttp.ClientSession(run.credentials.url) as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as failure:
            await session.ws_connect(EXEC)
    assert failure.value.status == 401
    assert api_server.received == []


async def test_upgrade_without_api_server_gives_503(run: Run, api_server: ApiServer) -> None:
    assert api_server.stop is not None
    await api_server.stop()
    response = await run.send("GET", EXEC, headers={"Connection": "Upgrade", "Upgrade": "SPDY/3.1"})
    assert (response.status, response.json()["kind"]) == (503, "Status")


# Upgraded connections to a server that sends and receives plain bytes


@asynccontextmanager
async def proxied(
    serve: Serve,
) -> AsyncIterator[tuple[Proxy, ProxiedRun, Callable[[], Awaitable[Connection]]]]:
    """Run a server behind a proxy; yield the proxy, a run and a function that sends the head of a SPDY request."""
    server = await asyncio.start_server(serve, "127.0.0.1")
    port = server.sockets[0].getsockname()[1]
    async with (
        server,
        Client(Configuration(host=f"http://127.0.0.1:{port}/prefix")) as client,
        Proxy(client) as proxy,
    ):
        run = ProxiedRun("7", Owner(DEMO, ObjectKey("ns", "one"), "uid", namespaced=True))
        credentials = proxy.register(run)

        async def connect() -> Connection:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(credentials.url.rpartition(":")[2]))
            head = f"POST {EXEC} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {credentials.secret}\r\n"
            writer.write(f"{head}Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream: v4\r\n\r\n".encode())
            return reader, writer

        yield proxy, run, connect


async def test_spdy_is_forwarded_unchanged() -> None:
    heads: list[bytes] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: SPDY/3.1\r\nConnection: Upgrade\r\n\r\nfirst\n")
        while data := await reader.read(1000):
            writer.write(data)
        writer.close()

    async with proxied(echo) as (_, __, connect):
        reader, writer = await connect()
        response = await reader.readuntil(b"\r\n\r\n")
        assert response.startswith(b"HTTP/1.1 101 ")
        assert await reader.readline() == b"first\n"
        payload = bytes(range(256)) * 4096
        writer.write(payload)
        assert await reader.readexactly(len(payload)) == payload
        writer.close()
    assert heads[0].startswith(f"POST /prefix{EXEC} HTTP/1.1\r\n".encode())
    assert b"Upgrade: SPDY/3.1" in heads[0]
    assert b"X-Stream: v4" in heads[0]
    assert b"Authorization" not in heads[0]


def responding(response: bytes, *, closes: bool = False, ended: asyncio.Event | None = None) -> Serve:
    """Return a server that responds, closes its side if ``closes``, and sets ``ended`` when the peer has closed."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(response)
        if closes:
            writer.close()
        await reader.read()
        if ended is not None:
            ended.set()
        writer.close()

    return serve


async def test_disconnected_client_frees_both_connections() -> None:
    ended = asyncio.Event()
    async with proxied(responding(SWITCHED, ended=ended)) as (proxy, _, connect):
        reader, writer = await connect()
        await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await asyncio.wait_for(ended.wait(), 60)
        runner = proxy._runner
        assert runner is not None
        assert runner.server is not None
        await until(lambda: runner.server is None or not runner.server.connections)


async def test_revocation_closes_upgraded_connection() -> None:
    async with proxied(responding(SWITCHED)) as (proxy, run, connect):
        reader, writer = await connect()
        await reader.readuntil(b"\r\n\r\n")
        await proxy.revoke(run)
        assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 400 Bad Request\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nbad\r\n2\r\n!!\r\n0\r\n\r\n",
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 5\r\n\r\nbad!!",
        b"HTTP/1.0 400 Bad Request\r\n\r\nbad!!",
    ],
)
async def test_declined_response_of_any_framing_is_complete(response: bytes) -> None:
    async with proxied(responding(response, closes=b"1.0" in response)) as (_, __, connect):
        reader, writer = await connect()
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert await reader.readexactly(5) == b"bad!!"
        writer.close()


@pytest.mark.parametrize(
    "response", [b"", b"HTTP/1.1 101 Switching", b"HTTP/1.1 400 Bad\r\nContent-Length: 9\r\n\r\nbad"]
)
async def test_interrupted_upgrade_response_gives_502(response: bytes) -> None:
    async with proxied(responding(response, closes=True)) as (_, __, connect):
        reader, writer = await connect()
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 502 ")
        writer.close()


FLOOD_BYTES = 32 << 20


class Flood:
    """A server that sends and never reads, and counts what both sides could send."""

    def __init__(self) -> None:
        self.sent = {"server": 0, "client": 0}
        self.has_ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send until the connection is lost."""
        await reader.readuntil(b"\r\n\r\n")
        writer.write(SWITCHED)
        try:
            await self.pour(writer, "server")
        except ConnectionError:
            self.has_ended.set()
        writer.close()

    async def pour(self, writer: asyncio.StreamWriter, who: str) -> None:
        """Send until the send buffer is full."""
        while self.sent[who] < FLOOD_BYTES:
            writer.write(bytes(1 << 16))
            await writer.drain()
            self.sent[who] += 1 << 16

    async def stopped(self) -> None:
        """Wait until no byte has been sent for a while."""
        before: dict[str, int] = {}
        while not any(self.sent.values()) or before != self.sent:
            before = dict(self.sent)
            await asyncio.sleep(0.2)


@dataclass(frozen=True, slots=True)
class Flooded:
    """An upgraded connection that is blocked, because both sides send and neither reads."""

    flood: Flood
    proxy: Proxy
    itself: ProxiedRun
    writer: asyncio.StreamWriter
    pouring: "asyncio.Task[None]"


@pytest.fixture
async def flooded() -> AsyncIterator[Flooded]:
    """Yield a blocked connection."""
    flood = Flood()
    async with proxied(flood.serve) as (proxy, run, connect):
        reader, writer = await connect()
        await reader.readuntil(b"\r\n\r\n")
        pouring = asyncio.create_task(flood.pour(writer, "client"))
        await flood.stopped()
        yield Flooded(flood, proxy, run, writer, pouring)
        pouring.cancel()
        await proxy.revoke(run)
        writer.close()


async def test_data_is_not_buffered_for_slow_peer(flooded: Flooded) -> None:
    """Check that the proxy buffers a bounded amount for a slow client, in both directions."""
    assert 0 < max(flooded.flood.sent.values()) < FLOOD_BYTES


async def test_revocation_does_not_wait_for_blocked_server(flooded: Flooded) -> None:
    await flooded.proxy.revoke(flooded.itself)
    await asyncio.wait_for(flooded.flood.has_ended.wait(), 60)


async def test_blocked_server_is_disconnected_after_client(flooded: Flooded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rolecall.runner.proxy.upgrade.CLOSE_TIMEOUT_SECONDS", 0.1)
    flooded.pouring.cancel()
    flooded.writer.transport.abort()
    await asyncio.wait_for(flooded.flood.has_ended.wait(), 60)


# CONNECT tunnels


def address(run: Run) -> str:
    return run.credentials.url.removeprefix("http://")


async def ask(connection: Connection, text: str) -> bytes:
    """Send lines and return the head of the response."""
    reader, writer = connection
    writer.write(text.replace("\n", "\r\n").encode())
    return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)


async def open_tunnel(run: Run, destination: str = "") -> Connection:
    """Open a connection and a CONNECT tunnel in it; check the status of the response."""
    connection = await asyncio.open_connection("127.0.0.1", int(address(run).rpartition(":")[2]))
    user = base64.b64encode(f"{run.credentials.secret}:".encode()).decode()
    to = destination or address(run)
    head = await ask(connection, f"CONNECT {to} HTTP/1.1\nHost: {to}\nProxy-Authorization: Basic {user}\n\n")
    assert head.startswith(b"HTTP/1.1 403" if destination else b"HTTP/1.1 200 ")
    return connection


async def test_client_can_use_proxy_as_http_proxy(run: Run, api_server: ApiServer) -> None:
    proxy_url = run.credentials.url.replace("://", f"://{run.credentials.secret}@")
    url = f"{run.credentials.url}{CONFIG_MAPS}?limit=5"
    async with aiohttp.request("GET", url, proxy=proxy_url) as response:
        assert response.status == 200
    assert api_server.last.target == f"{CONFIG_MAPS}?limit=5"
    assert api_server.last.headers["Authorization"] == OPERATOR_TOKEN
    assert "Proxy-Authorization" not in api_server.last.headers


async def test_requests_in_tunnel_belong_to_its_run(run: Run, api_server: ApiServer) -> None:
    connection = await open_tunnel(run)
    for _ in range(2):
        head = await ask(connection, f"GET {CONFIG_MAPS} HTTP/1.1\nHost: x\n\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        await connection[0].readexactly(length)
    assert api_server.last.headers["Authorization"] == OPERATOR_TOKEN
    connection[1].close()


async def test_upgrade_in_tunnel_is_forwarded(run: Run, api_server: ApiServer) -> None:
    connection = await open_tunnel(run)
    upgrade = (
        "Connection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: " + "A" * 22 + "==\n"
    )
    head = await ask(connection, f"GET /api/v1/namespaces/ns/pods/web/exec HTTP/1.1\nHost: x\n{upgrade}\n")
    assert head.startswith(b"HTTP/1.1 101 ")
    connection[1].write(b"\x82\x83\0\0\0\0abc")
    assert await connection[0].readexactly(5) == b"\x82\x03cba"
    connection[1].close()
    await until(lambda: not run.proxy._tunnels._callers)
    assert len(api_server.received) == 1


async def test_revocation_closes_tunnel(run: Run, api_server: ApiServer) -> None:
    reader, writer = await open_tunnel(run)
    await run.proxy.revoke(run.itself)
    assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()
    assert api_server.received == []


async def test_request_in_tunnel_of_revoked_run_is_rejected(run: Run, api_server: ApiServer) -> None:
    """It may arrive after the revocation has started and before the connection is closed."""
    connection = await open_tunnel(run)
    (caller,) = run.proxy._tunnels._callers.values()
    caller.session.is_revoked = True
    head = await ask(connection, f"DELETE {CONFIG_MAPS}/one HTTP/1.1\nHost: x\n\n")
    assert head.startswith(b"HTTP/1.1 401 ")
    assert api_server.received == []
    connection[1].close()


async def test_disconnected_client_closes_tunnel(run: Run) -> None:
    _, writer = await open_tunnel(run)
    writer.close()
    await until(lambda: not run.proxy._tunnels._callers)


@pytest.mark.parametrize("destination", ["example.com:443", "127.0.0.1:1", "nonsense"])
async def test_tunnel_to_other_destination_is_rejected(run: Run, destination: str) -> None:
    _, writer = await open_tunnel(run, destination)
    writer.close()


@pytest.mark.parametrize("proxied", ["", "Proxy-Authorization: Basic d3Jvbmc6eA==\n"], ids=["anonymous", "invalid"])
async def test_tunnel_without_valid_secret_gives_no_access(run: Run, proxied: str) -> None:
    """The Python client opens such a tunnel, and sends its token inside it."""
    connection = await asyncio.open_connection("127.0.0.1", int(address(run).rpartition(":")[2]))
    head = await ask(connection, f"CONNECT {address(run)} HTTP/1.1\nHost: x\n{proxied}\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert (await ask(connection, "GET /version HTTP/1.1\nHost: x\n\n")).startswith(b"HTTP/1.1 401 ")
    connection[1].close()


async def test_tunnel_without_secret_leads_only_to_the_proxy(run: Run) -> None:
    connection = await asyncio.open_connection("127.0.0.1", int(address(run).rpartition(":")[2]))
    head = await ask(connection, "CONNECT 127.0.0.1:1 HTTP/1.1\nHost: x\n\n")
    assert head.startswith(b"HTTP/1.1 403 ")
    connection[1].close()
