from datetime import UTC, datetime
from typing import Any

import pytest
from ansible_collections.rolecall.util.plugins.modules.k8s_event import increment_count, new_event, post, remove

from tests.unit.collection.objects import Server

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
LATER = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
FOO = {"apiVersion": "e.com/v1", "kind": "Foo", "name": "f", "namespace": "ns"}


def parameters(**given: Any) -> dict[str, Any]:
    return {
        "name": "f.synced",
        "namespace": "ns",
        "reason": "Synced",
        "message": "done",
        "type": "Normal",
        "source": {"component": "rolecall"},
        "reportingComponent": "rolecall",
        "involvedObject": None,
        "appendTimestamp": False,
        "merge_type": None,
        **given,
    }


def test_event_has_reason_message_object_and_times() -> None:
    event = new_event(parameters(), FOO, FIRST)
    assert event["metadata"] == {"name": "f.synced", "namespace": "ns"}
    assert (event["reason"], event["message"], event["involvedObject"]) == ("Synced", "done", FOO)
    assert (event["count"], event["firstTimestamp"], event["lastTimestamp"]) == (1, *["2026-01-01T00:00:00Z"] * 2)


def test_event_without_an_object_has_no_reference() -> None:
    assert "involvedObject" not in new_event(parameters(), None, FIRST)


def test_name_with_a_timestamp_is_always_new() -> None:
    names = {new_event(parameters(appendTimestamp=True), FOO, now)["metadata"]["name"] for now in (FIRST, LATER)}
    assert len(names) == 2
    assert all(name.startswith("f.synced.") for name in names)


@pytest.mark.parametrize(
    ("change", "found", "expected"),
    [
        ({}, {}, (2, "2026-01-01T00:00:00Z")),
        ({}, {"count": None, "firstTimestamp": None}, (1, "2026-01-01T00:01:00Z")),
        ({"reason": "Other"}, {}, (1, "2026-01-01T00:01:00Z")),
        ({"message": "other"}, {}, (1, "2026-01-01T00:01:00Z")),
        ({"type": "Warning"}, {}, (1, "2026-01-01T00:01:00Z")),
    ],
)
def test_event_with_the_same_content_is_counted(
    change: dict[str, str], found: dict[str, Any], expected: tuple[int, str]
) -> None:
    event = increment_count(
        new_event(parameters(**change), FOO, LATER), {**new_event(parameters(), FOO, FIRST), **found}
    )
    assert (event["count"], event["firstTimestamp"]) == expected
    assert event["lastTimestamp"] == "2026-01-01T00:01:00Z"


def test_event_is_created_and_then_counted() -> None:
    server = Server()
    for count in (1, 2, 3):
        result = post(server, parameters(), check_mode=False)
        assert (result["changed"], server.objects["ns", "f.synced"]["count"]) == (True, count)
    assert set(server.patch_types) == {"application/merge-patch+json"}


def test_patch_type_can_be_chosen() -> None:
    server = Server()
    for _ in range(2):
        post(server, parameters(merge_type=["json", "strategic-merge"]), check_mode=False)
    assert server.patch_types == ["application/strategic-merge-patch+json"]


FOUND = {"uid": "u", "resourceVersion": "7"}


@pytest.mark.parametrize(
    ("objects", "given", "expected"),
    [
        ([{"name": "f", "namespace": "ns", **FOUND}], {}, {**FOO, **FOUND}),
        ([{"name": "f", "namespace": "ns", **FOUND}], {"uid": "own"}, {**FOO, "uid": "own"}),
        ([], {}, FOO),
        ([], {"uid": None, "resourceVersion": None, "fieldPath": None}, FOO),
    ],
    ids=["found", "given", "deleted object", "omitted options"],
)
def test_uid_of_the_object_is_looked_up_unless_given(
    objects: list[dict[str, str]], given: dict[str, Any], expected: dict[str, str]
) -> None:
    server = Server(*({"metadata": metadata} for metadata in objects))
    post(server, parameters(involvedObject={**FOO, **given}), check_mode=False)
    assert server.objects["ns", "f.synced"]["involvedObject"] == expected


def test_event_about_a_kind_that_is_not_served_is_created() -> None:
    server = Server()
    post(server, parameters(involvedObject={**FOO, "kind": "Missing"}), check_mode=False)
    assert server.objects["ns", "f.synced"]["involvedObject"] == {**FOO, "kind": "Missing"}


def test_event_is_removed() -> None:
    server = Server()
    post(server, parameters(), check_mode=False)
    assert remove(server, parameters(), check_mode=False)["changed"]
    assert server.objects == {}
    assert not remove(server, parameters(), check_mode=False)["changed"]


def test_check_mode_changes_nothing() -> None:
    server = Server()
    assert post(server, parameters(), check_mode=True)["changed"]
    assert server.objects == {}
    post(server, parameters(), check_mode=False)
    assert remove(server, parameters(), check_mode=True)["changed"]
    assert len(server.objects) == 1
