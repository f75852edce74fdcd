import asyncio
import socket
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from aiohttp import web
from kubernetes.aio.client import Configuration

from rolecall.kube import connection
from rolecall.kube.client import (
    ACCEPT_PARTIAL_LIST,
    ACCEPT_PARTIAL_OBJECT,
    UNREAD,
    Client,
    Selection,
    is_partial,
)
from rolecall.kube.connection import Request
from rolecall.kube.errors import (
    ConflictError,
    GoneError,
    InvalidNameError,
    KubeError,
    NotFoundError,
    NotServedError,
    OtherObjectError,
    ResponseTimeoutError,
    UnreachableError,
    UnreadableError,
)
from rolecall.kube.references import GVK, ObjectKey, RawObject
from tests.unit.kube.conftest import DISCOVERY, KEY, ONE, WIDGET, ApiServer, event, streaming, watched, write_kubeconfig

WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
SECRET = GVK("", "v1", "Secret")
METADATA = {"name": "login", "namespace": "ns", "resourceVersion": "7"}
PARTIAL = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": METADATA}
SECRETS = "/api/v1/namespaces/ns/secrets"
LEVELS = 100_000
DEEP = '{"a":' * LEVELS + "1" + "}" * LEVELS


async def test_object_is_read_with_credentials_of_operator(client: Client, api_server: ApiServer) -> None:
    assert await client.get(WIDGET, KEY) == ONE
    assert api_server.requests == [("GET", f"{WIDGETS}/one", None)]
    assert api_server.headers[0]["Authorization"] == "Bearer s3cret"


async def test_one_response_is_read_within_its_limit(client: Client, api_server: ApiServer) -> None:
    items = {"kind": "WidgetList", "items": [ONE]}
    api_server.respond(items)
    assert await client.read(WIDGET, "default", max_bytes=10_000, labelSelector="a=b") == items
    assert api_server.requests == [("GET", f"{WIDGETS}?labelSelector=a%3Db", None)]
    with pytest.raises(KubeError, match=f"GET {WIDGETS}: the response is longer than 20 bytes"):
        await client.read(WIDGET, "default", max_bytes=20)


async def test_metadata_alone_is_requested(client: Client, api_server: ApiServer) -> None:
    await client.read(WIDGET, "default", "one", max_bytes=10_000, metadata_only=True)
    assert api_server.headers[-1]["Accept"] == ACCEPT_PARTIAL_OBJECT


async def test_uncompressed_responses_are_requested(client: Client, api_server: ApiServer) -> None:
    await client.get(WIDGET, KEY)
    assert api_server.headers[0]["Accept-Encoding"] == "identity"


async def test_each_verb_is_sent_to_its_path_with_its_body(client: Client, api_server: ApiServer) -> None:
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


async def test_name_that_leads_elsewhere_is_in_no_request(client: Client, api_server: ApiServer) -> None:
    for key in (ObjectKey("default", "../../../namespaces/default"), ObjectKey("..", "one"), ObjectKey("default", "")):
        obj: RawObject = ONE | {"metadata": {"namespace": key.namespace, "name": key.name}}
        for send in (
            client.get(WIDGET, key),
            client.replace(obj),
            client.patch(WIDGET, key, {}),
            client.delete(WIDGET, key),
        ):
            with pytest.raises(InvalidNameError):
                await send
    assert api_server.requests == []


@pytest.mark.parametrize(
    "found",
    [
        ONE | {"metadata": {"namespace": "default", "name": "other"}},
        ONE | {"metadata": {"namespace": "other", "name": "one"}},
        ONE | {"metadata": {"name": "one"}},
        ONE | {"kind": "Other"},
        ONE | {"apiVersion": "example.org/v1"},
    ],
)
async def test_other_object_than_requested_is_error(client: Client, api_server: ApiServer, found: RawObject) -> None:
    api_server.respond(found)
    sent = client.get(WIDGET, KEY), client.replace(ONE), client.patch(WIDGET, KEY, {}), client.create(ONE)
    for send in (*sent, client.read(WIDGET, "default", "one", max_bytes=1000)):
        with pytest.raises(OtherObjectError, match=r"expected Widget default/one, found \S+ \S+"):
            await send


async def test_subresource_of_another_kind_is_that_of_the_object(client: Client, api_server: ApiServer) -> None:
    """A scale is of kind Scale, and has the object's name."""
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": ONE["metadata"]}
    api_server.respond(scale)
    assert await client.patch(WIDGET, KEY, {"spec": {"replicas": 2}}, "scale") == scale
    assert await client.replace(ONE, "scale") == scale
    api_server.respond(scale | {"metadata": {"name": "two", "namespace": "default"}})
    for send in (client.patch(WIDGET, KEY, {}, "scale"), client.patch(WIDGET, KEY, {}, "status")):
        with pytest.raises(OtherObjectError):
            await send


async def test_missing_subresource_says_nothing_about_its_object(client: Client, api_server: ApiServer) -> None:
    """The API server names the object, whether the object is missing or its kind has no such subresource."""
    missing = {"kind": "Status", "reason": "NotFound", "message": "gone", "details": {"name": "one"}}
    api_server.respond(missing, 404)
    for send in (client.replace(ONE, "status"), client.patch(WIDGET, KEY, {}, "scale")):
        with pytest.raises(NotServedError):
            await send
    for send in (client.replace(ONE), client.patch(WIDGET, KEY, {}), client.get(WIDGET, KEY)):
        with pytest.raises(NotFoundError):
            await send


@pytest.mark.parametrize(
    ("status", "kind"), [(404, NotServedError), (409, ConflictError), (410, GoneError), (500, KubeError)]
)
async def test_error_status_raises_its_error(
    client: Client, api_server: ApiServer, status: int, kind: type[KubeError]
) -> None:
    api_server.respond({"kind": "Status", "reason": "Why", "message": "because"}, status)
    with pytest.raises(kind, match=f"{status} Why: because"):
        await client.get(WIDGET, KEY)


async def test_error_page_of_intermediary_is_in_message(client: Client, api_server: ApiServer) -> None:
    api_server.respond("<html>Bad Gateway</html>", 502)
    with pytest.raises(KubeError, match="502 : <html>Bad Gateway</html>"):
        await client.get(WIDGET, KEY)


@pytest.mark.parametrize("body", ["[]", "<html>Log in first</html>", "", '{"half":'])
async def test_response_other_than_object_is_error(client: Client, api_server: ApiServer, body: str) -> None:
    api_server.respond(body)
    with pytest.raises(KubeError, match=f"GET {WIDGETS}/one: expected an object"):
        await client.get(WIDGET, KEY)


async def test_unavailable_server_is_unreachable() -> None:
    with socket.socket() as silent:  # it doesn't listen, and keeps its port from the servers of other tests
        silent.bind(("127.0.0.1", 0))
        async with Client(Configuration(host=f"http://127.0.0.1:{silent.getsockname()[1]}")) as client:
            with pytest.raises(UnreachableError, match=r"GET /apis/example.com/v1 got no response"):
                await client.get(WIDGET, KEY)


async def cannot_be_sent(client: Client, body: object = None) -> None:
    """Check that a request fails in a way that does not look as if it could be sent later."""
    with pytest.raises(KubeError) as error:
        await client._send(Request("PUT", "/somewhere", body=body))
    assert not isinstance(error.value, UnreachableError), "a retry would never end"


async def test_header_with_line_break_is_not_network_error(client: Client) -> None:
    client._credentials._token = "Bearer one\r\nX-Other: two"  # noqa: S105 - opens nothing
    await cannot_be_sent(client)


async def test_invalid_url_is_not_network_error() -> None:
    async with Client(Configuration(host="http://127.0.0.1:port")) as client:
        await cannot_be_sent(client)


async def test_deeply_nested_body_is_not_network_error(client: Client) -> None:
    body: object = {}
    for _ in range(100_000):
        body = [body]
    await cannot_be_sent(client, body)


async def test_interrupted_response_is_unreachable(client: Client, api_server: ApiServer) -> None:
    async def break_off(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b'{"half":')
        assert request.transport is not None
        request.transport.close()
        return response

    api_server.handler = break_off
    with pytest.raises(UnreachableError):
        await client.get(WIDGET, KEY)


async def test_late_response_is_timeout(client: Client, api_server: ApiServer) -> None:
    async def never(_request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    api_server.handler = never
    with pytest.raises(ResponseTimeoutError, match="Timeout"):
        await client._send(Request("GET", "/never", timeout_seconds=0.05))


async def test_watch_without_a_response_ends_long_before_its_time(
    client: Client, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    api_server.handler = never
    monkeypatch.setattr(connection, "REQUEST_SECONDS", 0.05)
    with pytest.raises(ResponseTimeoutError):
        await anext(client.lines(Request("GET", "/never", timeout_seconds=300.0)))


async def test_list_has_pages_with_versions(client: Client, api_server: ApiServer) -> None:
    async def page(request: web.Request) -> web.StreamResponse:
        first = "continue" not in request.query
        token = "next/=" if first else ""
        return web.json_response({"items": [ONE], "metadata": {"resourceVersion": "9", "continue": token}})

    api_server.handler = page
    assert [found async for found in client.list_pages(WIDGET, "default")] == [([ONE], "9"), ([ONE], "9")]
    assert [path for _, path, _ in api_server.requests] == [
        f"{WIDGETS}?limit=100",
        f"{WIDGETS}?limit=500&continue=next%2F%3D",
    ]


async def test_empty_list_is_one_empty_page(client: Client, api_server: ApiServer) -> None:
    api_server.respond({"items": None, "metadata": None})
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
        """Respond with the next page."""
        limit, start = int(request.query["limit"]), int(request.query.get("continue", "0"))
        self.asked.append(limit)
        end = start + limit if self._knows_pages else len(self.objects)
        metadata = {"resourceVersion": "9"} | ({"continue": str(end)} if end < len(self.objects) else {})
        return web.json_response({"items": self.objects[start:end], "metadata": metadata})


@pytest.mark.parametrize(
    "sizes",
    [[1_000_000] * 20, [100] * 1000 + [1_000_000] * 20, [20_000] * 500 + [100] * 2000, [3_000_000] * 5, [9_000_000]],
)
async def test_page_of_large_objects_is_not_large(client: Client, api_server: ApiServer, sizes: list[int]) -> None:
    """Each object is in one page, and no page of several objects is above 8 MiB."""
    long_list = LongList(sizes)
    api_server.handler = long_list.page
    pages = [page async for page, _ in client.list_pages(WIDGET, "default")]
    assert [obj for page in pages for obj in page] == long_list.objects
    assert all(len(page) == 1 or sum(len(obj["data"]) for obj in page) <= 8 << 20 for page in pages)


async def test_small_objects_are_in_large_pages(client: Client, api_server: ApiServer) -> None:
    long_list = LongList([1000] * 5000)
    api_server.handler = long_list.page
    _ = [page async for page, _ in client.list_pages(WIDGET, "default")]
    assert long_list.asked == [100] + [500] * 10


async def test_list_of_server_without_pagination_is_read(client: Client, api_server: ApiServer) -> None:
    long_list = LongList([1_000_000] * 20, knows_pages=False)
    api_server.handler = long_list.page
    pages = [page async for page, _ in client.list_pages(WIDGET, "default")]
    assert pages == [long_list.objects]


async def test_list_that_expires_between_pages_is_gone(client: Client, api_server: ApiServer) -> None:
    async def expire(request: web.Request) -> web.StreamResponse:
        if "continue" in request.query:
            return web.json_response({"reason": "Expired", "message": "too old"}, status=410)
        return web.json_response({"items": [ONE], "metadata": {"continue": "next"}})

    api_server.handler = expire
    with pytest.raises(GoneError):
        _ = [page async for page in client.list_pages(WIDGET)]


async def test_watch_yields_changes_and_requests_bookmarks(client: Client, api_server: ApiServer) -> None:
    api_server.handler = streaming(event("ADDED", ONE), event("BOOKMARK", {}))
    assert await watched(client) == [("ADDED", ONE), ("BOOKMARK", {})]
    assert api_server.requests[0][1] == (
        f"{WIDGETS}?watch=true&allowWatchBookmarks=true&resourceVersion=7&timeoutSeconds=30"
    )


@pytest.mark.parametrize(
    ("status", "kind"),
    [({"code": 410, "reason": "Expired"}, GoneError), ({"code": 500}, KubeError), ({}, KubeError), (None, KubeError)],
)
async def test_error_event_is_raised(
    client: Client, api_server: ApiServer, status: object, kind: type[KubeError]
) -> None:
    api_server.handler = streaming(event("ADDED", ONE), event("ERROR", status))
    with pytest.raises(kind):
        await watched(client)


@pytest.mark.parametrize("line", [b'{"type": "ADDED", "obj\n', b"<html>\n", b"[]\n", b"{}\n", b"\n"])
async def test_malformed_event_is_broken_watch(client: Client, api_server: ApiServer, line: bytes) -> None:
    api_server.handler = streaming(line)
    with pytest.raises(UnreachableError, match="the watch broke: expected a type and an object"):
        await watched(client)


@pytest.mark.parametrize("line", [b'{"type": "ADDED", "object": {]\n', b"\n", b'{"type":"ADDED","object":null}\n'])
async def test_broken_line_hides_no_event(client: Client, api_server: ApiServer, line: bytes) -> None:
    """The event after it isn't skipped as unreadable, and no version is passed over: the next watch has them all."""
    names = ["w"] * 7 + ["first", "second", "third"]
    widgets, broken = Widgets(names), [line]

    async def respond(request: web.Request) -> web.StreamResponse:
        found = await widgets.respond(request)
        assert isinstance(found, web.Response)
        events = (found.text or "").encode().splitlines(keepends=True)
        return web.Response(body=b"".join([*events[:1], *broken, *events[1:]]))

    api_server.handler = respond
    found = []

    async def watch(version: str) -> None:
        async for _, obj in client.watch(WIDGET, "default", version, 30):
            found.append(obj["metadata"])

    with pytest.raises(UnreachableError):
        await watch("7")
    broken.clear()
    await watch(found[-1]["resourceVersion"])
    assert [each["name"] for each in found] == ["first", "second", "third"]


async def test_resource_is_found_by_kind_and_path(client: Client) -> None:
    resource = await client.resource(WIDGET)
    assert resource.subresources == {"status"}
    assert await client.resource_for_path("example.com", "v1", "widgets") == resource


async def test_a_selected_name_is_requested_with_a_field_selector(client: Client, api_server: ApiServer) -> None:
    api_server.respond({"metadata": {"resourceVersion": "9"}, "items": []})
    pages = [page async for page in client.list_pages(SECRET, "ns", Selection("login"))]
    assert pages == [([], "9")]
    [(_, target, _)] = api_server.requests
    assert target == f"{SECRETS}?fieldSelector=metadata.name%3Dlogin&limit=100"


async def test_selected_name_is_quoted_in_the_selector(client: Client, api_server: ApiServer) -> None:
    api_server.respond({"metadata": {"resourceVersion": "9"}, "items": []})
    assert [page async for page in client.list_pages(SECRET, "ns", Selection("a,metadata.name!=b"))]
    [(_, target, _)] = api_server.requests
    assert dict(parse_qsl(urlsplit(target).query))["fieldSelector"] == r"metadata.name=a\,metadata.name!\=b"


async def test_selected_metadata_is_requested_and_shown_with_its_kind(client: Client, api_server: ApiServer) -> None:
    metadata = Selection(metadata_only=True)
    shown = {"apiVersion": "v1", "kind": "Secret", "metadata": METADATA, UNREAD: "7"}
    api_server.respond({"metadata": {"resourceVersion": "9"}, "items": [PARTIAL]})
    assert [page async for page in client.list_pages(SECRET, None, metadata)] == [([shown], "9")]
    api_server.handler = streaming(event("MODIFIED", PARTIAL))
    assert [found async for found in client.watch(SECRET, None, "6", 1.0, metadata)] == [("MODIFIED", shown)]
    assert [each["Accept"] for each in api_server.headers] == [ACCEPT_PARTIAL_LIST, ACCEPT_PARTIAL_OBJECT]


async def test_an_unreadable_selected_object_is_shown_by_its_version(client: Client, api_server: ApiServer) -> None:
    api_server.handler = streaming(event("ADDED", PARTIAL))
    events = [found async for found in client.watch(SECRET, None, "6", 1.0, Selection())]
    assert [(kind, obj["kind"], obj[UNREAD]) for kind, obj in events] == [("ADDED", "Secret", "7")]


async def test_contradicting_error_refreshes_discovery(
    client: Client, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.get(WIDGET, KEY)
    cluster_scoped = {"name": "widgets", "kind": "Widget", "namespaced": False, "verbs": ["get"]}
    monkeypatch.setitem(DISCOVERY, "/apis/example.com/v1", [cluster_scoped])
    assert (await client.resource(WIDGET)).namespaced
    api_server.respond("404 page not found", 404)
    with pytest.raises(NotServedError):
        await client.get(WIDGET, KEY)
    assert not (await client.resource(WIDGET)).namespaced


# One unreadable object must not hide the others of its kind


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

    async def respond(self, request: web.Request) -> web.StreamResponse:
        """Respond to a list or a watch, with the metadata only if requested."""
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
async def test_list_has_all_objects_and_metadata_of_unreadable_one(
    client: Client, api_server: ApiServer, position: int
) -> None:
    names = [f"w{number}" for number in range(1000)]
    names[position] = "deep"
    api_server.handler = Widgets(names).respond
    assert await listed(client) == [(name, name != "deep") for name in names]
    assert len(api_server.requests) < 50


async def test_list_of_only_unreadable_objects_ends(client: Client, api_server: ApiServer) -> None:
    api_server.handler = Widgets(["deep"] * 5).respond
    assert await listed(client) == [("deep", False)] * 5


async def test_watch_continues_after_unreadable_object(client: Client, api_server: ApiServer) -> None:
    names = [f"w{number}" for number in range(7)]  # the watch starts at version 7
    api_server.handler = Widgets([*names, "before", "deep", "after"]).respond
    found = [(event_type, obj["metadata"]["name"], is_partial(obj)) for event_type, obj in await watched(client)]
    assert found == [("ADDED", "before", False), ("ADDED", "deep", True), ("ADDED", "after", False)]


async def test_deletion_of_unreadable_object_is_deletion(client: Client, api_server: ApiServer) -> None:
    api_server.handler = Widgets(["w"] * 7 + ["deep", "after"], ("ADDED",) * 7 + ("DELETED", "ADDED")).respond
    (event_type, obj), (_, after) = await watched(client)
    assert (event_type, obj["kind"], obj["metadata"]["name"]) == ("DELETED", "Widget", "deep")
    assert after["metadata"]["name"] == "after"


async def test_watch_continues_after_line_beyond_limit(
    client: Client, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LINE_BYTES", 1000)
    api_server.handler = Widgets(["w"] * 7 + ["deep", "after"]).respond
    assert [is_partial(obj) for _, obj in await watched(client)] == [True, False]


async def test_watch_yields_object_of_megabytes_of_escapes(client: Client, api_server: ApiServer) -> None:
    async def respond(_request: web.Request) -> web.StreamResponse:
        return web.Response(text='{"type":"ADDED","object":{"data":"' + "\\u003c" * 1_500_000 + '"}}\n')

    api_server.handler = respond
    [(_, obj)] = await watched(client)
    assert obj == {"data": "<" * 1_500_000}


async def test_watch_with_unreadable_metadata_is_broken(client: Client, api_server: ApiServer) -> None:
    api_server.respond('{"type":"ADDED","object":' + DEEP + "}\n")
    with pytest.raises(UnreachableError, match="nested more deeply than the JSON parser"):
        await watched(client)


async def test_stream_that_ends_within_line_is_broken(client: Client, api_server: ApiServer) -> None:
    api_server.respond('{"type":"ADDED","obj')
    with pytest.raises(UnreachableError, match="ended within the line"):
        await watched(client)


async def test_unreadable_object_error_has_reason(client: Client, api_server: ApiServer) -> None:
    api_server.respond(DEEP)
    with pytest.raises(UnreadableError, match="one: the response is nested more deeply than the JSON parser of Python"):
        await client.get(WIDGET, KEY)


@pytest.mark.parametrize("source", ["file", "variable", "home"])
async def test_kubeconfig_is_given_file_else_that_of_variable_else_of_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    for variable in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    directory = tmp_path / ".kube"
    directory.mkdir()
    file = write_kubeconfig(directory, "http://127.0.0.1:1/", {"token": "from-file"})
    if source == "variable":
        monkeypatch.setenv("KUBECONFIG", file)
        monkeypatch.setenv("HOME", "/nonexistent")
    async with await Client.connect(file if source == "file" else None) as client:
        assert client.base_url == "http://127.0.0.1:1"
        assert await client.auth_headers() == {"authorization": "Bearer from-file"}


@pytest.mark.parametrize(
    "text", [None, "", "not: a config", "{", "[]", "users: 5", '{"clusters": [{}], "contexts": [{"name": 1}]}']
)
async def test_unusable_kubeconfig_is_error(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "config"
    if text is not None:
        file.write_text(text)
    with pytest.raises(KubeError, match="no usable configuration for the API server"):
        await Client.connect(str(file))


async def test_pod_without_service_account_is_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    with pytest.raises(KubeError, match="no usable configuration for the API server"):
        await Client.connect()
