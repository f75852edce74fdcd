import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import Configuration

from rolecall.kube.client import ACCEPT_PARTIAL_LIST, ACCEPT_PARTIAL_OBJECT, UNREAD, Client, SelectedReads, Selection
from rolecall.kube.connection import Request
from rolecall.kube.errors import (
    ConflictError,
    GoneError,
    KubeError,
    NotFoundError,
    ResponseTimeoutError,
    UnreachableError,
)
from rolecall.kube.references import GVK, ObjectKey, RawObject

WIDGET = GVK("example.com", "v1", "Widget")
KEY = ObjectKey("default", "one")
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
DISCOVERY = {
    "/api/v1": [{"name": "secrets", "kind": "Secret", "namespaced": True}],
    "/apis/example.com/v1": [
        {"name": "widgets", "kind": "Widget", "namespaced": True, "verbs": ["get", "list", "watch"]},
        {"name": "widgets/status", "kind": "Widget", "namespaced": True, "verbs": ["get"]},
    ],
}
ONE: RawObject = {
    "apiVersion": "example.com/v1",
    "kind": "Widget",
    "metadata": {"namespace": "default", "name": "one"},
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ApiServer:
    """Answers discovery; everything else is what ``answer`` says. Remembers method, path with query, and body."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.answer: Handler = self.give(ONE)

    def give(self, body: object, status: int = 200) -> Handler:
        """Return a handler that answers with JSON, or with text as it is."""

        async def handler(_request: web.Request) -> web.StreamResponse:
            text = body if isinstance(body, str) else json.dumps(body)
            return web.Response(status=status, text=text)

        return handler

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        if request.path in DISCOVERY:
            return web.json_response({"resources": DISCOVERY[request.path]})
        text = await request.text()
        self.requests.append((request.method, request.path_qs, json.loads(text) if text else None))
        self.headers.append(dict(request.headers))
        return await self.answer(request)


@pytest.fixture
async def api_server() -> ApiServer:
    return ApiServer()


@pytest.fixture
async def client(api_server: ApiServer) -> AsyncIterator[Client]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", api_server.handle)
    async with TestServer(application) as server:
        configuration = Configuration(host=str(server.make_url("/")))
        configuration.api_key["BearerToken"] = "Bearer s3cret"
        async with Client(configuration) as client:
            yield client


def streaming(*lines: bytes) -> Handler:
    """Return a handler that streams these parts and ends."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for line in lines:
            await response.write(line)
        return response

    return handler


async def watched(client: Client) -> list[tuple[str, RawObject]]:
    """Return all events of a watch."""
    return [event async for event in client.watch(WIDGET, "default", "7", 30.0)]


def event(kind: str, obj: object) -> bytes:
    """Return one line of a watch."""
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


async def test_an_object_is_read_with_the_operators_credentials(client: Client, api_server: ApiServer) -> None:
    assert await client.get(WIDGET, KEY) == ONE
    assert api_server.requests == [("GET", f"{WIDGETS}/one", None)]
    assert api_server.headers[0]["Authorization"] == "Bearer s3cret"


async def test_answers_are_asked_for_uncompressed(client: Client, api_server: ApiServer) -> None:
    await client.get(WIDGET, KEY)
    assert api_server.headers[0]["Accept-Encoding"] == "identity"


async def test_each_verb_goes_to_its_path_with_its_body(client: Client, api_server: ApiServer) -> None:
    await client.create(ONE)
    await client.replace(ONE)
    await client.replace(ONE, "status")
    await client.patch(WIDGET, KEY, {"spec": None}, "status")
    await client.delete(WIDGET, KEY)
    assert api_server.requests == [
        ("POST", WIDGETS, ONE),
        ("PUT", f"{WIDGETS}/one", ONE),
        ("PUT", f"{WIDGETS}/one/status", ONE),
        ("PATCH", f"{WIDGETS}/one/status", {"spec": None}),
        ("DELETE", f"{WIDGETS}/one", {"propagationPolicy": "Background"}),
    ]
    assert api_server.headers[3]["Content-Type"] == "application/merge-patch+json"


@pytest.mark.parametrize(
    ("status", "kind"), [(404, NotFoundError), (409, ConflictError), (410, GoneError), (500, KubeError)]
)
async def test_an_answer_that_is_no_success_is_its_error(
    client: Client, api_server: ApiServer, status: int, kind: type[KubeError]
) -> None:
    api_server.answer = api_server.give({"kind": "Status", "reason": "Why", "message": "because"}, status)
    with pytest.raises(kind, match=f"{status} Why: because"):
        await client.get(WIDGET, KEY)


async def test_an_error_page_of_something_in_between_is_its_text(client: Client, api_server: ApiServer) -> None:
    api_server.answer = api_server.give("<html>Bad Gateway</html>", 502)
    with pytest.raises(KubeError, match="502 : <html>Bad Gateway</html>"):
        await client.get(WIDGET, KEY)


@pytest.mark.parametrize("body", ["[]", "<html>Log in first</html>", "", '{"half":'])
async def test_a_success_that_is_no_object_is_an_error_of_ours(
    client: Client, api_server: ApiServer, body: str
) -> None:
    api_server.answer = api_server.give(body)
    with pytest.raises(KubeError, match=f"GET {WIDGETS}/one: expected an object"):
        await client.get(WIDGET, KEY)


async def test_a_server_that_is_away_is_unreachable(unused_tcp_port: int) -> None:
    async with Client(Configuration(host=f"http://127.0.0.1:{unused_tcp_port}")) as client:
        with pytest.raises(UnreachableError, match=r"GET /apis/example.com/v1 got no response"):
            await client.get(WIDGET, KEY)


async def cannot_be_sent(client: Client, body: object = None) -> None:
    """Check that a request fails in a way that does not look as if it could be sent later."""
    with pytest.raises(KubeError) as error:
        await client._send_object(Request("PUT", "/somewhere", body=body))
    assert not isinstance(error.value, UnreachableError), "a retry would wait for ever"


async def test_a_header_of_two_lines_is_no_matter_of_the_network(client: Client) -> None:
    client._credentials._token = "Bearer one\r\nX-Other: two"  # noqa: S105 - opens nothing
    await cannot_be_sent(client)


async def test_a_url_that_is_none_is_no_matter_of_the_network() -> None:
    async with Client(Configuration(host="http://127.0.0.1:port")) as client:
        await cannot_be_sent(client)


async def test_a_body_that_is_nested_too_deeply_is_no_matter_of_the_network(client: Client) -> None:
    body: object = {}
    for _ in range(100_000):
        body = [body]
    await cannot_be_sent(client, body)


async def test_a_connection_that_breaks_in_the_answer_is_unreachable(client: Client, api_server: ApiServer) -> None:
    async def break_off(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b'{"half":')
        assert request.transport is not None
        request.transport.close()
        return response

    api_server.answer = break_off
    with pytest.raises(UnreachableError):
        await client.get(WIDGET, KEY)


async def test_a_request_that_takes_too_long_is_unreachable(client: Client, api_server: ApiServer) -> None:
    async def never(_request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    api_server.answer = never
    with pytest.raises(ResponseTimeoutError, match="Timeout"):
        await client._send_object(Request("GET", "/never", timeout_seconds=0.05))


async def test_a_list_comes_in_pages_with_the_version_of_each(client: Client, api_server: ApiServer) -> None:
    async def page(request: web.Request) -> web.StreamResponse:
        first = "continue" not in request.query
        token = "next/=" if first else ""
        return web.json_response({"items": [ONE], "metadata": {"resourceVersion": "9", "continue": token}})

    api_server.answer = page
    assert [found async for found in client.list_pages(WIDGET, "default")] == [([ONE], "9"), ([ONE], "9")]
    assert [path for _, path, _ in api_server.requests] == [
        f"{WIDGETS}?limit=100",
        f"{WIDGETS}?limit=500&continue=next/%3D",
    ]


async def test_an_empty_list_is_one_empty_page(client: Client, api_server: ApiServer) -> None:
    api_server.answer = api_server.give({"items": None, "metadata": None})
    assert [found async for found in client.list_pages(WIDGET)] == [([], "")]
    assert api_server.requests[0][1] == "/apis/example.com/v1/widgets?limit=100"


class LongList:
    """A list of objects of these sizes, which ``asked`` counts by the number of objects asked for."""

    def __init__(self, sizes: list[int], *, knows_pages: bool = True) -> None:
        self.objects: list[RawObject] = [
            {"metadata": {"namespace": "default", "name": f"{number:05}"}, "data": "x" * size}
            for number, size in enumerate(sizes)
        ]
        self.asked: list[int] = []
        self._knows_pages = knows_pages

    async def page(self, request: web.Request) -> web.StreamResponse:
        """Answer with the next page."""
        limit, start = int(request.query["limit"]), int(request.query.get("continue", "0"))
        self.asked.append(limit)
        end = start + limit if self._knows_pages else len(self.objects)
        metadata = {"resourceVersion": "9"} | ({"continue": str(end)} if end < len(self.objects) else {})
        return web.json_response({"items": self.objects[start:end], "metadata": metadata})


@pytest.mark.parametrize(
    "sizes",
    [[1_000_000] * 20, [100] * 1000 + [1_000_000] * 20, [20_000] * 500 + [100] * 2000, [3_000_000] * 5, [9_000_000]],
)
async def test_no_page_of_large_objects_is_large(client: Client, api_server: ApiServer, sizes: list[int]) -> None:
    """Each object is in one page, and no page of several objects is above 8 MiB."""
    long_list = LongList(sizes)
    api_server.answer = long_list.page
    pages = [page async for page, _ in client.list_pages(WIDGET, "default")]
    assert [obj for page in pages for obj in page] == long_list.objects
    assert all(len(page) == 1 or sum(len(obj["data"]) for obj in page) <= 8 << 20 for page in pages)


async def test_small_objects_come_in_large_pages(client: Client, api_server: ApiServer) -> None:
    long_list = LongList([1000] * 5000)
    api_server.answer = long_list.page
    _ = [page async for page, _ in client.list_pages(WIDGET, "default")]
    assert long_list.asked == [100] + [500] * 10


async def test_a_server_without_pages_is_read_nevertheless(client: Client, api_server: ApiServer) -> None:
    long_list = LongList([1_000_000] * 20, knows_pages=False)
    api_server.answer = long_list.page
    pages = [page async for page, _ in client.list_pages(WIDGET, "default")]
    assert pages == [long_list.objects]


async def test_a_list_that_expires_between_pages_is_gone(client: Client, api_server: ApiServer) -> None:
    async def expire(request: web.Request) -> web.StreamResponse:
        if "continue" in request.query:
            return web.json_response({"reason": "Expired", "message": "too old"}, status=410)
        return web.json_response({"items": [ONE], "metadata": {"continue": "next"}})

    api_server.answer = expire
    with pytest.raises(GoneError):
        _ = [page async for page in client.list_pages(WIDGET)]


async def test_a_watch_gives_each_change_and_asks_for_bookmarks(client: Client, api_server: ApiServer) -> None:
    api_server.answer = streaming(event("ADDED", ONE), event("BOOKMARK", {}))
    assert await watched(client) == [("ADDED", ONE), ("BOOKMARK", {})]
    assert api_server.requests[0][1] == (
        f"{WIDGETS}?watch=true&allowWatchBookmarks=true&resourceVersion=7&timeoutSeconds=30"
    )


async def test_a_large_object_comes_through_a_watch(client: Client, api_server: ApiServer) -> None:
    large = ONE | {"data": "x" * 1_500_000}
    api_server.answer = streaming(event("ADDED", large))
    assert await watched(client) == [("ADDED", large)]


@pytest.mark.parametrize(
    ("status", "kind"),
    [({"code": 410, "reason": "Expired"}, GoneError), ({"code": 500}, KubeError), ({}, KubeError), (None, KubeError)],
)
async def test_an_error_in_a_watch_is_raised_as_itself(
    client: Client, api_server: ApiServer, status: object, kind: type[KubeError]
) -> None:
    api_server.answer = streaming(event("ADDED", ONE), event("ERROR", status))
    with pytest.raises(kind):
        await watched(client)


@pytest.mark.parametrize("line", [b'{"type": "ADDED", "obj\n', b"<html>\n", b"[]\n", b"{}\n", b"\n"])
async def test_a_torn_line_of_a_watch_is_a_broken_connection(
    client: Client, api_server: ApiServer, line: bytes
) -> None:
    api_server.answer = streaming(line)
    with pytest.raises(UnreachableError, match=r"the watch on example.com/v1, Kind=Widget broke"):
        await watched(client)


async def test_a_watch_that_is_refused_is_its_error(client: Client, api_server: ApiServer) -> None:
    api_server.answer = api_server.give({"reason": "Expired", "message": "too old"}, 410)
    with pytest.raises(GoneError):
        await watched(client)


async def test_a_resource_is_found_by_kind_and_by_path(client: Client) -> None:
    resource = await client.resource(WIDGET)
    assert resource.subresources == {"status"}
    assert await client.resource_for_path("example.com", "v1", "widgets") == resource


def kubeconfig(server: str) -> str:
    """Return the text of a kubeconfig file."""
    return json.dumps(
        {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {"token": "from-file"}}],
        }
    )


async def test_a_kubeconfig_file_says_where_and_who(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(kubeconfig("http://127.0.0.1:1/"))
    async with await Client.connect(str(file)) as client:
        assert client.base_url == "http://127.0.0.1:1"
        assert await client.auth_headers() == {"authorization": "Bearer from-file"}


async def test_the_environment_names_the_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text(kubeconfig("http://127.0.0.1:2"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    async with await Client.connect() as client:
        assert client.base_url == "http://127.0.0.1:2"


async def test_without_any_name_the_kubeconfig_lies_in_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(kubeconfig("http://127.0.0.1:3"))
    for variable in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    async with await Client.connect() as client:
        assert client.base_url == "http://127.0.0.1:3"


@pytest.mark.parametrize(
    "text", [None, "", "not: a config", "{", "[]", "users: 5", '{"clusters": [{}], "contexts": [{"name": 1}]}']
)
async def test_a_kubeconfig_that_cannot_be_used_is_an_error(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "config"
    if text is not None:
        file.write_text(text)
    with pytest.raises(KubeError, match="no usable configuration for the API server"):
        await Client.connect(str(file))


async def test_a_pod_without_its_account_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    with pytest.raises(KubeError, match="no usable configuration for the API server"):
        await Client.connect()


SECRET = GVK("", "v1", "Secret")
METADATA = {"name": "login", "namespace": "ns", "resourceVersion": "7"}
PARTIAL = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": METADATA}


SECRETS = "/api/v1/namespaces/ns/secrets"


async def test_a_selected_name_is_requested_with_a_field_selector(client: Client, api_server: ApiServer) -> None:
    api_server.answer = api_server.give({"metadata": {"resourceVersion": "9"}, "items": []})
    pages = [page async for page in SelectedReads(client, Selection("login")).list_pages(SECRET, "ns")]
    assert pages == [([], "9")]
    [(_, target, _)] = api_server.requests
    assert target == f"{SECRETS}?fieldSelector=metadata.name%3Dlogin&limit=100"


async def test_selected_metadata_is_requested_and_shown_with_its_kind(client: Client, api_server: ApiServer) -> None:
    reads = SelectedReads(client, Selection(metadata_only=True))
    shown = {"apiVersion": "v1", "kind": "Secret", "metadata": METADATA, UNREAD: "7"}
    api_server.answer = api_server.give({"metadata": {"resourceVersion": "9"}, "items": [PARTIAL]})
    assert [page async for page in reads.list_pages(SECRET)] == [([shown], "9")]
    api_server.answer = streaming(event("MODIFIED", PARTIAL))
    assert [found async for found in reads.watch(SECRET, None, "6", 1.0)] == [("MODIFIED", shown)]
    assert [each["Accept"] for each in api_server.headers] == [ACCEPT_PARTIAL_LIST, ACCEPT_PARTIAL_OBJECT]


async def test_an_unreadable_selected_object_is_shown_by_its_version(client: Client, api_server: ApiServer) -> None:
    api_server.answer = streaming(event("ADDED", PARTIAL))
    events = [found async for found in SelectedReads(client, Selection()).watch(SECRET, None, "6", 1.0)]
    assert [(kind, obj["kind"], obj[UNREAD]) for kind, obj in events] == [("ADDED", "Secret", "7")]
