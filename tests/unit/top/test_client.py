"""What is read from the real page, and what is said when something else answers."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from rolecall.config.settings import Settings
from rolecall.metrics.operator_metrics import OperatorMetrics
from rolecall.page.addresses import object_path, run_path
from rolecall.page.guard import Guard
from rolecall.page.server import page_application, serving_page
from rolecall.page.views import ListView, ObjectView, Query, RunView, kind_id
from rolecall.serving.token_reviews import TokenReviewer
from rolecall.top.client import Access, GoneError, PageClient, PageError, problem_of
from rolecall.top.session import first_list
from tests.integration.things import THING
from tests.unit.fake_cluster import FakeCluster
from tests.unit.page.conftest import OPEN, Shown
from tests.unit.record.records import CONFIG_MAPS, config_map, exchange
from tests.unit.serving.test_token_reviews import ApiServer

KIND = kind_id(THING)


@asynccontextmanager
async def served(application: web.Application) -> AsyncIterator[str]:
    async with TestServer(application) as server:
        yield str(server.make_url("")).rstrip("/")


@pytest.fixture
async def url(shown: Shown) -> AsyncIterator[str]:
    shown.add_run(shown.bench.tell(THING), exchange("POST", CONFIG_MAPS, config_map("a"), config_map("a"), 201))
    async with served(page_application(shown.sources, OPEN)) as address:
        yield address


async def message(access: Access) -> str:
    """Return what is said when the list cannot be read."""
    with pytest.raises(PageError) as caught:
        await first_list(access, Query())
    return str(caught.value)


async def test_every_page_of_an_operator_can_be_read(url: str) -> None:
    async with PageClient(Access(url)) as client:
        assert [row.name for row in (await client.read("/", ListView)).rows] == ["one"]
        assert [run.id for run in (await client.read(object_path(KIND, "default", "one"), ObjectView)).runs] == ["7"]
        run = await client.read(run_path(KIND, "default", "one", "7"), RunView)
        assert [request.verb for task in run.tasks for request in task.requests] == ["create"]


async def test_what_is_gone_is_told_from_what_does_not_answer(url: str) -> None:
    async with PageClient(Access(url)) as client:
        with pytest.raises(GoneError, match=r"^There is no such object\. "):
            await client.read(object_path(KIND, "default", "other"), ObjectView)


async def test_a_kind_can_be_named_without_its_group(url: str) -> None:
    assert (await first_list(Access(url), Query(kind=THING.kind))).query.kind == KIND
    assert (await first_list(Access(url), Query(kind=KIND))).found == 1
    with pytest.raises(PageError, match=rf"^--kind Other: .* it watches {KIND}$"):
        await first_list(Access(url), Query(kind="Other"))


async def test_where_nothing_answers_the_way_to_a_page_is_shown() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        text = await message(Access(url))
    assert text.startswith(f"nothing answers at {url} (")
    assert "--ui-bind-address" in text
    assert "kubectl port-forward" in text
    assert "\n" not in text


async def test_where_a_token_is_needed_it_is_read_from_its_file(shown: Shown, tmp_path: Path) -> None:
    guard, file = Guard(TokenReviewer(ApiServer()), is_on_loopback=False), tmp_path / "token"
    async with served(page_application(shown.sources, guard)) as url:
        assert "needs a token: give one with --token-file" in await message(Access(url))
        file.write_text("bad\n")
        assert "does not accept the token" in await message(Access(url, file))
        file.write_text("good\n")
        assert (await first_list(Access(url, file), Query())).found == 0
        file.write_text("two\nlines\n")
        assert "expected a token of one line" in await message(Access(url, file))
    assert str(tmp_path / "none") in await message(Access(url, tmp_path / "none"))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (web.Response(status=403, text="Forbidden"), "verb get on the nonResourceURL /ui"),
        (web.Response(text="<h1>\x1b[2JHello</h1>", content_type="text/html"), "not the live page of an operator"),
        (web.Response(status=404, text="nothing"), "status 404, 'nothing'"),
        (web.Response(status=302, headers={"Location": "/login"}), "status 302"),
        (web.Response(text="{", content_type="application/json"), "not the live page"),
        (web.Response(text="[" * 100_000, content_type="application/json"), "not the live page"),
        (web.json_response({"rows": []}), "not a live page of this version"),
    ],
)
async def test_what_is_no_page_is_called_so(answer: web.Response, said: str) -> None:
    async def handler(_: web.Request) -> web.Response:
        return answer

    application = web.Application()
    application.router.add_get("/", handler)
    async with served(application) as url:
        text = await message(Access(url))
    assert said in text
    assert text.isprintable()


async def test_a_certificate_must_be_trusted_unless_it_is_said_otherwise(
    shown: Shown, cluster: FakeCluster, tmp_path: Path
) -> None:
    settings = replace(Settings(), ui_bind_address="127.0.0.1:0", metrics_secure=True)
    async with serving_page(settings, cluster, OperatorMetrics("test"), shown.sources) as port:
        url = f"https://127.0.0.1:{port}"
        assert "is not trusted" in await message(Access(url))
        assert (await first_list(Access(url, verifies=False), Query())).found == 0
        assert "is it https://?" in await message(Access(url.replace("https", "http")))
    assert "--ca-file" in await message(Access(url, ca_file=tmp_path / "none"))


async def test_an_answer_that_is_too_long_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setattr("rolecall.top.client.MOST_BYTES", 10)
    assert "sends more than" in await message(Access(url))


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://127.0.0.1:8090", ""),
        ("http://[::1]:8090/", ""),
        ("https://example.com", ""),
        ("localhost:8090", "argument --url"),
        ("ftp://localhost", "argument --url"),
        ("http://a:b", "argument --url"),
        ("http://example.com", "argument --token-file"),
    ],
)
def test_an_address_must_be_one_and_no_token_is_sent_in_the_clear(url: str, found: str) -> None:
    assert problem_of(Access(url, Path("token"))).startswith(found)
    assert bool(problem_of(Access(url, Path("token")))) is bool(found)
