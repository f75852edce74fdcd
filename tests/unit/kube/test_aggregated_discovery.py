"""What an API server serves is told as it is, by any kind of API server, and asked for again only when it changes."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import Configuration

from rolecall.kube.client import Client
from rolecall.kube.discovery import AggregatedDiscovery, Served
from rolecall.kube.errors import KubeError

SCALE = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
WIDGETS = {
    "resource": "widgets",
    "responseKind": {"group": "example.com", "version": "v1", "kind": "Widget"},
    "scope": "Namespaced",
    "singularResource": "widget",
    "verbs": ["get", "list"],
    "shortNames": ["wd"],
    "subresources": [{"subresource": "scale", "responseKind": SCALE, "verbs": ["get"]}],
}
NODES = {"resource": "nodes", "responseKind": {"version": "v1", "kind": "Node"}, "scope": "Cluster", "verbs": ["get"]}
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
    """Answers with ``answers``, under an ETag that changes with the answer; without ``tags``, under none."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {
            "/api": aggregated(("", {"version": "v1", "resources": [NODES], "freshness": "Current"})),
            "/apis": aggregated(("example.com", {"version": "v1", "resources": [WIDGETS]})),
            "/version": {"gitVersion": "v1.37.1"},
        }
        self.tags = True
        self.bodies: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer, with 304 where that is enough."""
        if request.path not in self.answers:
            return web.json_response({"message": "no"}, status=503)
        text = json.dumps(self.answers[request.path])
        tag = f'"{hash(text)}"'
        if self.tags and request.headers.get("If-None-Match") == tag:
            return web.Response(status=304)
        self.bodies.append(request.path)
        return web.Response(text=text, headers={"ETag": tag} if self.tags else {})


@pytest.fixture
async def server() -> ApiServer:
    return ApiServer()


@pytest.fixture
async def discovery(server: ApiServer) -> AsyncIterator[AggregatedDiscovery]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.handle)
    async with TestServer(application) as running, Client(Configuration(host=str(running.make_url("/")))) as client:
        yield AggregatedDiscovery(client)


async def told(discovery: AggregatedDiscovery) -> Served:
    """Return what is served; it must have changed."""
    served = await discovery.changed()
    assert served is not None
    return served


async def test_resources_are_those_of_a_resource_list(discovery: AggregatedDiscovery) -> None:
    served = await told(discovery)
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


async def test_what_has_not_changed_is_not_sent_again(discovery: AggregatedDiscovery, server: ApiServer) -> None:
    await told(discovery)
    server.bodies.clear()
    assert await discovery.changed() is None
    assert server.bodies == []


async def test_without_etags_what_has_not_changed_is_still_known(
    discovery: AggregatedDiscovery, server: ApiServer
) -> None:
    server.tags = False
    await told(discovery)
    assert await discovery.changed() is None


@pytest.mark.parametrize("path", ["/api", "/apis"])
async def test_a_change_is_told(discovery: AggregatedDiscovery, server: ApiServer, path: str) -> None:
    await told(discovery)
    server.answers[path] = aggregated(("new.example.com", {"version": "v1", "resources": [WIDGETS]}))
    assert "new.example.com" in (await told(discovery)).groups


async def test_a_change_whose_answer_was_not_complete_is_told_later(
    discovery: AggregatedDiscovery, server: ApiServer
) -> None:
    await told(discovery)
    server.answers["/api"] = aggregated(("", {"version": "v2", "resources": []}))
    groups = server.answers.pop("/apis")
    with pytest.raises(KubeError):
        await discovery.changed()
    server.answers["/apis"] = groups
    version = server.answers.pop("/version")
    with pytest.raises(KubeError):
        await discovery.changed()
    server.answers["/version"] = version
    assert list((await told(discovery)).groups[""]) == ["v2"]


async def test_a_stale_version_has_to_be_asked_for(discovery: AggregatedDiscovery, server: ApiServer) -> None:
    stale = {"version": "v1", "resources": [], "freshness": "Stale"}
    server.answers["/apis"] = aggregated(("metrics.k8s.io", stale))
    assert (await told(discovery)).groups["metrics.k8s.io"] == {"v1": None}


async def test_without_aggregated_discovery_each_version_has_to_be_asked_for(
    discovery: AggregatedDiscovery, server: ApiServer
) -> None:
    server.answers |= CLASSIC
    groups = (await told(discovery)).groups
    assert groups == {"": {"v1": None}, "example.com": {"v1": None, "v2": None}}
    assert next(iter(groups["example.com"])) == "v1"


async def test_a_resource_without_a_kind_is_left_out(discovery: AggregatedDiscovery, server: ApiServer) -> None:
    odd = {"resource": "odd", "scope": "Namespaced", "subresources": [{"subresource": "log", "verbs": ["get"]}]}
    server.answers["/apis"] = aggregated(("example.com", {"version": "v1", "resources": [odd]}))
    found = (await told(discovery)).groups["example.com"]["v1"] or []
    assert [each["name"] for each in found] == ["odd/log"]
