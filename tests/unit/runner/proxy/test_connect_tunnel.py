import asyncio
import base64

import aiohttp
import pytest

from tests.unit.runner.proxy.api_server import ApiServer
from tests.unit.runner.proxy.conftest import OPERATOR_TOKEN, Run, until

CONFIG_MAPS = "/api/v1/namespaces/ns/configmaps"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def address(run: Run) -> str:
    return run.credentials.url.removeprefix("http://")


async def ask(connection: Connection, text: str) -> bytes:
    """Send lines and return the head of the response."""
    reader, writer = connection
    writer.write(text.replace("\n", "\r\n").encode())
    return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)


async def connected(run: Run, destination: str = "") -> Connection:
    """Open a connection and a CONNECT tunnel in it; check the status of the response."""
    connection = await asyncio.open_connection("127.0.0.1", int(address(run).rpartition(":")[2]))
    user = base64.b64encode(f"{run.credentials.secret}:".encode()).decode()
    to = destination or address(run)
    head = await ask(connection, f"CONNECT {to} HTTP/1.1\nHost: {to}\nProxy-Authorization: Basic {user}\n\n")
    assert head.startswith(b"HTTP/1.1 403" if destination else b"HTTP/1.1 200 ")
    return connection


async def test_a_client_may_use_the_proxy_as_an_http_proxy(run: Run, api_server: ApiServer) -> None:
    proxy_url = run.credentials.url.replace("://", f"://{run.credentials.secret}@")
    url = f"{run.credentials.url}{CONFIG_MAPS}?limit=5"
    async with aiohttp.request("GET", url, proxy=proxy_url) as answer:
        assert answer.status == 200
    assert api_server.last.target == f"{CONFIG_MAPS}?limit=5"
    assert api_server.last.headers["Authorization"] == OPERATOR_TOKEN
    assert "Proxy-Authorization" not in api_server.last.headers


async def test_requests_within_a_connection_belong_to_the_run_that_asked_for_it(
    run: Run, api_server: ApiServer
) -> None:
    connection = await connected(run)
    for _ in range(2):
        head = await ask(connection, f"GET {CONFIG_MAPS} HTTP/1.1\nHost: x\n\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        await connection[0].readexactly(length)
    assert api_server.last.headers["Authorization"] == OPERATOR_TOKEN
    connection[1].close()


async def test_an_upgrade_within_a_connection_passes(run: Run, api_server: ApiServer) -> None:
    connection = await connected(run)
    upgrade = (
        "Connection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: " + "A" * 22 + "==\n"
    )
    head = await ask(connection, f"GET /api/v1/namespaces/ns/pods/web/exec HTTP/1.1\nHost: x\n{upgrade}\n")
    assert head.startswith(b"HTTP/1.1 101 ")
    connection[1].write(b"\x82\x83\0\0\0\0abc")
    assert await connection[0].readexactly(5) == b"\x82\x03cba"
    connection[1].close()
    await until(lambda: not run.proxy._tunnel._callers)
    assert len(api_server.received) == 1


async def test_revocation_ends_the_connection(run: Run, api_server: ApiServer) -> None:
    reader, writer = await connected(run)
    await run.proxy.revoke(run.spec)
    assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()
    assert api_server.received == []


async def test_a_request_in_the_connection_of_a_revoked_run_is_refused(run: Run, api_server: ApiServer) -> None:
    """It may arrive when the revocation has begun and the connection is not closed yet."""
    connection = await connected(run)
    (caller,) = run.proxy._tunnel._callers.values()
    caller.session.is_revoked = True
    head = await ask(connection, f"DELETE {CONFIG_MAPS}/one HTTP/1.1\nHost: x\n\n")
    assert head.startswith(b"HTTP/1.1 401 ")
    assert api_server.received == []
    connection[1].close()


async def test_a_client_that_hangs_up_leaves_nothing(run: Run) -> None:
    _, writer = await connected(run)
    writer.close()
    await until(lambda: not run.proxy._tunnel._callers)


@pytest.mark.parametrize("destination", ["example.com:443", "127.0.0.1:1", "nonsense"])
async def test_any_other_destination_is_refused(run: Run, destination: str) -> None:
    _, writer = await connected(run, destination)
    writer.close()


async def test_without_a_live_secret_there_is_no_connection(run: Run) -> None:
    connection = await asyncio.open_connection("127.0.0.1", int(address(run).rpartition(":")[2]))
    head = await ask(connection, f"CONNECT {address(run)} HTTP/1.1\nHost: x\n\n")
    assert head.startswith(b"HTTP/1.1 401 ")
    connection[1].close()
