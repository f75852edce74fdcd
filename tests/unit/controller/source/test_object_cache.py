import json
from collections.abc import AsyncIterator

import pytest

from rolecall.controller.source.object_cache import ObjectCache, View
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import ForbiddenError
from rolecall.kube.references import ObjectKey
from tests.unit.controller.fake_server import WIDGET, FakeServer
from tests.unit.manual_clock import ManualClock, settle

WIDGETS = ApiResource(WIDGET, "widgets", True, frozenset(), frozenset())  # noqa: FBT003 - namespaced


class Kept:
    """A cache of widgets, read one namespace at a time."""

    def __init__(self, server: FakeServer, namespaces: tuple[str, ...] | None = None) -> None:
        self.server = server
        self.clock = ManualClock()
        self.cache = ObjectCache(server, namespaces, self.clock)

    def view(self, namespace: str = "") -> View | None:
        """Return the view of a namespace."""
        return self.cache.view(WIDGETS, namespace)

    def names(self, namespace: str = "") -> list[str] | None:
        """Return the objects of the view, None without one."""
        view = self.view(namespace)
        return None if view is None else [str(stored.key) for stored in view]

    async def preload(self) -> None:
        """Read for the first time and wait for the first list."""
        assert self.view() is None
        await settle()
        assert self.view() is not None


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
async def kept(server: FakeServer) -> AsyncIterator[Kept]:
    kept = Kept(server)
    async with kept.cache:
        yield kept


async def test_nothing_is_fetched_until_somebody_asks(kept: Kept, server: FakeServer) -> None:
    await settle()
    assert (kept.clock.handles, server.lists, server.streams) == (0, 0, 0)


async def test_a_list_comes_in_order_and_by_namespace(kept: Kept, server: FakeServer) -> None:
    for number in range(5):
        server.put(f"w{number}", "b" if number % 2 else "a")
    await kept.preload()
    assert kept.names() == ["a/w0", "a/w2", "a/w4", "b/w1", "b/w3"]
    assert kept.names("b") == ["b/w1", "b/w3"]
    assert server.lists == 1


async def test_changes_and_bookmarks_move_the_position(kept: Kept, server: FakeServer) -> None:
    server.put("w")
    await kept.preload()
    for expected in ({"a": 1}, {"a": 2}):
        server.put("w", spec=expected)
        await settle()
        view = kept.view()
        assert view is not None
        assert view.resource_version == str(server.version)
        stored = view.get(ObjectKey("default", "w"))
        assert stored is not None
        content = json.loads(stored.body)
        assert (content["kind"], content["spec"]) == ("Widget", expected)
    server.bookmark()
    await settle()
    view = kept.view()
    assert view is not None
    assert view.resource_version == str(server.version)


async def test_what_is_deleted_is_not_there(kept: Kept, server: FakeServer) -> None:
    server.put("w")
    await kept.preload()
    server.delete("w")
    await settle()
    view = kept.view()
    assert view is not None
    assert (view.get(ObjectKey("default", "w")), view.resource_version) == (None, str(server.version))


async def test_while_it_is_listed_anew_there_is_no_view_and_then_nothing_that_went_in_between(
    kept: Kept, server: FakeServer
) -> None:
    server.put("stays")
    server.put("goes")
    await kept.preload()
    del server.objects[ObjectKey("default", "goes")]
    server.forget_history()
    server.end_streams()
    shown = []
    for _ in range(100):
        await kept.clock.advance_and_settle(0.01)
        shown.append(kept.names())
    assert None in shown
    assert shown[-1] == ["default/stays"]
    assert ["default/goes", "default/stays"] not in shown[shown.index(None) :]


async def test_only_watched_namespaces_are_kept(server: FakeServer) -> None:
    kept = Kept(server, ("a", "b"))
    server.put("w", "a")
    server.put("w", "c")
    async with kept.cache:
        assert (kept.view("c"), kept.view(""), server.lists) == (None, None, 0)
        kept.view("a")
        await settle()
        assert (kept.names("a"), kept.names("b")) == (["a/w"], [])
        assert (kept.view("c"), kept.view("")) == (None, None)


async def test_a_kind_that_may_not_be_listed_has_no_view_until_it_may(kept: Kept, server: FakeServer) -> None:
    server.failure = ForbiddenError(403, "Forbidden", "no")
    for _ in range(2):
        assert kept.view() is None
        await settle()
    server.failure = None
    await kept.clock.advance_and_settle(31)
    assert kept.view() is not None


async def test_a_watch_that_crashed_has_no_view(kept: Kept, server: FakeServer) -> None:
    await kept.preload()
    server.end_streams(RuntimeError("a fault of ours"))
    await settle()
    assert kept.view() is None


async def test_the_end_ends_the_watches(server: FakeServer) -> None:
    kept = Kept(server)
    async with kept.cache:
        await kept.preload()
        assert server.streams == 1
    assert server.streams == 0


async def test_a_kind_is_not_read_from_the_cache_while_one_of_its_objects_cannot_be_read(
    kept: Kept, server: FakeServer
) -> None:
    server.put("deep")
    server.put("web")
    await kept.preload()
    server.put("deep", unreadable=True)
    await settle()
    assert kept.view() is None
    server.put("deep")
    await settle()
    assert kept.names() == ["default/deep", "default/web"]
    server.put("deep", unreadable=True)
    server.delete("deep")
    await settle()
    assert kept.names() == ["default/web"]
