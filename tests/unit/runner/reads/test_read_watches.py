import re

import pytest

from rolecall.kube.errors import ForbiddenError
from rolecall.kube.references import ObjectKey
from rolecall.runner.proxy.ownership import Owner
from rolecall.runner.reads import read_watches
from tests.unit.manual_clock import settle
from tests.unit.runner.controller.fake_server import WIDGET
from tests.unit.runner.reads.rig import ONE, SONG, Rig

FORBIDDEN = ForbiddenError(403, "Forbidden", "no")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce the limits to three names and five watches."""
    monkeypatch.setattr(read_watches, "MAX_NAMES", 3)
    monkeypatch.setattr(read_watches, "MAX_SCOPES", 5)


async def test_object_read_by_name_is_watched_by_name(rig: Rig) -> None:
    await rig.run("a", "b")
    assert set(rig.watched) == {("default", "a"), ("default", "b")}


async def test_list_is_watched_by_namespace_together_with_names(rig: Rig) -> None:
    await rig.run("a", "")
    assert set(rig.watched) == {("default", "")}


@pytest.mark.usefixtures("few")
async def test_many_watches_become_one_of_the_whole_kind(rig: Rig) -> None:
    rig.start()
    for number in range(6):
        rig.read("", f"n{number}")
        await settle()
    rig.end()
    await settle()
    assert set(rig.watched) == {(None, "")}
    for number in range(6):
        rig.server.put("w", f"n{number}")
        assert await rig.causes() == [f"read Widget n{number}/w created"]


@pytest.mark.usefixtures("few")
async def test_forbidden_wide_watch_is_replaced_by_narrow_ones(rig: Rig) -> None:
    rig.server.forbidden_namespaces[None] = FORBIDDEN
    rig.start()
    for number in range(8):
        rig.read("", f"n{number}")
        await settle()
    assert rig.end() == []
    for number in range(8):
        rig.server.put("w", f"n{number}")
        assert await rig.causes() == [f"read Widget n{number}/w created"]


@pytest.mark.usefixtures("few")
async def test_deletion_before_a_wider_watch_is_found(rig: Rig) -> None:
    rig.server.put("w", "n0")
    rig.start()
    for number in range(5):
        rig.read("", f"n{number}")
        await settle()
    rig.server.end_streams()
    await settle()
    rig.server.remove("w", "n0")
    rig.read("", "n5")
    await settle()
    assert set(rig.watched) == {(None, "")}
    assert rig.end() == ["read list of Widget: one deleted"]


async def test_order_of_absent_objects_does_not_depend_on_hashes(rig: Rig) -> None:
    """The order of their changes is that of the runs that follow, and a seed must determine it."""
    names = list("hgfedcba")
    await rig.run("", *names)
    kind = rig.watches.of(WIDGET, namespaced=True)
    scope = kind.scopes["default", ""]
    expected = [f"default/{name}" for name in sorted(names)]
    assert list(kind.expected_in(scope).values()) == expected
    keys = frozenset(ObjectKey("default", name) for name in names)
    assert [change.name for change in scope.replayed_after(0, keys)] == expected


async def test_forbidden_watches_are_logged_once(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    rig.server.broken_kinds[WIDGET] = FORBIDDEN
    await rig.run("a", "b", "")
    await rig.recover()
    lines = [line for line in capsys.readouterr().out.splitlines() if re.search("warning|error", line)]
    assert len(lines) == 1
    assert "Failed to watch objects read by runs" in lines[0]


async def test_permission_granted_later_is_used(rig: Rig) -> None:
    rig.server.broken_kinds[WIDGET] = FORBIDDEN
    await rig.run("w")
    rig.server.broken_kinds.clear()
    await rig.recover()
    rig.server.put("w")
    assert await rig.causes() == ["read Widget default/w created"]


async def test_watches_stay_ten_minutes_after_the_last_reader(rig: Rig) -> None:
    await rig.run("a")
    await rig.run("b")
    for _ in range(9):
        await rig.clock.advance_and_settle(60)
    assert set(rig.watched) == {("default", "a"), ("default", "b")}
    for _ in range(3):
        await rig.clock.advance_and_settle(60)
    assert set(rig.watched) == {("default", "b")}
    assert rig.server.streams == 1
    rig.server.put("b")
    assert await rig.causes() == ["read Widget default/b created"]


async def test_reader_within_ten_minutes_uses_the_watch(rig: Rig) -> None:
    await rig.run("a")
    await rig.run()
    for _ in range(5):
        await rig.clock.advance_and_settle(60)
    lists = rig.server.lists
    await rig.run("a")
    for _ in range(20):
        await rig.clock.advance_and_settle(60)
    assert rig.server.lists == lists
    rig.server.put("a")
    assert await rig.causes() == ["read Widget default/a created"]


async def test_objects_with_the_same_read_share_a_watch(rig: Rig) -> None:
    for name in ("one", "two"):
        rig.reads = rig.sets.start(Owner(SONG, ObjectKey("default", name), f"uid-{name}", namespaced=True))
        rig.read("w")
        await settle()
        rig.sets.end(ObjectKey("default", name), successful=True)
    assert (rig.server.lists, rig.count_subscriptions()) == (1, 2)
    rig.server.put("w")
    assert len(await rig.causes()) == 2


async def test_end_of_the_operator_ends_all_watches() -> None:
    rig = Rig()
    async with rig.watches.running():
        await rig.run("a", "")
        assert rig.server.streams > 0
    assert rig.server.streams == 0


async def test_cluster_scoped_object_is_watched_by_name() -> None:
    rig = Rig()
    rig.server.namespaced = False
    async with rig.watches.running():
        rig.start()
        rig.read("w", namespace="")
        await settle()
        rig.sets.end(ONE.key, successful=True)
        assert set(rig.watched) == {(None, "w")}
        rig.server.put("w")
        assert await rig.causes() == ["read Widget w created"]
