from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from rolecall.runner.serving.servers import Readiness, probes_application

Client = TestClient[web.Request, web.Application]


class Operator:
    """An operator that is ready when the test says so."""

    ready = False
    notes: tuple[str, ...] = ()


@pytest.fixture
def operator() -> Operator:
    return Operator()


@pytest.fixture
async def client(operator: Operator) -> AsyncIterator[Client]:
    async with TestClient(
        TestServer(probes_application(Readiness(lambda: operator.ready, lambda: operator.notes)))
    ) as client:
        yield client


@pytest.mark.parametrize("ready", [False, True])
@pytest.mark.parametrize("path", ["/healthz", "/healthz/", "/healthz/ping", "/readyz/readyz"])
async def test_it_lives(client: Client, operator: Operator, path: str, *, ready: bool) -> None:
    operator.ready = ready
    response = await client.get(path)
    assert (response.status, await response.text()) == (200, "ok")
    assert (await client.head(path)).status == 200


@pytest.mark.parametrize("path", ["/readyz", "/readyz/informers"])
async def test_it_is_ready_when_the_informers_know_what_is_there(client: Client, operator: Operator, path: str) -> None:
    assert (await client.get(path)).status == 500
    operator.ready = True
    assert (await client.get(path)).status == 200


async def test_verbose_lists_the_checks(client: Client, operator: Operator) -> None:
    response = await client.get("/readyz?verbose")
    assert (response.status, (await response.text()).splitlines()) == (
        500,
        ["[+]readyz ok", "[-]informers failed: not yet", "readyz check failed"],
    )
    operator.ready = True
    response = await client.get("/readyz?verbose=1")
    assert (await response.text()).splitlines() == ["[+]readyz ok", "[+]informers ok", "readyz check passed"]


async def test_only_verbose_tells_of_a_kind_that_holds_back_nobody(client: Client, operator: Operator) -> None:
    operator.ready = True
    operator.notes = ("informer of example.com/v1, Kind=Widget: Failed to list or watch; retrying",)
    assert await (await client.get("/readyz")).text() == "ok"
    assert (await (await client.get("/readyz?verbose")).text()).splitlines() == [
        "[+]readyz ok",
        "[+]informers ok",
        "[!]informer of example.com/v1, Kind=Widget: Failed to list or watch; retrying",
        "readyz check passed",
    ]


@pytest.mark.parametrize("path", ["/", "/healthz/informers", "/metrics", "/readyz/readyz/more"])
async def test_what_is_no_probe_is_not_there(client: Client, path: str) -> None:
    assert (await client.get(path)).status == 404
