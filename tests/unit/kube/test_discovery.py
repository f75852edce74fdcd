from typing import Any

import pytest

from rolecall.kube.discovery import (
    MAX_AGE_SECONDS,
    ApiResource,
    Discovery,
    contradicts_discovery,
    read_resource_list,
)
from rolecall.kube.errors import ApiError, KubeError, NotFoundError, UnknownKindError, UnreachableError, from_status
from rolecall.kube.references import GVK, ObjectKey

WIDGET = GVK("example.com", "v1", "Widget")
ALL_VERBS = ["get", "list", "watch", "create"]
WIDGETS = {"name": "widgets", "kind": "Widget", "namespaced": True, "verbs": ALL_VERBS}
WIDGET_STATUS = {"name": "widgets/status", "kind": "Widget", "namespaced": True, "verbs": ["get"]}
NODES = {"name": "nodes", "kind": "Node", "namespaced": False, "verbs": ALL_VERBS}
REVIEWS = {"name": "reviews", "kind": "Review", "namespaced": False, "verbs": ["create"]}


class Server:
    """Answers with the lists of ``lists``; anything else is not found. Remembers what it was asked for."""

    def __init__(self, **lists: list[dict[str, Any]]) -> None:
        self.lists = {path.replace("__", "/").replace("_", "."): items for path, items in lists.items()}
        self.asked: list[str] = []
        self.failure: KubeError | None = None

    async def __call__(self, path: str) -> dict[str, Any]:
        """Answer."""
        self.asked.append(path)
        if self.failure is not None:
            raise self.failure
        if path not in self.lists:
            raise NotFoundError(404, "NotFound", "no such group")
        return {"resources": self.lists[path]}


def widgets() -> ApiResource:
    """Return the resource of the kind Widget."""
    [found] = read_resource_list("example.com", "v1", {"resources": [WIDGET_STATUS, WIDGETS]})
    return found


def test_subresources_belong_to_their_resource() -> None:
    assert widgets() == ApiResource(WIDGET, "widgets", True, frozenset(ALL_VERBS), frozenset({"status"}))  # noqa: FBT003


@pytest.mark.parametrize("answer", [{}, {"resources": None}])
def test_a_list_without_resources_is_empty(answer: dict[str, Any]) -> None:
    assert read_resource_list("example.com", "v1", answer) == ()


def test_paths_of_a_namespaced_kind() -> None:
    assert widgets().path() == "/apis/example.com/v1/widgets"
    assert widgets().path("default") == "/apis/example.com/v1/namespaces/default/widgets"
    assert widgets().path_of(ObjectKey("default", "a")) == "/apis/example.com/v1/namespaces/default/widgets/a"
    assert widgets().path_of(ObjectKey("default", "a"), "status").endswith("/widgets/a/status")


def test_paths_of_the_core_group_and_of_cluster_scoped_kinds() -> None:
    [node] = read_resource_list("", "v1", {"resources": [NODES]})
    assert node.path_of(ObjectKey("", "a")) == "/api/v1/nodes/a"
    assert node.path("default") == "/api/v1/nodes"


def test_a_kind_that_is_not_stored_is_virtual() -> None:
    [review] = read_resource_list("", "v1", {"resources": [REVIEWS]})
    assert review.is_virtual
    assert not widgets().is_virtual


async def test_a_group_and_version_is_asked_for_once() -> None:
    server = Server(__apis__example_com__v1=[WIDGETS, WIDGET_STATUS])
    discovery = Discovery(server)
    assert await discovery.by_kind(WIDGET) == await discovery.by_kind(WIDGET) == widgets()
    assert await discovery.by_plural("example.com", "v1", "widgets") == widgets()
    assert server.asked == ["/apis/example.com/v1"]


async def test_a_kind_that_comes_later_is_found_and_its_absence_is_not_kept() -> None:
    server = Server(__apis__example_com__v1=[])
    discovery = Discovery(server)
    with pytest.raises(UnknownKindError):
        await discovery.by_kind(WIDGET)
    server.lists["/apis/example.com/v1"] = [WIDGETS]
    assert (await discovery.by_kind(WIDGET)).plural == "widgets"


async def test_a_group_that_is_not_served_is_an_unknown_kind_and_no_plural() -> None:
    discovery = Discovery(Server())
    with pytest.raises(UnknownKindError, match=r"example.com/v1, Kind=Widget"):
        await discovery.by_kind(WIDGET)
    assert await discovery.by_plural("example.com", "v1", "widgets") is None


async def test_a_group_that_is_gone_when_asked_again_is_forgotten() -> None:
    server = Server(__apis__example_com__v1=[WIDGETS])
    discovery = Discovery(server)
    await discovery.by_kind(WIDGET)
    server.lists.clear()
    assert await discovery.by_plural("example.com", "v1", "gadgets") is None
    with pytest.raises(UnknownKindError):
        await discovery.by_kind(WIDGET)


async def test_an_api_server_that_is_away_is_not_a_missing_kind() -> None:
    async def away(_path: str) -> dict[str, Any]:
        raise UnreachableError("nobody there")

    with pytest.raises(UnreachableError):
        await Discovery(away).by_kind(WIDGET)


async def test_a_subresource_that_a_kind_gets_later_is_seen_after_a_time() -> None:
    server = Server(__apis__example_com__v1=[WIDGETS])
    now = 0.0
    discovery = Discovery(server, lambda: now)
    assert (await discovery.by_kind(WIDGET)).subresources == frozenset()
    server.lists["/apis/example.com/v1"] = [WIDGETS, WIDGET_STATUS]
    now = MAX_AGE_SECONDS - 1
    assert (await discovery.by_kind(WIDGET)).subresources == frozenset()
    assert len(server.asked) == 1
    now = MAX_AGE_SECONDS + 1
    assert (await discovery.by_kind(WIDGET)).subresources == {"status"}


@pytest.mark.parametrize(
    ("path", "is_seen"),
    [("/apis/example.com/v1/widgets", True), ("/apis/example.com/v10/widgets", False), ("/api/v1/widgets", False)],
)
async def test_an_answer_that_contradicts_the_list_expires_it(path: str, *, is_seen: bool) -> None:
    server = Server(__apis__example_com__v1=[WIDGETS])
    discovery = Discovery(server)
    assert (await discovery.by_kind(WIDGET)).namespaced
    server.lists["/apis/example.com/v1"] = [WIDGETS | {"namespaced": False}]
    discovery.expire(path)
    assert (await discovery.by_kind(WIDGET)).namespaced is not is_seen


async def test_a_list_that_cannot_be_fetched_again_is_used_as_it_is_known() -> None:
    server = Server(__apis__example_com__v1=[WIDGETS])
    discovery = Discovery(server)
    found = await discovery.by_kind(WIDGET)
    server.failure = ApiError(503, "ServiceUnavailable", "the aggregated API is away")
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
def test_a_path_that_is_not_served_contradicts_discovery_but_a_missing_object_does_not(
    error: ApiError, *, contradicts: bool
) -> None:
    assert contradicts_discovery(error) is contradicts
