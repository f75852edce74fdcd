from dataclasses import asdict
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from yarl import URL

from rolecall.kube.discovery import ApiResource
from rolecall.kube.references import GVK
from rolecall.runner.proxy.request_info import RequestInfo, is_valid_target, parse

NAME_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-.:"

PODS = {"version": "v1", "namespace": "ns", "resource": "pods"}


@pytest.mark.parametrize(
    ("method", "target", "expected"),
    [
        ("GET", "/api/v1/namespaces/ns/pods/web", {"verb": "get", **PODS, "name": "web"}),
        ("HEAD", "/api/v1/namespaces/ns/pods/web", {"verb": "get", **PODS, "name": "web"}),
        ("get", "/api/v1/namespaces/ns/pods", {"verb": "list", **PODS}),
        ("GET", "/api/v1/namespaces/ns/pods/", {"verb": "list", **PODS}),
        ("GET", "/api/v1/namespaces/ns/pods?watch=true", {"verb": "watch", **PODS}),
        ("GET", "/api/v1/namespaces/ns/pods?watch", {"verb": "watch", **PODS}),
        ("GET", "/api/v1/namespaces/ns/pods?watch=0&limit=5", {"verb": "list", **PODS}),
        ("GET", "/api/v1/watch/namespaces/ns/pods", {"verb": "watch", **PODS}),
        (
            "GET",
            "/api/v1/namespaces/ns/pods?fieldSelector=metadata.name%3Dweb",
            {"verb": "list", **PODS, "name": "web"},
        ),
        (
            "GET",
            "/api/v1/namespaces/ns/pods?watch=1&fieldSelector=status.phase=Failed,metadata.name==web",
            {"verb": "watch", **PODS, "name": "web"},
        ),
        ("GET", "/api/v1/pods", {"verb": "list", "version": "v1", "resource": "pods"}),
        ("POST", "/api/v1/namespaces/ns/pods", {"verb": "create", **PODS}),
        ("POST", "/api/v1/namespaces/ns/pods?dryRun=All", {"verb": "create", **PODS, "is_dry_run": True}),
        ("PUT", "/api/v1/namespaces/ns/pods/web", {"verb": "update", **PODS, "name": "web"}),
        ("PATCH", "/api/v1/namespaces/ns/pods/web", {"verb": "patch", **PODS, "name": "web"}),
        ("DELETE", "/api/v1/namespaces/ns/pods/web", {"verb": "delete", **PODS, "name": "web"}),
        ("DELETE", "/api/v1/namespaces/ns/pods", {"verb": "deletecollection", **PODS}),
        (
            "PATCH",
            "/api/v1/namespaces/ns/pods/web/status",
            {"verb": "patch", **PODS, "name": "web", "subresource": "status"},
        ),
        (
            "GET",
            "/api/v1/namespaces/ns/pods/web/log?follow=true",
            {"verb": "get", **PODS, "name": "web", "subresource": "log"},
        ),
        (
            "POST",
            "/api/v1/namespaces/ns/pods/web/proxy/a/b",
            {"verb": "create", **PODS, "name": "web", "subresource": "proxy"},
        ),
        (
            "GET",
            "/api/v1/namespaces/ns",
            {"verb": "get", "version": "v1", "namespace": "ns", "resource": "namespaces", "name": "ns"},
        ),
        (
            "PUT",
            "/api/v1/namespaces/ns/finalize",
            {
                "verb": "update",
                "version": "v1",
                "namespace": "ns",
                "resource": "namespaces",
                "name": "ns",
                "subresource": "finalize",
            },
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
def test_a_resource_request_is_read_as_the_api_server_reads_it(
    method: str, target: str, expected: dict[str, Any]
) -> None:
    assert asdict(parse(method, target)) == asdict(RequestInfo(**{"is_resource": True, **expected}))


@pytest.mark.parametrize(
    "target",
    ["/", "", "/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/version", "/healthz", "/openapi/v3", "*"],
)
def test_any_other_path_is_no_resource_request(target: str) -> None:
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
def test_a_write_is_a_request_whose_answer_is_an_object(method: str, target: str, is_write: bool) -> None:  # noqa: FBT001 - a table
    assert parse(method, target).is_write is is_write


@given(st.text(), st.text())
@example("GET", "/api/v1/namespaces/%ff%00/pods?watch=%")
@example("GET", "/api//")
@example("GET", "/apis/a/b/watch")
@example("GET", "/api/v1/namespaces")
def test_no_target_raises(method: str, target: str) -> None:
    assert isinstance(parse(method, target), RequestInfo)


@given(
    st.sampled_from([("", "v1"), ("apps", "v1"), ("a.example.com", "v1beta1")]),
    st.text(NAME_LETTERS, max_size=20),
    st.text(NAME_LETTERS, min_size=1, max_size=20),
    st.text(NAME_LETTERS, max_size=253),
    st.sampled_from(["", "status", "exec", "scale"]),
)
def test_the_path_of_an_object_is_read_back_as_what_it_was_made_of(
    group_version: tuple[str, str], namespace: str, plural: str, name: str, subresource: str
) -> None:
    subresource = subresource if name else ""
    plural = f"{plural}s"
    assume(plural not in {"namespaces", "watchs"})
    group, version = group_version
    resource = ApiResource(GVK(group, version, "Any"), plural, bool(namespace), frozenset(), frozenset())
    path = resource.path(namespace, name, subresource)
    expected = (group, version, namespace, plural, name, subresource)
    for target in (path, quote(path), f"{path}/", f"{path}?pretty=true"):
        info = parse("PUT", target)
        found = (info.group, info.version, info.namespace, info.resource, info.name, info.subresource)
        assert (info.is_resource, found) == (True, expected)


@given(st.text())
def test_a_well_formed_target_stands_behind_a_url_as_it_is(target: str) -> None:
    if is_valid_target(target):
        url = URL(f"https://api.example.com:6443{target}", encoded=True)
        assert (url.host, url.port, url.raw_path_qs) == ("api.example.com", 6443, target)


SEGMENT = st.sampled_from(
    ["api", "apis", "v1", "apps", "namespaces", "ns", "pods", "web", "status", "watch", "", "%2F"]
)


@given(st.lists(SEGMENT, max_size=9), st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE"]))
def test_what_looks_like_a_path_has_parts_only_in_order(segments: list[str], method: str) -> None:
    info = parse(method, "/" + "/".join(segments))
    assert not info.name or info.resource
    assert not info.subresource or info.name or "" in segments
    assert info.is_resource == bool(info.resource)
