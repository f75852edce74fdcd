import asyncio

import pytest
from aiohttp.test_utils import TestClient, TestServer

from rolecall.kube.errors import UnreachableError
from rolecall.kube.references import RawObject
from rolecall.runner.serving.authentication import TokenReviewer
from rolecall.runner.serving.servers import metrics_application
from tests.unit.runner.serving.test_token_reviews import ApiServer


class Silent:
    """An API server that does not answer."""

    async def create(self, _obj: RawObject) -> RawObject:
        """Not answer."""
        raise UnreachableError("connection refused")


async def ask(
    reviewer: TokenReviewer | None, headers: dict[str, str] | None = None, path: str = "/metrics"
) -> tuple[int, str]:
    async with TestClient(TestServer(metrics_application(lambda: b"some 1\n", reviewer))) as client:
        response = await client.get(path, headers=headers)
        return response.status, await response.text()


async def test_everybody_gets_the_text_where_nobody_is_asked_for() -> None:
    assert await ask(None) == (200, "some 1\n")
    assert (await ask(None, path="/"))[0] == 404


async def test_prometheus_is_told_the_format() -> None:
    async with TestClient(TestServer(metrics_application(lambda: b"", None))) as client:
        response = await client.get("/metrics")
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        ("Bearer good", 200),
        ("bearer good", 200),
        ("Bearer bad", 401),
        ("Bearer ", 401),
        ("Bearer", 401),
        ("Basic good", 401),
        ("", 401),
    ],
)
async def test_a_token_must_be_shown(authorization: str, status: int) -> None:
    found, text = await ask(TokenReviewer(ApiServer()), {"Authorization": authorization})
    assert found == status
    assert ("some" in text) == (status == 200)


async def test_without_any_word_of_who_asks_nothing_is_served() -> None:
    assert await ask(TokenReviewer(ApiServer())) == (401, "Unauthorized\n")


async def test_an_owner_without_the_permission_is_refused() -> None:
    server = ApiServer()
    server.allowed = False
    assert await ask(TokenReviewer(server), {"Authorization": "Bearer good"}) == (403, "Forbidden\n")


async def test_nothing_is_served_while_nobody_can_tell() -> None:
    assert await ask(TokenReviewer(Silent()), {"Authorization": "Bearer good"}) == (500, "Authentication failed\n")


@pytest.mark.usefixtures("full_default_executor")
async def test_rendering_waits_for_no_thread() -> None:
    async with asyncio.timeout(20):
        assert await ask(None) == (200, "some 1\n")
