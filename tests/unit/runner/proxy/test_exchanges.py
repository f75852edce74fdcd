import json
from collections.abc import Callable

from rolecall.runner.proxy import Asker, Exchange
from tests.unit.runner.proxy.api_server import ApiServer
from tests.unit.runner.proxy.conftest import Run, until

CONFIG_MAPS = "/api/v1/namespaces/ns/configmaps"


async def test_a_secret_may_be_followed_by_the_task_that_asks(start_run: Callable[..., Run]) -> None:
    told: list[Exchange] = []
    run = start_run(on_exchange=told.append)
    for note in (".task-1.bG9jYWxob3N0", ".task-2.d2ViMQ.hidden", "", ".task-3.!"):
        headers = {"Authorization": f"Bearer {run.credentials.secret}{note}"}
        async with run.session.get(CONFIG_MAPS, headers=headers) as response:
            assert response.status == 200
    assert [each.asker for each in told] == [
        Asker("task-1", "localhost"),
        Asker("task-2", "web1", is_hidden=True),
        Asker(),
        Asker(),
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
    assert exchange.answer == answer


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
    assert [(each.info.verb, each.status, each.answer, each.is_cut) for each in told] == [("watch", 200, event, False)]


async def test_a_request_that_ends_with_its_run_is_told_without_an_answer(
    api_server: ApiServer, start_run: Callable[..., Run]
) -> None:
    told: list[Exchange] = []
    run = start_run(on_exchange=told.append)
    async with run.session.get(f"{CONFIG_MAPS}?watch=true"):
        await until(lambda: api_server.watchers == 1)
        await run.proxy.revoke(run.spec)
    assert [(each.info.verb, each.status) for each in told] == [("watch", None)]
