"""One object that cannot be read must not hide the others of its kind."""

from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from rolecall.kube import connection as answers
from rolecall.kube.client import Client, is_partial
from rolecall.kube.errors import UnreachableError, UnreadableError
from tests.unit.kube.test_client import KEY, WIDGET, ApiServer, api_server, client, watched

__all__ = ["api_server", "client"]

LEVELS = 100_000
"""More than any JSON parser of Python bears."""
DEEP = '{"a":' * LEVELS + "1" + "}" * LEVELS
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def widget(name: str, version: int) -> str:
    """Return the JSON of an object; one named deep cannot be parsed, and its managed fields neither."""
    names = f'"namespace":"default","name":"{name}","resourceVersion":"{version}"'
    if name != "deep":
        return f'{{"metadata":{{{names}}},"spec":1}}'
    return f'{{"metadata":{{{names},"managedFields":[{DEEP}]}},"spec":{DEEP}}}'


def metadata_alone(text: str) -> str:
    """Return an object as PartialObjectMetadata."""
    return text.partition(',"spec":')[0] + "}"


class Widgets:
    """Serves lists in pages, and watches, of named objects; ``deep`` is one that cannot be parsed."""

    def __init__(self, names: list[str], event_types: tuple[str, ...] = ()) -> None:
        self.names = names
        self.event_types = event_types or ("ADDED",) * len(names)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a list or a watch, with metadata alone if that is asked for."""
        is_partial_wanted = "as=PartialObjectMetadata" in request.headers["Accept"]
        texts = [widget(name, number) for number, name in enumerate(self.names, 1)]
        if is_partial_wanted:
            texts = [metadata_alone(text) for text in texts]
        if "watch" in request.query:
            first = int(request.query["resourceVersion"])
            events = zip(self.event_types[first:], texts[first:], strict=True)
            return web.Response(text="".join(f'{{"type":"{each}","object":{text}}}\n' for each, text in events))
        start = int(request.query.get("continue", "0"))
        end = start + int(request.query["limit"])
        token = str(end) if end < len(texts) else ""
        items = ",".join(texts[start:end])
        return web.Response(text=f'{{"metadata":{{"resourceVersion":"9","continue":"{token}"}},"items":[{items}]}}')


async def listed(client: Client) -> list[tuple[str, bool]]:
    """Return the name of each object of a list, and whether it was read."""
    pages = [items async for items, _ in client.list_pages(WIDGET, "default")]
    return [(item["metadata"]["name"], not is_partial(item)) for items in pages for item in items]


@pytest.mark.parametrize("position", [0, 1, 299, 999])
async def test_a_list_has_every_object_and_of_one_that_is_nested_too_deeply_the_metadata(
    client: Client, api_server: ApiServer, position: int
) -> None:
    names = [f"w{number}" for number in range(1000)]
    names[position] = "deep"
    api_server.answer = Widgets(names).answer
    assert await listed(client) == [(name, name != "deep") for name in names]
    assert len(api_server.requests) < 50


async def test_a_list_of_nothing_but_objects_nested_too_deeply_ends(client: Client, api_server: ApiServer) -> None:
    api_server.answer = Widgets(["deep"] * 5).answer
    assert await listed(client) == [("deep", False)] * 5


async def test_a_watch_goes_on_behind_an_object_that_is_nested_too_deeply(
    client: Client, api_server: ApiServer
) -> None:
    names = [f"w{number}" for number in range(7)]  # the watch starts at version 7
    api_server.answer = Widgets([*names, "before", "deep", "after"]).answer
    found = [(event_type, obj["metadata"]["name"], is_partial(obj)) for event_type, obj in await watched(client)]
    assert found == [("ADDED", "before", False), ("ADDED", "deep", True), ("ADDED", "after", False)]


async def test_the_deletion_of_an_object_that_is_nested_too_deeply_is_a_deletion(
    client: Client, api_server: ApiServer
) -> None:
    api_server.answer = Widgets(["w"] * 7 + ["deep", "after"], ("ADDED",) * 7 + ("DELETED", "ADDED")).answer
    (event_type, obj), (_, after) = await watched(client)
    assert (event_type, obj["kind"], obj["metadata"]["name"]) == ("DELETED", "Widget", "deep")
    assert after["metadata"]["name"] == "after"


async def test_a_watch_goes_on_behind_a_line_that_is_too_long(
    client: Client, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "LINE_BYTES", 1000)
    api_server.answer = Widgets(["w"] * 7 + ["deep", "after"]).answer
    assert [is_partial(obj) for _, obj in await watched(client)] == [True, False]


async def test_an_object_of_megabytes_of_escapes_comes_through_a_watch(client: Client, api_server: ApiServer) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(text='{"type":"ADDED","object":{"data":"' + "\\u003c" * 1_500_000 + '"}}\n')

    api_server.answer = answer
    [(_, obj)] = await watched(client)
    assert obj == {"data": "<" * 1_500_000}


async def test_a_watch_whose_metadata_cannot_be_read_either_is_broken(client: Client, api_server: ApiServer) -> None:
    api_server.answer = api_server.give('{"type":"ADDED","object":' + DEEP + "}\n")
    with pytest.raises(UnreachableError, match="nested more deeply than the JSON parser"):
        await watched(client)


async def test_a_stream_that_ends_within_a_line_is_broken(client: Client, api_server: ApiServer) -> None:
    api_server.answer = api_server.give('{"type":"ADDED","obj')
    with pytest.raises(UnreachableError, match="ended within the line"):
        await watched(client)


async def test_reading_one_object_that_is_nested_too_deeply_says_so(client: Client, api_server: ApiServer) -> None:
    api_server.answer = api_server.give(DEEP)
    with pytest.raises(UnreadableError, match="one: the response is nested more deeply than the JSON parser of Python"):
        await client.get(WIDGET, KEY)
