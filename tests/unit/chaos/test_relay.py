import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from rolecall.kube.client import Client
from rolecall.kube.errors import ApiError
from rolecall.kube.references import GVK, ObjectKey
from rolecall.workbench.controlplane.certificates import CertificateAuthority, kubeconfig
from tests.chaos.relay import Relay, context_of, drop_packets

POD = GVK("", "v1", "Pod")
ONE = ObjectKey("default", "one")
SILENT_SECONDS = 0.3
KILLED = web.AppKey("killed", asyncio.Event)
"""Set when the connection of a watch was killed."""


async def _answer(request: web.Request) -> web.StreamResponse:
    if request.path == "/api/v1":
        pods = {"name": "pods", "kind": "Pod", "namespaced": True, "verbs": ["get"]}
        return web.json_response({"kind": "APIResourceList", "resources": [pods]})
    if request.query.get("watch"):
        response = web.StreamResponse()
        await response.prepare(request)
        for name in ("one", "two"):
            await response.write(f'{{"type": "ADDED", "object": {{"metadata": {{"name": "{name}"}}}}}}\n'.encode())
            await request.app[KILLED].wait()
        return response
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": ONE.namespace, "name": ONE.name}}
    return web.json_response(pod | {"asked": request.headers["Authorization"]})


@pytest.fixture
def killed() -> asyncio.Event:
    """Return what lets the API server continue its watches."""
    return asyncio.Event()


@pytest.fixture
async def relay(tmp_path: Path, killed: asyncio.Event) -> AsyncIterator[Relay]:
    """Yield a relay to a small API server."""
    application = web.Application()
    application[KILLED] = killed
    application.router.add_route("*", "/{path:.*}", _answer)
    runner = web.AppRunner(application)
    await runner.setup()
    authority = CertificateAuthority("upstream")
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context_of(authority.server("127.0.0.1")))
    await site.start()
    port = runner.addresses[0][1]
    upstream = tmp_path / "upstream"
    upstream.write_bytes(
        kubeconfig("upstream", f"https://127.0.0.1:{port}", authority.own.certificate, {"token": "secret"})
    )
    relay = Relay.to(upstream)
    await relay.start(tmp_path / "kubeconfig")
    yield relay
    await relay.close()
    await runner.cleanup()


@pytest.fixture
async def client(relay: Relay, tmp_path: Path) -> AsyncIterator[Client]:
    """Yield a client that the relay connects."""
    assert not relay.rejection_status
    async with await Client.connect(str(tmp_path / "kubeconfig")) as client:
        yield client


async def test_requests_and_their_credentials_pass(client: Client) -> None:
    assert (await client.get(POD, ONE))["asked"] == "Bearer secret"


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_refused_requests_get_the_status(relay: Relay, client: Client, status: int) -> None:
    await client.get(POD, ONE)
    relay.rejection_status = status
    with pytest.raises(ApiError) as error:
        await client.get(POD, ONE)
    assert error.value.status == status


async def test_nothing_passes_a_cut_until_it_is_mended(relay: Relay, client: Client) -> None:
    """An open connection and a new one stay without any answer; both go on afterwards."""
    await client.get(POD, ONE)
    relay.cut()
    waiting = asyncio.create_task(client.get(POD, ONE))
    _, port = relay.address
    connecting = asyncio.create_task(asyncio.open_connection("127.0.0.1", port))
    done, _ = await asyncio.wait({waiting, connecting}, timeout=SILENT_SECONDS)
    assert done == set()
    relay.restore()
    assert (await waiting)["metadata"]["name"] == "one"
    (await connecting)[1].close()


async def test_a_killed_watch_gets_nothing_more_and_no_end(relay: Relay, client: Client, killed: asyncio.Event) -> None:
    seen: list[str] = []

    async def listen() -> None:
        async for _, obj in client.watch(POD, "default", "1", 60):
            seen.append(obj["metadata"]["name"])
            assert relay.kill_watches() == 1
            killed.set()

    listening = asyncio.create_task(listen())
    await asyncio.wait_for(killed.wait(), 60)
    done, _ = await asyncio.wait({listening}, timeout=SILENT_SECONDS)
    assert (done, seen) == (set(), ["one"])
    listening.cancel()
    assert (await client.get(POD, ONE))["metadata"]["name"] == "one"


async def test_a_slow_relay_holds_answers_back(relay: Relay, client: Client) -> None:
    await client.get(POD, ONE)
    relay.delay_seconds = 60
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.get(POD, ONE), SILENT_SECONDS)


async def test_a_relay_whose_server_is_gone_breaks_the_connection(tmp_path: Path) -> None:
    authority = CertificateAuthority("upstream").own.certificate
    (tmp_path / "upstream").write_bytes(kubeconfig("gone", "https://127.0.0.1:1", authority, {"token": "secret"}))
    relay = Relay.to(tmp_path / "upstream")
    await relay.start(tmp_path / "kubeconfig")
    host, port = relay.address
    context = ssl.create_default_context(cafile=str(tmp_path / "authority.crt"))
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"https://{host}:{port}/api", ssl=context)
    await relay.close()


def test_dropped_packets_include_keepalive_probes() -> None:
    """Only keepalive shows a client that such a connection is dead: the kernel of the other end answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT):
                client.setsockopt(socket.IPPROTO_TCP, option, 1)
            drop_packets(accepted)
            with pytest.raises(OSError, match=r"timed out") as error:
                client.recv(1)
            assert error.value.errno == errno.ETIMEDOUT
