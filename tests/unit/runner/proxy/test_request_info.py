import asyncio
import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from yarl import URL

from rolecall.kube.discovery import ApiResource
from rolecall.kube.references import GVK
from rolecall.runner.proxy.request_info import RequestInfo, is_valid_target, parse
from tests.unit.runner.proxy.api_server import ApiServer
from tests.unit.runner.proxy.conftest import CONFIG_MAPS, REFERENCE, Run, config_map, owners

NAME_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-.:"

PATH = "/api/v1/namespaces/ns/pods"
PODS = {"version": "v1", "namespace": "ns", "resource": "pods"}
POD = {**PODS, "name": "web"}
NAMESPACE = {"version": "v1", "namespace": "ns", "resource": "namespaces", "name": "ns"}


@pytest.mark.parametrize(
    ("method", "target", "expected"),
    [
        ("GET", f"{PATH}/web", {"verb": "get", **POD}),
        ("HEAD", f"{PATH}/web", {"verb": "get", **POD}),
        ("get", PATH, {"verb": "list", **PODS}),
        ("GET", f"{PATH}/", {"verb": "list", **PODS}),
        ("GET", f"{PATH}?watch=true", {"verb": "watch", **PODS}),
        ("GET", f"{PATH}?watch", {"verb": "watch", **PODS}),
        ("GET", f"{PATH}?watch=0&limit=5", {"verb": "list", **PODS}),
        ("GET", "/api/v1/watch/namespaces/ns/pods", {"verb": "watch", **PODS}),
        (
            "GET",
            f"{PATH}?fieldSelector=metadata.name%3Dweb",
            {"verb": "list", **POD},
        ),
        (
            "GET",
            f"{PATH}?watch=1&fieldSelector=status.phase=Failed,metadata.name==web",
            {"verb": "watch", **POD},
        ),
        ("GET", "/api/v1/pods", {"verb": "list", "version": "v1", "resource": "pods"}),
        ("POST", PATH, {"verb": "create", **PODS}),
        ("POST", f"{PATH}?dryRun=All", {"verb": "create", **PODS, "is_dry_run": True}),
        ("PUT", f"{PATH}/web", {"verb": "update", **POD}),
        ("PATCH", f"{PATH}/web", {"verb": "patch", **POD}),
        ("DELETE", f"{PATH}/web", {"verb": "delete", **POD}),
        ("DELETE", PATH, {"verb": "deletecollection", **PODS}),
        (
            "PATCH",
            f"{PATH}/web/status",
            {"verb": "patch", **POD, "subresource": "status"},
        ),
        (
            "GET",
            f"{PATH}/web/log?follow=true",
            {"verb": "get", **POD, "subresource": "log"},
        ),
        (
            "POST",
            f"{PATH}/web/proxy/a/b",
            {"verb": "create", **POD, "subresource": "proxy"},
        ),
        (
            "GET",
            "/api/v1/namespaces/ns",
            {"verb": "get", **NAMESPACE},
        ),
        (
            "PUT",
            "/api/v1/namespaces/ns/finalize",
            {"verb": "update", **NAMESPACE, "subresource": "finalize"},
        ),
        ("POST", "/api/v1/namespaces", {"verb": "create", "version": "v1", "resource": "namespaces"}),
        (
            "GET",
            "/apis/apps/v1/namespaces/ns/deployments/web/scale",
            {
                "verb": "get",
                "group": "apps",
                "version": "v1",
                "namespace": "ns",
                "resource": "deployments",
                "name": "web",
                "subresource": "scale",
            },
        ),
        (
            "GET",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
            {
                "verb": "get",
                "group": "rbac.authorization.k8s.io",
                "version": "v1",
                "resource": "clusterroles",
                "name": "system:node",
            },
        ),
        ("GET", "http://127.0.0.1:80/api/v1/namespaces/ns/pods", {"verb": "list", **PODS}),
    ],
)
def test_resource_request_is_parsed_as_by_api_server(method: str, target: str, expected: dict[str, Any]) -> None:
    assert asdict(parse(method, target)) == asdict(RequestInfo(**{"is_resource": True, **expected}))


@pytest.mark.parametrize(
    "target",
    ["/", "", "/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/version", "/healthz", "/openapi/v3", "*"],
)
def test_other_path_is_non_resource_request(target: str) -> None:
    assert parse("GET", target) == RequestInfo(verb="get")


@pytest.mark.parametrize(
    ("method", "target", "is_write"),
    [
        ("POST", "/api/v1/namespaces/ns/pods", True),
        ("PATCH", "/apis/demo.example.com/v1/namespaces/ns/demos/one/status", True),
        ("DELETE", "/api/v1/namespaces/ns/pods", True),
        ("GET", "/api/v1/namespaces/ns/pods", False),
        ("POST", "/api/v1/namespaces/ns/pods/web/exec", False),
        ("POST", "/api/v1/namespaces/ns/services/web/proxy/path", False),
        ("POST", "/version", False),
    ],
)
def test_write_is_request_that_changes_objects(method: str, target: str, is_write: bool) -> None:  # noqa: FBT001 - a table
    assert parse(method, target).is_write is is_write


@given(st.text(), st.text())
@example("GET", "/api/v1/namespaces/%ff%00/pods?watch=%")
@example("GET", "/api//")
@example("GET", "/apis/a/b/watch")
@example("GET", "/api/v1/namespaces")
def test_parse_never_raises(method: str, target: str) -> None:
    assert isinstance(parse(method, target), RequestInfo)


@given(
    st.sampled_from([("", "v1"), ("apps", "v1"), ("a.example.com", "v1beta1")]),
    st.text(NAME_LETTERS, max_size=20),
    st.text(NAME_LETTERS, min_size=1, max_size=20),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/%"), max_size=253),
    st.sampled_from(["", "status", "exec", "scale"]),
)
def test_parse_reverses_path_of_object(
    group_version: tuple[str, str], namespace: str, plural: str, name: str, subresource: str
) -> None:
    subresource = subresource if name else ""
    plural = f"{plural}s"
    assume(plural not in {"namespaces", "watchs"})
    assume({namespace, name}.isdisjoint({".", ".."}))
    group, version = group_version
    resource = ApiResource(GVK(group, version, "Any"), plural, bool(namespace), frozenset(), frozenset())
    path = resource.path(namespace, name, subresource)
    expected = (group, version, namespace, plural, name, subresource)
    for target in (path, f"{path}/", f"{path}?pretty=true"):
        info = parse("PUT", target)
        found = (info.group, info.version, info.namespace, info.resource, info.name, info.subresource)
        assert (info.is_resource, found) == (True, expected)


@given(st.text())
def test_valid_target_is_unchanged_in_url(target: str) -> None:
    if is_valid_target(target):
        url = URL(f"https://api.example.com:6443{target}", encoded=True)
        assert (url.host, url.port, url.raw_path_qs) == ("api.example.com", 6443, target)


SEGMENT = st.sampled_from(
    ["api", "apis", "v1", "apps", "namespaces", "ns", "pods", "web", "status", "watch", "", "%2F"]
)


@given(st.lists(SEGMENT, max_size=9), st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE"]))
def test_parts_of_any_path_are_consistent(segments: list[str], method: str) -> None:
    info = parse(method, "/" + "/".join(segments))
    assert not info.name or info.resource
    assert not info.subresource or info.name or "" in segments
    assert info.is_resource == bool(info.resource)


# Unusual targets: none bypasses the proxy, regardless of how servers on the path parse it


BODY = json.dumps(config_map()).encode()


async def ask(run: Run, request_line: str, *headers: str, body: bytes = b"") -> int:
    """Send a request exactly as given, and return the status of the response."""
    host, port = run.credentials.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    authorization = f"Authorization: Bearer {run.credentials.secret}"
    lines = [request_line, f"Host: {host}", authorization, f"Content-Length: {len(body)}", *headers, "", ""]
    writer.write("\r\n".join(lines).encode("utf-8", "surrogateescape") + body)
    try:
        async with asyncio.timeout(60):
            return int((await reader.readline()).split(b" ")[1])
    finally:
        writer.close()


@pytest.mark.parametrize(
    "target",
    [
        f"{CONFIG_MAPS}#fragment",
        f"{CONFIG_MAPS}#",
        f"{CONFIG_MAPS}?a=b#c",
        "@elsewhere.example.com/api/v1",
        ".elsewhere.example.com/api/v1",
        "*",
        f"{CONFIG_MAPS}\xe4",
        f"{CONFIG_MAPS}\t",
        "",
    ],
)
async def test_target_other_than_path_is_rejected(run: Run, api_server: ApiServer, target: str) -> None:
    assert await ask(run, f"POST {target} HTTP/1.1", "Content-Type: application/json", body=BODY) == 400
    assert api_server.received == []


@pytest.mark.parametrize(
    "target",
    [
        "/api/v1/namespaces/ns/../../../version",
        "/api/v1/namespaces/ns/%2e%2e/other/configmaps",
        "//api/v1/namespaces/ns/configmaps",
        "/api/v1//namespaces/ns/configmaps",
        "/api/v1/namespaces/ns%2Fconfigmaps",
        "/api/v1/namespaces/ns/configmaps/",
        "/api/v1/namespaces/ns/configmaps;x=y",
        "/api/v1/namespaces/ns/configmaps?a=%23&b=/../c",
        "/%61pi/v1/namespaces/ns/configmaps",
        "//elsewhere.example.com/api/v1",
        "/\\elsewhere",
    ],
)
async def test_path_is_forwarded_unchanged(run: Run, api_server: ApiServer, target: str) -> None:
    await ask(run, f"GET {target} HTTP/1.1")
    assert api_server.last.target == target


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "user:word@127.0.0.1"])
async def test_absolute_target_with_the_address_of_the_proxy_goes_to_the_api_server(
    run: Run, api_server: ApiServer, host: str
) -> None:
    port = run.credentials.url.rpartition(":")[2]
    await ask(run, f"GET http://{host}:{port}/version?a=b HTTP/1.1")
    assert api_server.last.target == "/version?a=b"


@pytest.mark.parametrize("scheme", ["http", "https", "HTTP"])
@pytest.mark.parametrize(
    "host", ["elsewhere.example.com", "elsewhere:8888", "127.0.0.1", "localhost:1", "127.0.0.1:{port}@a"]
)
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_work_for_another_server_does_not_happen_in_this_cluster(
    run: Run, api_server: ApiServer, scheme: str, host: str, method: str
) -> None:
    """Flags and variables such as HELM_KUBEAPISERVER name it, and the ``proxy-url`` leads here all the same."""
    port = run.credentials.url.rpartition(":")[2]
    assert await ask(run, f"{method} {scheme}://{host.format(port=port)}{CONFIG_MAPS}/one HTTP/1.1") == 403
    assert api_server.received == []


@pytest.mark.parametrize(
    "header",
    ["Upgrade: websocket\r\nConnection: Upgrade", "Content-Encoding: identity", "Connection: Content-Type, close"],
)
async def test_header_does_not_prevent_owner_injection(run: Run, api_server: ApiServer, header: str) -> None:
    line = f"POST {CONFIG_MAPS} HTTP/1.1"
    assert await ask(run, line, "Content-Type: application/json", header, body=BODY) == 201
    assert owners(api_server) == [REFERENCE]


@pytest.mark.parametrize("method", ["DELETE", "PUT", "PATCH"])
async def test_write_cannot_upgrade_connection(run: Run, api_server: ApiServer, method: str) -> None:
    api_server.add(f"{CONFIG_MAPS}/cm")
    headers = ("Upgrade: websocket", "Connection: Upgrade", "Content-Type: application/merge-patch+json")
    assert await ask(run, f"{method} {CONFIG_MAPS}/cm HTTP/1.1", *headers, body=BODY) == 200
    assert "Upgrade" not in api_server.last.headers


async def test_contradictory_lengths_are_rejected(run: Run, api_server: ApiServer) -> None:
    line = f"POST {CONFIG_MAPS} HTTP/1.1"
    assert await ask(run, line, "Transfer-Encoding: chunked", body=BODY) == 400
    assert await ask(run, line, "Content-Length: 3", body=BODY) == 400
    assert api_server.received == []
