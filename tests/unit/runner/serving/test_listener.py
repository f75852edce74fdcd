import asyncio
import socket
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from rolecall.runner.config.yaml_reader import ConfigurationError
from rolecall.runner.serving import servers as listener
from rolecall.runner.serving.certificate import ServingCertificate
from rolecall.runner.serving.servers import CONNECTIONS, Address, parse_address, serve

FLAG = "--metrics-bind-address"


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        (":8443", "", 8443),
        ("0.0.0.0:80", "0.0.0.0", 80),  # noqa: S104 - as a user may write it
        ("localhost:0", "localhost", 0),
        ("[::1]:6789", "::1", 6789),
    ],
)
def test_an_address_is_read_as_go_programs_read_it(text: str, host: str, port: int) -> None:
    address = parse_address(text, FLAG)
    assert address == Address(host, port, FLAG)
    assert str(address) == text


@pytest.mark.parametrize("text", ["", "0"])
def test_no_address_switches_a_server_off(text: str) -> None:
    assert parse_address(text, FLAG) is None


@pytest.mark.parametrize("text", ["8443", ":http", ":", ":70000", "::1:80", ":-1", "1"])
def test_what_is_no_address_is_an_error_that_names_the_flag(text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{FLAG}: expected an address such as ':8443'.*found '{text}'"):
        parse_address(text, FLAG)


async def status_of(url: str) -> int:
    async with aiohttp.request("GET", url) as response:
        return response.status


@pytest.mark.parametrize("host", ["", "127.0.0.1", "localhost"])
async def test_a_free_port_is_told(host: str) -> None:
    async with serve(web.Application(), Address(host, 0, FLAG)) as port:
        assert await status_of(f"http://127.0.0.1:{port}/") == 404


async def test_all_interfaces_include_those_of_ipv6() -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    async with serve(web.Application(), Address("", 0, FLAG)) as port:
        assert await status_of(f"http://[::1]:{port}/") == 404


async def test_a_taken_port_is_one_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError) as error:
            async with serve(web.Application(), Address("127.0.0.1", port, FLAG)):
                pass
    assert str(error.value) == f"cannot listen on '127.0.0.1:{port}' ({FLAG}): Address already in use"


async def test_a_host_that_is_not_ours_is_one_clear_error() -> None:
    with pytest.raises(ConfigurationError, match=r"cannot listen on 'nowhere.invalid:80'"):
        async with serve(web.Application(), Address("nowhere.invalid", 80, FLAG)):
            pass


async def test_nothing_listens_afterwards() -> None:
    async with serve(web.Application(), Address("127.0.0.1", 0, FLAG)) as port:
        pass
    async with serve(web.Application(), Address("127.0.0.1", port, FLAG)) as again:
        assert again == port


async def connect(port: int, sent: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection and send something."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    return reader, writer


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\n"])
async def test_connections_without_a_request_shut_nobody_out(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr("rolecall.system.limited_listener.IDLE_SECONDS", 0.0)
    async with serve(web.Application(), Address("127.0.0.1", 0, FLAG)) as port:
        silent = [await connect(port, sent) for _ in range(CONNECTIONS + 10)]
        assert await status_of(f"http://127.0.0.1:{port}/") == 404
        for _, writer in silent:
            writer.close()


async def test_connections_without_a_handshake_shut_nobody_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("rolecall.system.limited_listener.IDLE_SECONDS", 0.0)
    certificate = ServingCertificate(tmp_path, lambda _: None)
    certificate.load()
    async with serve(web.Application(), Address("127.0.0.1", 0, FLAG), certificate.context) as port:
        silent = [await connect(port) for _ in range(CONNECTIONS + 10)]
        async with aiohttp.request("GET", f"https://127.0.0.1:{port}/", ssl=False) as response:
            assert response.status == 404
        for _, writer in silent:
            writer.close()


@pytest.mark.parametrize("sent", [b"", b"GET / HT"])
async def test_a_connection_without_a_request_is_closed(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(listener, "REQUEST_SECONDS", 0.2)
    async with serve(web.Application(), Address("127.0.0.1", 0, FLAG)) as port:
        reader, writer = await connect(port, sent)
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        writer.close()


async def test_a_client_that_does_not_read_its_answer_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "REQUEST_SECONDS", 0.2)
    ended = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.task.add_done_callback(lambda _: ended.set())
        return web.Response(body=b"x" * (64 << 20))

    application = web.Application()
    application.router.add_get("/", answer)
    async with serve(application, Address("127.0.0.1", 0, FLAG)) as port:
        reader, writer = await connect(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        async with asyncio.timeout(20):
            await ended.wait()
        writer.close()
