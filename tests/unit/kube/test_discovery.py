import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pytest
from aiohttp import web
from hypothesis import example, given
from hypothesis import strategies as st
from kubernetes.aio.client import Configuration
from yarl import URL

from rolecall.kube.client import Client
from rolecall.kube.discovery import (
    MAX_AGE_SECONDS,
    AggregatedDiscovery,
    ApiResource,
    Discovery,
    Served,
    contradicts_discovery,
    read_resource_list,
)
from rolecall.kube.errors import (
    ApiError,
    InvalidNameError,
    KubeError,
    NotServedError,
    UnknownKindError,
    UnreachableError,
    from_status,
)
from rolecall.kube.references import GVK, ObjectKey
from tests.unit.kube.conftest import serving

WIDGET = GVK("example.com", "v1", "Widget")
ALL_VERBS = ["get", "list", "watch", "create"]
WIDGETS = {"name": "widgets", "kind": "Widget", "namespaced": True, "verbs": ALL_VERBS}
WIDGET_STATUS = {"name": "widgets/status", "kind": "Widget", "namespaced": True, "verbs": ["get"]}
NODES = {"name": "nodes", "kind": "Node", "namespaced": False, "verbs": ALL_VERBS}


class Server:
    """Serves the lists of ``lists``; anything else is not found. Records the requested paths."""

    def __init__(self, **lists: list[dict[str, Any]]) -> None:
        self.lists = {path.replace("__", "/").replace("_", "."): items for path, items in lists.items()}
        self.requested: list[str] = []
        self.failure: KubeError | None = None

    async def __call__(self, path: str) -> dict[str, Any]:
        """Respond."""
        self.requested.append(path)
        if self.failure is not None:
            raise self.failure
        if path not in self.lists:
            raise NotServedError(404, "", "no such group")
        return {"resources": self.lists[path]}


def widgets() -> ApiResource:
    """Return the resource of the kind Widget."""
    [found] = read_resource_list("example.com", "v1", {"resources": [WIDGET_STATUS, WIDGETS]})
    return found


def test_subresources_belong_to_their_resource() -> None:
    assert widgets() == ApiResource(WIDGET, "widgets", True, frozenset(ALL_VERBS), frozenset({"status"}))  # noqa: FBT003


ACCEPTED = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/%"), min_size=1, max_size=253).filter(
    lambda name: name not in {".", ".."}
)
"""The names that the API server accepts for some kind: ``IsValidPathSegmentName`` in k8s.io/apimachinery."""

REJECTED = st.one_of(
    st.sampled_from([".", "..", "../x", "a/../b", "%2e%2e", "%2f", "..%2f..", "a/b", "\ud800", "a%00"]),
    st.tuples(st.text(max_size=9), st.sampled_from(["/", "%", "%2F"]), st.text(max_size=9)).map("".join),
)


@given(ACCEPTED, ACCEPTED, st.sampled_from(["", "status"]))
@example("system:auth-delegator", "a#b", "")
@example("ns", "a?b=c&d", "status")
@example("ns", "a\nb\x00c\x7f", "")
@example("ns", "...", "")
def test_path_has_each_name_as_one_segment(namespace: str, name: str, subresource: str) -> None:
    path = widgets().path_of(ObjectKey(namespace, name), subresource)
    expected = ["", "apis", "example.com", "v1", "namespaces", namespace, "widgets", name, *filter(None, [subresource])]
    for is_encoded in (True, False):  # a client that normalizes URLs changes nothing
        url = URL(f"https://host{path}", encoded=is_encoded)
        assert [unquote(part) for part in url.raw_path.split("/")] == expected
        assert (url.raw_query_string, url.raw_fragment) == ("", "")


@given(REJECTED, st.sampled_from(["namespace", "name", "subresource", "group", "version", "plural"]))
def test_name_that_no_object_has_is_in_no_path(name: str, where: str) -> None:
    parts = dict.fromkeys(("group", "version", "plural", "namespace", "name", "subresource"), "x") | {where: name}
    resource = replace(widgets(), gvk=GVK(parts["group"], parts["version"], "Widget"), plural=parts["plural"])
    with pytest.raises(InvalidNameError, match="can't be a segment of a URL path"):
        resource.path_of(ObjectKey(parts["namespace"], parts["name"]), parts["subresource"])


def test_object_without_name_has_no_path() -> None:
    with pytest.raises(InvalidNameError, match="expected the name of an object"):
        widgets().path_of(ObjectKey("ns", ""))


@pytest.mark.parametrize("response", [{}, {"resources": None}])
def test_list_without_resources_is_empty(response: dict[str, Any]) -> None:
    assert read_resource_list("example.com", "v1", response) == ()


def test_paths_of_namespaced_kind() -> None:
    assert widgets().path() == "/apis/example.com/v1/widgets"
    assert widgets().path("default") == "/apis/example.com/v1/namespaces/default/widgets"
    assert widgets().path_of(ObjectKey("default", "a")) == "/apis/example.com/v1/namespaces/default/widgets/a"
    assert widgets().path_of(ObjectKey("default", "a"), "status").endswith("/widgets/a/status")


def test_paths_of_core_group_and_cluster_scoped_kinds() -> None:
    [node] = read_resource_list("", "v1", {"resources": [NODES]})
    assert node.path_of(ObjectKey("", "a")) == "/api/v1/nodes/a"
    assert node.path("default") == "/api/v1/nodes"


async def test_group_version_is_requested_once() -> None:
    server = Server(__apis__example_com__v1=[WIDGETS, WIDGET_STATUS])
    discovery = Discovery(server)
    assert await discovery.by_kind(WIDGET) == await discovery.by_kind(WIDGET) == widgets()
    assert await discovery.by_plural("example.com", "v1", "widgets") == widgets()
    assert server.requested == ["/apis/example.com/v1"]


async def test_kind_installed_later_is_found() -> None:
    server = Server(__apis__example_com__v1=[])
    discovery = Discovery(server)
    with pytest.raises(UnknownKindError):
        await discovery.by_kind(WIDGET)
    server.lists["/apis/example.com/v1"] = [WIDGETS]
    assert (await discovery.by_kind(WIDGET)).plural == "widgets"


async def test_kind_in_missing_group_is_unknown() -> None:
    discovery = Discovery(Server())
    with pytest.raises(UnknownKindError, match=r"example.com/v1, Kind=Widget"):
        await discovery.by_kind(WIDGET)
    assert await discovery.by_plural("example.com", "v1", "widgets") is None


async def test_removed_group_is_forgotten() -> None:
    server = Server(__apis__example_com__v1=[WIDGETS])
    discovery = Discovery(server)
    await discovery.by_kind(WIDGET)
    server.lists.clear()
    assert await discovery.by_plural("example.com", "v1", "gadgets") is None
    with pytest.raises(UnknownKindError):
        await discovery.by_kind(WIDGET)


async def test_unreachable_api_server_is_not_missing_kind() -> None:
    async def fail(_path: str) -> dict[str, Any]:
        raise UnreachableError("connection refused")

    with pytest.raises(UnreachableError):
        await Discovery(fail).by_kind(WIDGET)


async def test_new_subresource_is_found_after_max_age() -> None:
    server = Server(__apis__example_com__v1=[WIDGETS])
    now = 0.0
    discovery = Discovery(server, lambda: now)
    assert (await discovery.by_kind(WIDGET)).subresources == frozenset()
    server.lists["/apis/example.com/v1"] = [WIDGETS, WIDGET_STATUS]
    now = MAX_AGE_SECONDS - 1
    assert (await discovery.by_kind(WIDGET)).subresources == frozenset()
    assert len(server.requested) == 1
    now = MAX_AGE_SECONDS + 1
    assert (await discovery.by_kind(WIDGET)).subresources == {"status"}


@pytest.mark.parametrize(
    ("path", "is_seen"),
    [("/apis/example.com/v1/widgets", True), ("/apis/example.com/v10/widgets", False), ("/api/v1/widgets", False)],
)
async def test_contradicting_response_expires_list(path: str, *, is_seen: bool) -> None:
    server = Server(__apis__example_com__v1=[WIDGETS])
    discovery = Discovery(server)
    assert (await discovery.by_kind(WIDGET)).namespaced
    server.lists["/apis/example.com/v1"] = [WIDGETS | {"namespaced": False}]
    discovery.expire(path)
    assert (await discovery.by_kind(WIDGET)).namespaced is not is_seen


async def test_cached_list_is_used_if_fetch_fails() -> None:
    server = Server(__apis__example_com__v1=[WIDGETS])
    discovery = Discovery(server)
    found = await discovery.by_kind(WIDGET)
    server.failure = ApiError(503, "ServiceUnavailable", "the aggregated API is unavailable")
    discovery.expire("/apis/example.com/v1/widgets")
    assert await discovery.by_kind(WIDGET) == found
    with pytest.raises(ApiError):
        await discovery.by_kind(GVK("example.com", "v1", "Gadget"))


@pytest.mark.parametrize(
    ("error", "contradicts"),
    [
        (from_status(404, "404 page not found"), True),
        (from_status(404, {"reason": "NotFound", "details": {}}), True),
        (from_status(404, {"reason": "NotFound", "details": {"name": "one", "kind": "widgets"}}), False),
        (from_status(405, {"reason": "MethodNotAllowed", "details": {}}), True),
        (from_status(403, {"reason": "Forbidden", "details": {}}), False),
    ],
)
def test_missing_path_contradicts_discovery_but_missing_object_does_not(error: ApiError, *, contradicts: bool) -> None:
    assert contradicts_discovery(error) is contradicts


SCALE = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
WIDGETS_AGGREGATED_DISCOVERY = {
    "resource": "widgets",
    "responseKind": {"group": "example.com", "version": "v1", "kind": "Widget"},
    "scope": "Namespaced",
    "singularResource": "widget",
    "verbs": ["get", "list"],
    "shortNames": ["wd"],
    "subresources": [{"subresource": "scale", "responseKind": SCALE, "verbs": ["get"]}],
}
NODES_AGGREGATED_DISCOVERY = {
    "resource": "nodes",
    "responseKind": {"version": "v1", "kind": "Node"},
    "scope": "Cluster",
    "verbs": ["get"],
}
CLASSIC = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {
        "kind": "APIGroupList",
        "groups": [
            {
                "name": "example.com",
                "versions": [{"version": "v2"}, {"version": "v1"}],
                "preferredVersion": {"version": "v1"},
            }
        ],
    },
}


def aggregated(*groups: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """Return an APIGroupDiscoveryList with one version for each group."""
    items = [{"metadata": {"name": name} if name else {}, "versions": [version]} for name, version in groups]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items}


class ApiServer:
    """Serves ``responses``, with an ETag that changes with the response; without ``tags``, with none."""

    def __init__(self) -> None:
        self.responses: dict[str, Any] = {
            "/api": aggregated(
                ("", {"version": "v1", "resources": [NODES_AGGREGATED_DISCOVERY], "freshness": "Current"})
            ),
            "/apis": aggregated(("example.com", {"version": "v1", "resources": [WIDGETS_AGGREGATED_DISCOVERY]})),
            "/version": {"gitVersion": "v1.37.1"},
        }
        self.tags = True
        self.bodies: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Respond, with 304 if the ETag matches."""
        if request.path not in self.responses:
            return web.json_response({"message": "no"}, status=503)
        text = json.dumps(self.responses[request.path])
        tag = f'"{hash(text)}"'
        if self.tags and request.headers.get("If-None-Match") == tag:
            return web.Response(status=304)
        self.bodies.append(request.path)
        return web.Response(text=text, headers={"ETag": tag} if self.tags else {})


@pytest.fixture
async def server() -> ApiServer:
    return ApiServer()


@pytest.fixture
async def discovery(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AggregatedDiscovery]:
    monkeypatch.setattr("rolecall.kube.discovery._SECONDS", 30.0)  # a busy machine may give no CPU for seconds
    async with serving(server.handle) as url, Client(Configuration(host=url)) as client:
        yield AggregatedDiscovery(client)


async def changed(discovery: AggregatedDiscovery) -> Served:
    """Return the served kinds, which must have changed."""
    served = await discovery.changed()
    assert served is not None
    return served


async def test_aggregated_resources_equal_resource_list(discovery: AggregatedDiscovery) -> None:
    served = await changed(discovery)
    assert served.version == {"gitVersion": "v1.37.1"}
    assert served.groups["example.com"]["v1"] == [
        {
            "group": "example.com",
            "version": "v1",
            "kind": "Widget",
            "name": "widgets",
            "singularName": "widget",
            "namespaced": True,
            "verbs": ["get", "list"],
            "shortNames": ["wd"],
        },
        {**SCALE, "name": "widgets/scale", "singularName": "", "namespaced": True, "verbs": ["get"]},
    ]
    [node] = served.groups[""]["v1"] or []
    assert (node["name"], node["kind"], node["namespaced"]) == ("nodes", "Node", False)


async def test_unchanged_discovery_is_not_sent_again(discovery: AggregatedDiscovery, server: ApiServer) -> None:
    await changed(discovery)
    server.bodies.clear()
    assert await discovery.changed() is None
    assert server.bodies == []


async def test_unchanged_discovery_is_recognized_without_etags(
    discovery: AggregatedDiscovery, server: ApiServer
) -> None:
    server.tags = False
    await changed(discovery)
    assert await discovery.changed() is None


@pytest.mark.parametrize("path", ["/api", "/apis"])
async def test_changed_discovery_is_returned(discovery: AggregatedDiscovery, server: ApiServer, path: str) -> None:
    await changed(discovery)
    server.responses[path] = aggregated(
        ("new.example.com", {"version": "v1", "resources": [WIDGETS_AGGREGATED_DISCOVERY]})
    )
    assert "new.example.com" in (await changed(discovery)).groups


async def test_change_is_returned_after_failed_requests(discovery: AggregatedDiscovery, server: ApiServer) -> None:
    await changed(discovery)
    server.responses["/api"] = aggregated(("", {"version": "v2", "resources": []}))
    groups = server.responses.pop("/apis")
    with pytest.raises(KubeError):
        await discovery.changed()
    server.responses["/apis"] = groups
    version = server.responses.pop("/version")
    with pytest.raises(KubeError):
        await discovery.changed()
    server.responses["/version"] = version
    assert list((await changed(discovery)).groups[""]) == ["v2"]


@pytest.mark.parametrize(
    "groups", [{"groups": [{"versions": []}]}, {"groups": [5]}, {"kind": "APIGroupDiscoveryList", "items": [{}]}]
)
async def test_response_that_describes_no_groups_is_error(
    discovery: AggregatedDiscovery, server: ApiServer, groups: dict[str, Any]
) -> None:
    server.responses["/apis"] = groups
    with pytest.raises(KubeError, match="GET /apis: the response doesn't describe groups"):
        await discovery.changed()


async def test_stale_version_has_no_resources(discovery: AggregatedDiscovery, server: ApiServer) -> None:
    stale = {"version": "v1", "resources": [], "freshness": "Stale"}
    server.responses["/apis"] = aggregated(("metrics.k8s.io", stale))
    assert (await changed(discovery)).groups["metrics.k8s.io"] == {"v1": None}


async def test_versions_without_aggregated_discovery_have_no_resources(
    discovery: AggregatedDiscovery, server: ApiServer
) -> None:
    server.responses |= CLASSIC
    groups = (await changed(discovery)).groups
    assert groups == {"": {"v1": None}, "example.com": {"v1": None, "v2": None}}
    assert next(iter(groups["example.com"])) == "v1"


async def test_resource_without_kind_is_omitted(discovery: AggregatedDiscovery, server: ApiServer) -> None:
    odd = {"resource": "odd", "scope": "Namespaced", "subresources": [{"subresource": "log", "verbs": ["get"]}]}
    server.responses["/apis"] = aggregated(("example.com", {"version": "v1", "resources": [odd]}))
    found = (await changed(discovery)).groups["example.com"]["v1"] or []
    assert [each["name"] for each in found] == ["odd/log"]
