import asyncio
import base64
import socket
import ssl
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from kubernetes.aio.client import Configuration
from yarl import URL

from rolecall.kube.client import Client
from rolecall.kube.connection import Request
from rolecall.kube.errors import KubeError
from rolecall.kube.transport import http_proxy_of, new_session, text_of
from rolecall.runner.proxy import upgrade
from rolecall.runner.proxy.forward import send
from tests.unit.kube.conftest import KEY, ONE, WIDGET, ApiServer, serving

PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("full_default_executor")
async def test_request_does_not_wait_for_thread() -> None:
    async with serving(ApiServer().handle) as url, Client(Configuration(host=url)) as client:
        async with asyncio.timeout(20):
            assert await client.get(WIDGET, KEY) == ONE


@pytest.mark.parametrize("token", ["", "Bearer s3cret"])
async def test_netrc_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    (tmp_path / ".netrc").write_text("default login somebody password hidden\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    api_server = ApiServer()
    async with serving(api_server.handle) as url:
        configuration = Configuration(host=url)
        if token:
            configuration.api_key["BearerToken"] = token
        async with Client(configuration) as client:
            await client.get(WIDGET, KEY)
    assert api_server.headers[0].get("Authorization", "") == token


@pytest.mark.parametrize("source", ["kubeconfig", "HTTP_PROXY", "http_proxy"])
async def test_requests_use_http_proxy(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    api_server = ApiServer()
    async with serving(api_server.handle) as url:
        proxy = url.replace("://", "://me:pass@")
        configuration = Configuration(host="http://api.invalid")
        if source == "kubeconfig":
            configuration.proxy = proxy
        else:
            monkeypatch.setenv(source, proxy)
        async with Client(configuration) as client:
            assert await client.get(WIDGET, KEY) == ONE
    assert api_server.headers[0]["Host"] == "api.invalid"
    assert api_server.headers[0]["Proxy-Authorization"] == "Basic " + base64.b64encode(b"me:pass").decode()


@pytest.mark.parametrize(
    ("url", "excluded", "is_used"),
    [
        ("https://api.example.com:6443", "", True),
        ("https://api.example.com:6443", "example.org", True),
        ("https://api.example.com:6443", ".example.com", False),
        ("https://api.example.com:6443", "other, api.example.com", False),
        ("https://api.example.com:6443", "*", False),
        ("https://10.96.0.1:443", "10.96.0.1", False),
        ("https://10.96.0.1:443", "192.168.0.0/16,10.96.0.0/12", False),
        ("https://10.96.0.1:443", "192.168.0.0/16", True),
        ("https://[fd00::1]:443", "fd00::/8", False),
        ("https://127.0.0.1:6443", "", False),
        ("https://localhost:6443", "", False),
        ("http://api.example.com", "", False),
    ],
)
@pytest.mark.parametrize("variable", ["NO_PROXY", "no_proxy"])
def test_no_proxy_excludes_hosts(
    monkeypatch: pytest.MonkeyPatch, url: str, excluded: str, *, is_used: bool, variable: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "proxy.example.com:3128")
    monkeypatch.setenv(variable, excluded)
    assert http_proxy_of(url, None) == ("http://proxy.example.com:3128" if is_used else None)


def test_proxy_of_kubeconfig_overrides_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://environment.example.com")
    monkeypatch.setenv("NO_PROXY", "*")
    configured = "http://kubeconfig.example.com"
    assert http_proxy_of("https://api.example.com", configured) == configured


def test_unusable_proxy_is_error_without_password() -> None:
    configuration = Configuration(host="https://api.example.com")
    configuration.proxy = "socks5://me:pass@proxy.example.com:1080"
    with pytest.raises(KubeError, match=r"cannot reach .* found 'socks5://proxy.example.com:1080'"):
        Client(configuration)


def seconds_until_failure(transport: asyncio.BaseTransport | None) -> float:
    """Return the seconds until an unacknowledged connection fails, while it is idle and while it has data to send."""
    assert transport is not None
    connection = transport.get_extra_info("socket")
    assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    first, every, limit = (
        connection.getsockopt(socket.IPPROTO_TCP, option)
        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_USER_TIMEOUT)
    )
    assert limit > 0
    return float(max(first, limit / 1000) + every)


async def test_lost_connection_fails_within_45_seconds() -> None:
    """The connections of the operator, those of runs, and upgraded ones."""
    api_server, asked = ApiServer(), asyncio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await asked.wait()
        return response

    api_server.handler = stream
    async with serving(api_server.handle) as url, Client(Configuration(host=url)) as client:
        responses = [await client.open(Request("GET", "/watch")), await send(client, "GET", "/watch", {})]
        _, writer = await upgrade._connect(client, URL(client.base_url))
        transports = [response.connection.transport for response in responses if response.connection]
        assert len(transports) == 2
        assert max(map(seconds_until_failure, [*transports, writer.transport])) < 45
        asked.set()
        writer.close()


async def test_text_of_a_refused_connection_names_the_place_and_no_python_object() -> None:
    with socket.socket() as silent:  # it doesn't listen, and keeps its port from the servers of other tests
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        async with new_session() as session:
            with pytest.raises(aiohttp.ClientConnectorError) as caught:
                await session.get(f"https://127.0.0.1:{port}", ssl=ssl.create_default_context())
    assert f"cannot connect to 127.0.0.1:{port}: " in text_of(caught.value)
    assert "object" not in text_of(caught.value)
