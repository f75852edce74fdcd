from collections.abc import Awaitable, Callable, Mapping

import aiohttp
import pytest
from multidict import CIMultiDict

from rolecall.runner.proxy.forward import NewTraceparent, upstream_headers
from rolecall.runner.proxy.sessions import Exchange
from tests.unit.runner.proxy.api_server import ApiServer
from tests.unit.runner.proxy.conftest import Run

CONFIG_MAPS = "/api/v1/namespaces/ns/configmaps"
Send = Callable[[str, Mapping[str, str], NewTraceparent | None], Awaitable[Exchange]]
GIVEN = "00-11111111111111111111111111111111-2222222222222222-01"
CARRIED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
INVALID = (
    "",
    "nonsense",
    CARRIED.upper(),
    CARRIED.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32),
    CARRIED.replace("b7ad6b7169203331", "0" * 16),
    "ff" + CARRIED[2:],
    CARRIED + "-more",
)


@pytest.fixture
def send(start_run: Callable[..., Run]) -> Send:
    """Return a function that sends a request of a run with or without a trace, and returns its exchange."""

    async def send(method: str, headers: Mapping[str, str], traceparent: NewTraceparent | None) -> Exchange:
        run = start_run(is_recorded=True)
        run.itself.new_traceparent = traceparent
        url, own = run.credentials.url + CONFIG_MAPS, {"Authorization": f"Bearer {run.credentials.secret}", **headers}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}} if method == "POST" else None
        async with aiohttp.request(method, url, json=body, headers=own) as response:
            assert response.status < 300
        return run.itself.exchanges[-1]

    return send


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_request_gets_traceparent_of_run(method: str, send: Send, api_server: ApiServer) -> None:
    exchange = await send(method, {}, lambda: GIVEN)
    assert api_server.last.headers["traceparent"] == GIVEN
    assert (exchange.context.given, exchange.context.carried) == (GIVEN, "")


async def test_request_with_traceparent_keeps_it(send: Send, api_server: ApiServer) -> None:
    exchange = await send("GET", {"traceparent": CARRIED, "tracestate": "a=b"}, lambda: GIVEN)
    assert api_server.last.headers["traceparent"] == CARRIED
    assert api_server.last.headers["tracestate"] == "a=b"
    assert (exchange.context.given, exchange.context.carried) == ("", CARRIED)


@pytest.mark.parametrize("invalid", INVALID)
async def test_invalid_traceparent_is_replaced_with_tracestate(invalid: str, send: Send, api_server: ApiServer) -> None:
    await send("GET", {"traceparent": invalid, "tracestate": "a=b"}, lambda: GIVEN)
    assert api_server.last.headers["traceparent"] == GIVEN
    assert "tracestate" not in api_server.last.headers


@pytest.mark.parametrize("header", [{}, {"traceparent": CARRIED}, {"traceparent": "nonsense"}])
async def test_headers_without_trace_are_unchanged(header: dict[str, str], send: Send, api_server: ApiServer) -> None:
    exchange = await send("GET", header, None)
    assert api_server.last.headers.get("traceparent") == header.get("traceparent")
    assert (exchange.context.given, exchange.context.carried) == ("", "")


def test_values_of_a_name_in_two_spellings_are_forwarded_in_their_order() -> None:
    # The API server takes the first value; aiohttp would replace it by that of the other spelling.
    sent = CIMultiDict([("aCcePt", "application/json;as=PartialObjectMetadataList"), ("Accept", "application/json")])
    expected = [("Accept", "application/json;as=PartialObjectMetadataList"), ("Accept", "application/json")]
    assert list(upstream_headers(sent).items()) == expected
