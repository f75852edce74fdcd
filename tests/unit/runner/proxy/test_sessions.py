import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from rolecall.kube.references import ObjectKey
from rolecall.runner.proxy import Exchange, RequestOrigin
from rolecall.runner.proxy.sessions import PendingRead, Read
from tests.unit.runner.proxy.api_server import ApiServer
from tests.unit.runner.proxy.conftest import Run, until

CONFIG_MAPS = "/api/v1/namespaces/ns/configmaps"
Answer = tuple[int, Any, frozenset[ObjectKey] | None]


@dataclass
class Told:
    """Writes down what it is told; each event has how many requests the API server had received then."""

    api_server: ApiServer
    needs_keys: bool = False
    reads: list[Read] = field(default_factory=list)
    received: list[int] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)

    def register(self, read: Read) -> PendingRead | None:
        """Take note of a read."""
        self.reads.append(read)
        self.received.append(len(self.api_server.received))
        return self

    def record_response(self, status: int, content: Any, keys: frozenset[ObjectKey] | None) -> None:
        """Take note of an answer."""
        self.answers.append((status, content, keys))


@pytest.fixture
def told(api_server: ApiServer) -> Told:
    return Told(api_server)


@pytest.fixture
async def reader(start_run: Callable[..., Run], told: Told) -> Run:
    return start_run(reads=told)


async def get(run: Run, target: str) -> None:
    async with run.session.get(target) as answer:
        await answer.read()


async def test_a_read_is_told_before_the_api_server_hears_of_it(reader: Run, told: Told, api_server: ApiServer) -> None:
    api_server.add(f"{CONFIG_MAPS}/cm", name="cm", namespace="ns")
    await get(reader, f"{CONFIG_MAPS}/cm")
    assert told.received == [0]
    [read] = told.reads
    assert (read.verb, read.key, read.resource.gvk.kind) == ("get", ObjectKey("ns", "cm"), "ConfigMap")
    await until(lambda: bool(told.answers))
    [(status, content, _)] = told.answers
    assert (status, content["metadata"]["name"]) == (200, "cm")


async def test_what_is_not_found_is_told(reader: Run, told: Told) -> None:
    await get(reader, f"{CONFIG_MAPS}/cm")
    await until(lambda: bool(told.answers))
    assert told.answers == [(404, None, None)]


async def test_a_list_is_told_with_its_selector_and_its_version(reader: Run, told: Told) -> None:
    await get(reader, f"{CONFIG_MAPS}?labelSelector=app%3Dweb")
    await until(lambda: bool(told.answers))
    [read] = told.reads
    assert (read.verb, read.key, read.label_selector) == ("list", ObjectKey("ns", ""), "app=web")
    [(_, content, keys)] = told.answers
    assert (content["metadata"]["resourceVersion"], keys) == ("100", None)


async def test_the_keys_of_a_list_are_told_if_they_matter(reader: Run, told: Told, api_server: ApiServer) -> None:
    told.needs_keys = True
    api_server.add(f"{CONFIG_MAPS}/cm", name="cm", namespace="ns")
    await get(reader, CONFIG_MAPS)
    await until(lambda: bool(told.answers))
    assert told.answers[0][2] == frozenset({ObjectKey("ns", "cm")})


async def test_a_watch_is_told_with_its_start(reader: Run, told: Told, api_server: ApiServer) -> None:
    await api_server.watch_events.put(b"")
    await get(reader, f"{CONFIG_MAPS}?watch=true&resourceVersion=7&fieldSelector=metadata.name%3Dcm")
    [read] = told.reads
    assert (read.verb, read.key, read.start) == ("watch", ObjectKey("ns", "cm"), "7")


async def test_a_request_that_the_run_gives_up_is_told_as_unanswered(
    reader: Run, told: Told, api_server: ApiServer
) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    api_server.answers["GET", f"{CONFIG_MAPS}/cm"] = cut
    async with reader.session.get(f"{CONFIG_MAPS}/cm") as answer:
        assert answer.status >= 500
    await until(lambda: bool(told.answers))
    assert told.answers == [(0, None, None)]


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/version"),
        ("GET", "/api/v1"),
        ("GET", "/api/v1/namespaces/ns/pods/p/log"),
        ("GET", "/api/v1/namespaces/ns/unknowns/x"),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
        ("POST", CONFIG_MAPS),
        ("DELETE", f"{CONFIG_MAPS}/cm"),
    ],
)
async def test_other_requests_are_not_told(reader: Run, told: Told, method: str, target: str) -> None:
    body = {"metadata": {"name": "x"}} if method == "POST" else None
    async with reader.session.request(method, target, json=body) as answer:
        assert isinstance(answer, aiohttp.ClientResponse)
    assert told.reads == []


async def test_a_secret_may_be_followed_by_the_task_that_asks(start_run: Callable[..., Run]) -> None:
    told: list[Exchange] = []
    run = start_run(on_exchange=told.append)
    for note in (".task-1.bG9jYWxob3N0", ".task-2.d2ViMQ.hidden", "", ".task-3.!"):
        headers = {"Authorization": f"Bearer {run.credentials.secret}{note}"}
        async with run.session.get(CONFIG_MAPS, headers=headers) as response:
            assert response.status == 200
    assert [each.origin for each in told] == [
        RequestOrigin("task-1", "localhost"),
        RequestOrigin("task-2", "web1", is_hidden=True),
        RequestOrigin(),
        RequestOrigin(),
    ]


async def test_only_the_secret_itself_opens_the_proxy(run: Run) -> None:
    secret = run.credentials.secret
    for token in (f"{secret}task-1", f".{secret}", f"x.{secret}", f"{secret[:-1]}.task-1.bG9jYWxob3N0"):
        async with run.session.get(CONFIG_MAPS, headers={"Authorization": f"Bearer {token}"}) as response:
            assert response.status == 401


async def test_an_observer_is_told_what_was_asked_sent_on_and_answered(
    api_server: ApiServer, start_run: Callable[..., Run]
) -> None:
    told: list[Exchange] = []
    run = start_run(on_exchange=told.append)
    body = {"kind": "ConfigMap", "metadata": {"name": "a"}}
    async with run.session.post(CONFIG_MAPS, json=body) as response:
        answer = await response.read()
    (exchange,) = told
    assert (exchange.info.verb, exchange.info.resource, exchange.status) == ("create", "configmaps", 201)
    assert json.loads(exchange.body) == body
    assert exchange.sent == api_server.last.body != exchange.body
    assert exchange.response == answer


async def test_an_answer_that_is_streamed_is_told_when_it_has_ended(
    api_server: ApiServer, start_run: Callable[..., Run]
) -> None:
    told: list[Exchange] = []
    run = start_run(on_exchange=told.append)
    event = json.dumps({"type": "ADDED", "object": {"kind": "ConfigMap"}}).encode() + b"\n"
    async with run.session.get(f"{CONFIG_MAPS}?watch=true") as response:
        await api_server.watch_events.put(event)
        assert await response.content.readline() == event
        await api_server.watch_events.put(b"")
        await response.read()
    (exchange,) = told
    assert (exchange.info.verb, exchange.status, exchange.response, exchange.is_cut) == ("watch", 200, event, False)


async def test_a_request_that_ends_with_its_run_is_told_without_an_answer(
    api_server: ApiServer, start_run: Callable[..., Run]
) -> None:
    told: list[Exchange] = []
    run = start_run(on_exchange=told.append)
    async with run.session.get(f"{CONFIG_MAPS}?watch=true"):
        await until(lambda: api_server.watchers == 1)
        await run.proxy.revoke(run.spec)
    assert [(each.info.verb, each.status) for each in told] == [("watch", None)]
