import socket

import aiohttp
import pytest
from aiohttp import web

from rolecall.config.errors import ConfigurationError
from rolecall.serving.listener import Address, parse_address, serve

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
