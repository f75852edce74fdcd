import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import (
    ApiError,
    ForbiddenError,
    GoneError,
    KubeError,
    NotServedError,
    ResponseTimeoutError,
    UnknownKindError,
    UnreachableError,
)
from rolecall.kube.jsonpath import FieldPath
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.controller import informer
from rolecall.runner.controller.informer import Informer, WatchFailure, WatchRetry
from rolecall.runner.controller.store import Change, Entry
from tests.unit.manual_clock import ManualClock, settle
from tests.unit.runner.controller.fake_server import WIDGET, FakeServer

PHASE = FieldPath.parse("$.status.phase")
WEB = ObjectKey("default", "web")


def kind_of(change: Change) -> str:
    """Return what happened to the object."""
    return "deleted" if change.new is None else "added" if change.old is None else "modified"


class World:
    """A server, an informer of it, and the changes that the informer reported."""

    def __init__(self, server: FakeServer, namespaces: tuple[str, ...] | None = None) -> None:
        self.server = server
        self.clock = ManualClock()
        self.informer = Informer(server, WIDGET, namespaces, self.clock)
        self.changes: list[Change] = []
        self.informer.subscribe(self.changes.append, (PHASE,))

    @property
    def reported(self) -> list[str]:
        """The changes since the last call, as text."""
        texts = [f"Widget {change.key} {kind_of(change)}" for change in self.changes]
        self.changes.clear()
        return texts

    async def pass_seconds(self, seconds: float, step: float = 0.1) -> None:
        """Advance the clock in steps, and let tasks run in between."""
        for _ in range(round(seconds / step)):
            await self.clock.advance_and_settle(step)


@contextlib.asynccontextmanager
async def running(world: World) -> AsyncIterator[World]:
    task = asyncio.create_task(world.informer.run())
    try:
        await settle()
        yield world
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


def warnings_of(logs: list[Any]) -> list[str]:
    return [line["event"] for line in logs if line["log_level"] == "warning"]


async def test_existing_objects_are_reported_as_initial(server: FakeServer) -> None:
    for name in "abcde":
        server.put(name)
    async with running(World(server)) as world:
        await world.informer.synced.wait()
        assert [(kind_of(change), change.in_initial_list, change.from_watch) for change in world.changes] == [
            ("added", True, False)
        ] * 5
        assert [change.obj["kind"] for change in world.changes] == ["Widget"] * 5
        assert len(world.informer.store) == 5


async def test_waiting_for_sync_ends_after_the_first_list(server: FakeServer) -> None:
    world = World(server)
    waiting = [asyncio.create_task(world.informer.synced.wait()), asyncio.create_task(world.informer.settled.wait())]
    await settle()
    assert not any(task.done() for task in waiting)
    async with running(world):
        assert all(task.done() for task in waiting)


async def test_watched_changes_are_reported_with_old_and_new_entry(server: FakeServer) -> None:
    async with running(World(server)) as world:
        assert world.informer.synced.is_set()
        server.put("web", status={"phase": "Pending"})
        server.put("web", status={"phase": "Running"})
        server.remove("web")
        await settle()
        added, modified, deleted = world.changes
    assert [*map(kind_of, (added, modified, deleted))] == ["added", "modified", "deleted"]
    assert all(change.from_watch and not change.in_initial_list for change in world.changes)
    assert modified.old is added.new
    assert modified.has_changed((PHASE,))
    assert deleted.new is None
    assert deleted.old is modified.new
    assert deleted.obj["metadata"]["resourceVersion"] == "103"
    assert world.informer.store.get(WEB) is None


async def test_field_subscribed_later_counts_as_changed_once(server: FakeServer) -> None:
    path = FieldPath.parse("$.spec.a")
    async with running(World(server)) as world:
        server.put("web", spec={"a": 1})
        await settle()
        world.informer.subscribe(lambda _: None, (path,))
        server.put("web", spec={"a": 1})
        await settle()
        server.put("web", spec={"a": 1})
        await settle()
        assert [change.has_changed((path,)) for change in world.changes] == [True, True, False]


async def test_ended_watch_resumes_from_the_last_version(server: FakeServer) -> None:
    async with running(World(server)) as world:
        server.put("a")
        await settle()
        server.end_streams()
        server.put("b")
        await world.pass_seconds(0.3)
        server.bookmark()
        await settle()
        server.end_streams()
        await world.pass_seconds(0.3)
        assert world.reported == ["Widget default/a added", "Widget default/b added"]
        assert server.watched_from == ["100", "101", "103"]
        assert server.lists == 1


@pytest.mark.parametrize("as_event", [True, False])
async def test_list_after_an_expired_watch_reports_only_differences(server: FakeServer, *, as_event: bool) -> None:
    for name in ("same", "changed", "removed", "replaced"):
        server.put(name)
    async with running(World(server)) as world:
        assert len(world.reported) == 4
        stream_error = GoneError(410, "Expired", "") if as_event else UnreachableError("reset")
        server.end_streams(stream_error)
        server.put("changed", spec={"a": 2})
        server.remove("removed")
        server.remove("replaced")
        server.put("replaced", uid="another")
        server.put("new")
        server.forget_history()
        await world.pass_seconds(1)
        assert server.lists == 2
        assert not any(change.from_watch or change.in_initial_list for change in world.changes)
        assert sorted(world.reported) == [
            "Widget default/changed modified",
            "Widget default/new added",
            "Widget default/removed deleted",
            "Widget default/replaced added",
            "Widget default/replaced deleted",
        ]


async def test_deletion_found_by_a_list_has_names_version_and_labels(server: FakeServer) -> None:
    server.put("web", labels={"app": "nginx"})
    async with running(World(server)) as world:
        server.end_streams(GoneError(410, "Expired", ""))
        server.remove("web")
        await world.pass_seconds(1)
        assert world.changes[-1].obj == {
            "apiVersion": "example.com/v1",
            "kind": "Widget",
            "metadata": {
                "name": "web",
                "namespace": "default",
                "uid": "uid-web",
                "resourceVersion": "101",
                "labels": {"app": "nginx"},
            },
        }


async def test_restored_cluster_is_listed_again(server: FakeServer) -> None:
    """Versions go back: a watch that resumed from its last version would be silent until they have caught up."""
    for name in ("kept", "lost"):
        server.put(name)
    async with running(World(server)) as world:
        restored: list[int] = []
        world.informer.on_restore = lambda: restored.append(server.version)
        server.restore(50, "kept")
        await world.pass_seconds(1)
        server.put("new")
        await settle()
        assert restored == [50]
        assert world.reported[2:] == [
            "Widget default/kept modified",
            "Widget default/lost deleted",
            "Widget default/new added",
        ]


@pytest.mark.parametrize("error", [GoneError(410, "Expired", ""), NotServedError(404, "NotFound", "")])
@pytest.mark.parametrize("later_changes", [0, 200])
async def test_restore_is_noticed_although_a_list_replaces_the_watch(
    server: FakeServer, error: KubeError, later_changes: int
) -> None:
    """The reflector has given up the version of its watch, and as many changes as were lost may have followed."""
    server.put("kept")
    server.put("lost")
    async with running(World(server)) as world:
        restored: list[int] = []
        world.informer.on_restore = lambda: restored.append(server.version)
        server.broken_kinds[WIDGET] = error
        server.end_streams(error)
        await world.pass_seconds(1)
        server.restore(50, "kept")
        server.version += later_changes
        server.broken_kinds.clear()
        await world.pass_seconds(5)
        assert restored == [50 + later_changes]
        assert world.reported[2:] == ["Widget default/kept modified", "Widget default/lost deleted"]


async def test_restore_between_two_watches_is_noticed(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch ended at its time, and the next one had to wait for discovery."""
    server.put("kept")
    server.put("lost")
    discover, is_answered = server.resource, asyncio.Event()

    async def discover_late(gvk: GVK) -> ApiResource:
        await is_answered.wait()
        return await discover(gvk)

    monkeypatch.setattr(informer, "_WATCH_SECONDS", 1.0)
    async with running(World(server)) as world:
        await world.pass_seconds(2)
        monkeypatch.setattr(server, "resource", discover_late)
        server.end_streams()
        await world.pass_seconds(2)
        server.restore(50, "kept")
        is_answered.set()
        await world.pass_seconds(1)
        server.put("new")
        await settle()
        assert world.reported[2:] == [
            "Widget default/kept modified",
            "Widget default/lost deleted",
            "Widget default/new added",
        ]


async def test_unreachable_api_server_is_used_within_two_seconds_of_its_return(server: FakeServer) -> None:
    async with running(World(server)) as world:
        with capture_logs() as logs:
            server.failure = UnreachableError("connection refused")
            server.end_streams(UnreachableError("reset"))
            await world.pass_seconds(20)
            assert server.streams == 0
            server.failure = None
            server.put("new")
            await world.pass_seconds(2)
        assert world.reported == ["Widget default/new added"]
        assert server.lists == 1
        assert warnings_of(logs) == ["API server is unreachable; retrying"]
        assert logs[-1]["event"] == "Watching this kind again"


async def test_lost_watch_is_reported_with_its_age_until_it_works_again(server: FakeServer) -> None:
    """State is never shown without its age."""
    server.put("web")
    async with running(World(server)) as world:
        listed_at = world.clock.monotonic()
        assert (world.informer.trouble, world.informer.confirmed_at) == ("", listed_at)
        server.failure = UnreachableError("connection refused")
        server.end_streams(UnreachableError("reset"))
        for _ in range(3):  # also while the reason changes
            await world.pass_seconds(20)
            assert (world.informer.trouble, world.informer.confirmed_at) == (
                WatchFailure.of(server.failure).message,
                listed_at,
            )
            server.failure = ApiError(500, "InternalError", "etcd is gone")
        server.failure = None
        await world.pass_seconds(16)  # no event: that the watch lasts is enough
        assert world.informer.trouble == ""
        server.put("web")
        await settle()
        assert world.informer.confirmed_at == world.clock.monotonic()


async def test_api_server_that_hangs_is_reported_when_its_bookmarks_are_missing(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernel keeps the connections alive, so nothing breaks."""
    monkeypatch.setattr(informer, "SILENCE_SECONDS", 0.05)
    async with running(World(server)) as world:
        await asyncio.sleep(0.2)
        assert world.informer.trouble == "", "an API server that sends no bookmarks may be silent"
        server.bookmark()
        await settle()
        server.failure = ResponseTimeoutError("no response")
        async with asyncio.timeout(60):
            while world.informer.trouble != WatchFailure.TIMED_OUT.message:  # noqa: ASYNC110 - nothing sets an event
                await asyncio.sleep(0.01)
        server.failure = None
        await world.pass_seconds(16)
        assert (world.informer.trouble, server.lists, server.streams) == ("", 1, 1)


async def test_api_server_that_was_never_reached_is_reported(server: FakeServer) -> None:
    server.failure = UnreachableError("connection refused")
    async with running(World(server)) as world:
        await world.pass_seconds(5)
        assert (world.informer.trouble, world.informer.confirmed_at) == ("API server is unreachable; retrying", None)


async def test_one_lost_namespace_makes_the_age_of_the_kind(server: FakeServer) -> None:
    async with running(World(server, ("blue", "red"))) as world:
        times = world.clock.monotonic()
        server.failure = UnreachableError("connection refused")
        server.end_streams(UnreachableError("reset"))
        await world.pass_seconds(5)
        assert (world.informer.trouble != "", world.informer.confirmed_at) == (True, times)


DENIED = "Not permitted to watch this kind; its changes will not trigger reconciles"
FAILED = "Failed to list or watch; retrying"


@pytest.mark.parametrize(
    ("error", "message", "longest_delay"),
    [
        (UnknownKindError(WIDGET), "Kind is not installed; waiting for it", 3),
        (ForbiddenError(403, "Forbidden", "no"), DENIED, 30),
        (ApiError(401, "Unauthorized", "no"), DENIED, 30),
        (ApiError(405, "MethodNotAllowed", "no"), DENIED, 30),
        (ApiError(429, "TooManyRequests", "later"), FAILED, 10),
        (ApiError(500, "InternalError", "conversion webhook failed"), FAILED, 10),
    ],
)
@pytest.mark.parametrize("in_discovery", [True, False])
async def test_kind_that_cannot_be_listed_is_one_warning_and_retried(
    server: FakeServer, error: KubeError, message: str, longest_delay: float, *, in_discovery: bool
) -> None:
    (server.undiscoverable_kinds if in_discovery else server.broken_kinds)[WIDGET] = error
    with capture_logs() as logs:
        async with running(World(server)) as world:
            await world.pass_seconds(120, step=0.5)
            await world.informer.settled.wait()
            assert (world.informer.synced.is_set(), world.informer.blocked_reason) == (False, message)
            server.undiscoverable_kinds.clear()
            server.broken_kinds.clear()
            server.put("web")
            await world.pass_seconds(longest_delay + 1, step=0.5)
            assert world.reported == ["Widget default/web added"]
            assert world.informer.synced.is_set()
    assert warnings_of(logs) == [message]
    assert str(error) == logs[0]["reason"]


async def test_starting_server_that_denies_requests_is_retried_soon(server: FakeServer) -> None:
    async with running(World(server)) as world:
        server.failure = ForbiddenError(403, "Forbidden", "roles are not read yet")
        server.end_streams(UnreachableError("reset"))
        await world.pass_seconds(1)
        server.failure = None
        server.put("web")
        await world.pass_seconds(2)
        assert world.reported == ["Widget default/web added"]


async def test_watch_that_ends_immediately_is_reopened_after_a_pause(server: FakeServer) -> None:
    async with running(World(server)) as world:
        for _ in range(100):
            server.end_streams()
            await settle()
        assert len(server.watched_from) <= 2
        for _ in range(100):
            server.end_streams()
            await world.pass_seconds(0.1)
        assert len(server.watched_from) < 20


async def test_failing_handler_stops_nothing_else(server: FakeServer) -> None:
    world = World(server)

    def fail(_change: Change) -> None:
        raise RuntimeError("handler broke")

    seen: list[Change] = []
    world.informer.subscribe(fail)
    world.informer.subscribe(seen.append)
    with capture_logs() as logs:
        async with running(world):
            server.put("a")
            server.put("b")
            await settle()
    assert len(seen) == 2
    assert [line["event"] for line in logs if line["log_level"] == "error"] == ["Event handler failed"] * 2


async def test_forbidden_namespace_does_not_stop_the_others(
    server: FakeServer,
) -> None:
    server.put("web", "one")
    server.put("web", "two")
    server.put("web", "three")
    server.forbidden_namespaces["two"] = ForbiddenError(403, "Forbidden", "no")
    async with running(World(server, ("one", "two"))) as world:
        await world.informer.settled.wait()
        assert not world.informer.synced.is_set()
        assert world.reported == ["Widget one/web added"]
        server.put("new", "one")
        server.put("new", "three")
        await settle()
        assert world.reported == ["Widget one/new added"]
        server.forbidden_namespaces.clear()
        await world.pass_seconds(2)
        assert world.reported == ["Widget two/web added"]
        assert world.informer.synced.is_set()


async def test_list_of_one_namespace_keeps_the_objects_of_others(server: FakeServer) -> None:
    server.put("web", "one")
    server.put("web", "two")
    async with running(World(server, ("one", "two"))) as world:
        server.end_streams(GoneError(410, "Expired", ""))
        server.remove("web", "one")
        await world.pass_seconds(1)
        assert [entry.key for entry in world.informer.store] == [ObjectKey("two", "web")]


def let_happen(server: FakeServer, happened: str) -> None:
    """Delete, change, or replace the object ``web``, or do nothing."""
    match happened:
        case "deleted":
            server.remove("web")
        case "changed":
            server.put("web", color="red")
        case "replaced":
            server.put("web", uid="another")


@pytest.mark.parametrize("happened", ["nothing", "deleted", "changed", "replaced"])
async def test_first_list_is_compared_with_what_a_client_has_seen(server: FakeServer, happened: str) -> None:
    """Otherwise, nothing would tell of a deletion or change between that and the list."""
    world = World(server)
    world.informer.expect(server.put("web"))
    let_happen(server, happened)
    async with running(world):
        expected = {"nothing": [], "deleted": ["deleted"], "changed": ["modified"], "replaced": ["deleted", "added"]}
        assert [kind_of(change) for change in world.changes] == expected[happened]


async def test_object_that_is_newer_than_the_first_list_is_left_to_the_watch(server: FakeServer) -> None:
    """A client may have seen it while the list was on its way."""
    world = World(server)
    old = server.put("web")
    new = server.put("web", color="red") | {"metadata": {**old["metadata"], "resourceVersion": "1000"}}
    other = new | {"metadata": {**new["metadata"], "name": "other", "uid": "another"}}
    world.informer.expect(new)
    world.informer.expect(other)
    async with running(world):
        assert world.reported == []
        assert {entry.resource_version for entry in world.informer.store} == {"1000"}
        world.informer.on_watch_event("DELETED", other)
        assert world.reported == ["Widget default/other deleted"]


async def test_after_the_first_list_nothing_is_expected(server: FakeServer) -> None:
    """The watch delivers every change, so what a client has seen may be older than the store."""
    async with running(World(server, ("one", "two"))) as world:
        world.informer.expect(server.put("web", "three") | {"kind": "Widget"})
        old = server.put("web", "one")
        server.put("web", "one", color="red")
        await settle()
        world.informer.expect(old)
        assert [entry.resource_version for entry in world.informer.store] != [old["metadata"]["resourceVersion"]]


@pytest.mark.parametrize("is_seen_before_the_list", [True, False])
@pytest.mark.parametrize("happened", ["nothing", "deleted", "changed", "replaced"])
async def test_object_that_only_a_client_has_seen_is_compared_with_the_list_after_an_expiry(
    server: FakeServer, *, happened: str, is_seen_before_the_list: bool
) -> None:
    """The watch has skipped both its creation and its deletion, so nothing else tells of the latter."""
    async with running(World(server)) as world:
        server.end_streams(GoneError(410, "Expired", ""))
        seen = copy.deepcopy(server.put("web"))
        if is_seen_before_the_list:
            world.informer.expect(seen)
        let_happen(server, happened)
        await world.pass_seconds(1)
        if not is_seen_before_the_list:
            world.informer.expect(seen)
        expected = {"nothing": set(), "deleted": {"deleted"}, "changed": {"modified"}, "replaced": {"deleted"}}
        assert {kind_of(change) for change in world.changes} - {"added"} == expected[happened]
        assert all(change.old.uid == "uid-web" for change in world.changes if change.old)
        world.changes.clear()
        server.end_streams(GoneError(410, "Expired", ""))
        await world.pass_seconds(1)
        assert world.reported == []


@pytest.mark.parametrize("is_late", [True, False])
async def test_object_that_the_watch_delivers_is_not_reported_again(server: FakeServer, *, is_late: bool) -> None:
    async with running(World(server)) as world:
        seen = copy.deepcopy(server.put("web"))
        if not is_late:
            world.informer.expect(seen)
        await settle()
        server.remove("web")
        await settle()
        if is_late:
            world.informer.expect(seen)
        assert world.reported == ["Widget default/web added", "Widget default/web deleted"]
        server.end_streams(GoneError(410, "Expired", ""))
        await world.pass_seconds(1)
        assert world.reported == []


async def test_replaced_object_is_reported_as_deleted_and_added(server: FakeServer) -> None:
    async with running(World(server)) as world:
        server.put("web")
        server.put("web", uid="another")
        await settle()
        assert world.reported == ["Widget default/web added", "Widget default/web deleted", "Widget default/web added"]


async def test_deletion_of_an_unknown_object_is_reported(server: FakeServer) -> None:
    async with running(World(server)) as world:
        obj = server.put("web")
        world.informer.on_watch_event("DELETED", obj)
        assert world.reported[0] == "Widget default/web deleted"


async def test_expired_watch_leads_to_a_list_soon_after_a_long_outage(server: FakeServer) -> None:
    async with running(World(server)) as world:
        server.failure = UnreachableError("connection refused")
        server.end_streams(UnreachableError("reset"))
        await world.pass_seconds(20)
        server.put("new")
        server.forget_history()
        server.failure = None
        while len(server.watched_from) < 2:
            await world.pass_seconds(0.1)
        await world.pass_seconds(0.2)
        assert world.reported == ["Widget default/new added"]


async def test_repeated_expiry_leads_to_lists_with_backoff(
    server: FakeServer,
) -> None:
    async with running(World(server)) as world:
        server.forget_everything = True
        server.end_streams(UnreachableError("reset"))
        await world.pass_seconds(60)
        assert server.lists < 20
        server.forget_everything = False
        server.put("new")
        await world.pass_seconds(12)
        assert world.reported == ["Widget default/new added"]


async def test_only_the_unreadable_object_is_skipped(server: FakeServer) -> None:
    server.put("web")
    server.put("deep", unreadable=True)
    server.put("after")
    async with running(World(server)) as world:
        assert world.informer.synced.is_set()
        server.put("web", unreadable=True)
        server.put("later")
        await settle()
        assert world.reported == [f"Widget default/{name} added" for name in ("web", "after", "later")]
        server.put("web", spec={"a": 1})
        server.remove("deep")
        await settle()
        assert world.reported == ["Widget default/web modified", "Widget default/deep deleted"]
        assert server.watched_from == ["103"]


async def test_list_keeps_an_object_that_became_unreadable(server: FakeServer) -> None:
    server.put("web")
    async with running(World(server)) as world:
        server.put("web", unreadable=True)
        server.forget_history()
        server.end_streams(GoneError(410, "Expired", ""))
        await world.pass_seconds(1)
        assert server.lists == 2
        assert world.reported == ["Widget default/web added"]
        assert world.informer.store.get(WEB) is not None


@pytest.mark.parametrize("is_in_list", [True, False])
async def test_too_deeply_nested_object_is_skipped_and_logged(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, *, is_in_list: bool
) -> None:
    entry_of = Entry.of

    def of(obj: RawObject, fields: Any = ()) -> Entry:
        if obj["metadata"]["name"] == "deep":
            raise RecursionError
        return entry_of(obj, fields)

    monkeypatch.setattr(Entry, "of", of)
    if is_in_list:
        server.put("deep")
    with capture_logs() as logs:
        async with running(World(server)) as world:
            server.put("deep")
            server.put("web")
            await settle()
            assert world.reported == ["Widget default/web added"]
    skipped = [line["object"] for line in logs if line["event"] == "Skipping an object that is nested too deeply"]
    assert set(skipped) == {"default/deep"}


async def test_list_that_expires_before_its_end_blocks_the_kind_until_it_completes(
    server: FakeServer,
) -> None:
    for name in "abc":
        server.put(name)
    server.expiring = True
    async with running(World(server)) as world:
        await world.pass_seconds(10)
        assert not world.informer.synced.is_set()
        assert world.informer.blocked_reason == "Lists expire before their end; listing again"
        server.expiring = False
        await world.pass_seconds(20)
        assert world.informer.synced.is_set()
        assert sorted(world.reported) == [f"Widget default/{name} added" for name in "abc"]


@pytest.mark.parametrize("is_in_list", [True, False])
async def test_slow_objects_let_other_tasks_run(server: FakeServer, *, is_in_list: bool) -> None:
    server.page_size = 500
    world = World(server)
    world.informer.subscribe(lambda _change: world.clock.advance(0.02))
    turns: set[int] = set()

    async def other() -> None:
        while len(world.changes) < 50:
            await asyncio.sleep(0)
            turns.add(len(world.changes))

    def put_all() -> None:
        for number in range(50):
            server.put(f"w{number}")

    if is_in_list:
        put_all()
    task = asyncio.create_task(other())
    async with running(world):
        if not is_in_list:
            put_all()
        await asyncio.wait_for(task, 60)
    assert len(turns) >= 25


async def test_kind_that_is_installed_again_with_another_scope_is_listed_by_that_scope(server: FakeServer) -> None:
    server.put("web", "one")
    async with running(World(server, ("one", "two"))) as world:
        for is_namespaced, expected in (
            (False, ["Widget one/web deleted", "Widget web added"]),
            (True, ["Widget web deleted", "Widget one/web added"]),
        ):
            world.changes.clear()
            server.failure = UnknownKindError(WIDGET)
            server.end_streams(UnknownKindError(WIDGET))
            await world.pass_seconds(5)
            server.objects.clear()
            server.namespaced = is_namespaced
            server.failure = None
            server.put("web", "one")
            await world.pass_seconds(10)
            assert world.reported == expected
            assert server.streams == (2 if is_namespaced else 1)


MISSING = UnknownKindError(WIDGET)


def test_missing_kind_is_retried_every_few_seconds_with_few_warnings() -> None:
    retry = WatchRetry(WIDGET, None)
    waited = 0.0
    with capture_logs() as logs:
        while waited < 1300:
            seconds = retry.delay_after_failure(MISSING)
            assert seconds <= 3
            waited += seconds
    warnings = [line for line in logs if line["log_level"] == "warning"]
    assert [line["event"] for line in warnings] == ["Kind is not installed; waiting for it"] * 3
    assert "is its CustomResourceDefinition installed?" in warnings[0]["reason"]


def test_another_type_of_failure_is_logged_immediately() -> None:
    retry = WatchRetry(WIDGET, None)
    with capture_logs() as logs:
        retry.delay_after_failure(MISSING)
        retry.delay_after_failure(MISSING)
        retry.delay_after_failure(ForbiddenError(403, "Forbidden", "no"))
        retry.record_success()
        retry.delay_after_failure(MISSING)
    assert len([line for line in logs if line["log_level"] == "warning"]) == 3
