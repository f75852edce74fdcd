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


def test_an_event_says_who_said_what_and_when() -> None:
    event = new_event(parameters(), FOO, FIRST)
    assert event["metadata"] == {"name": "f.synced", "namespace": "ns"}
    assert (event["reason"], event["message"], event["involvedObject"]) == ("Synced", "done", FOO)
    assert (event["count"], event["firstTimestamp"], event["lastTimestamp"]) == (1, *["2026-01-01T00:00:00Z"] * 2)


def test_an_event_about_nothing_has_no_object() -> None:
    assert "involvedObject" not in new_event(parameters(), None, FIRST)


def test_a_name_with_a_time_is_new_every_time() -> None:
    names = {new_event(parameters(appendTimestamp=True), FOO, now)["metadata"]["name"] for now in (FIRST, LATER)}
    assert len(names) == 2
    assert all(name.startswith("f.synced.") for name in names)


def test_the_same_event_is_counted_up_from_its_beginning() -> None:
    event = increment_count(new_event(parameters(), FOO, LATER), new_event(parameters(), FOO, FIRST))
    assert (event["count"], event["firstTimestamp"], event["lastTimestamp"]) == (
        2,
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:01:00Z",
    )


@pytest.mark.parametrize("change", [{"reason": "Other"}, {"message": "other"}, {"type": "Warning"}])
def test_an_event_that_says_something_else_begins_anew(change: dict[str, str]) -> None:
    event = increment_count(new_event(parameters(**change), FOO, LATER), new_event(parameters(), FOO, FIRST))
    assert (event["count"], event["firstTimestamp"]) == (1, "2026-01-01T00:01:00Z")


def test_an_event_without_a_count_was_seen_once_now() -> None:
    found = {**new_event(parameters(), FOO, FIRST), "count": None, "firstTimestamp": None}
    event = increment_count(new_event(parameters(), FOO, LATER), found)
    assert (event["count"], event["firstTimestamp"]) == (1, "2026-01-01T00:01:00Z")


def test_an_event_is_posted_and_then_counted_up() -> None:
    server = Server()
    for count in (1, 2, 3):
        result = post(server, parameters(), check_mode=False)
        assert (result["changed"], server.objects["ns", "f.synced"]["count"]) == (True, count)
    assert set(server.patch_types) == {"application/merge-patch+json"}


def test_the_type_of_the_patch_can_be_chosen() -> None:
    server = Server()
    for _ in range(2):
        post(server, parameters(merge_type=["json", "strategic-merge"]), check_mode=False)
    assert server.patch_types == ["application/strategic-merge-patch+json"]


def test_the_uid_of_the_object_is_looked_up() -> None:
    metadata = {"name": "f", "namespace": "ns", "uid": "u", "resourceVersion": "7"}
    server = Server({"metadata": metadata})
    post(server, parameters(involvedObject=FOO), check_mode=False)
    assert server.objects["ns", "f.synced"]["involvedObject"] == {**FOO, "uid": "u", "resourceVersion": "7"}


def test_an_object_that_is_gone_gets_its_event_without_a_uid() -> None:
    server = Server()
    post(server, parameters(involvedObject=FOO), check_mode=False)
    assert server.objects["ns", "f.synced"]["involvedObject"] == FOO


def test_a_uid_that_is_given_is_not_looked_up() -> None:
    server = Server({"metadata": {"name": "f", "namespace": "ns", "uid": "other", "resourceVersion": "7"}})
    post(server, parameters(involvedObject={**FOO, "uid": "u"}), check_mode=False)
    assert server.objects["ns", "f.synced"]["involvedObject"] == {**FOO, "uid": "u"}


def test_options_that_were_left_out_are_not_written() -> None:
    server = Server()
    left_out = {"uid": None, "resourceVersion": None, "fieldPath": None}
    post(server, parameters(involvedObject={**FOO, **left_out}), check_mode=False)
    assert server.objects["ns", "f.synced"]["involvedObject"] == FOO


def test_an_event_is_removed() -> None:
    server = Server()
    post(server, parameters(), check_mode=False)
    assert remove(server, parameters(), check_mode=False)["changed"]
    assert server.objects == {}
    assert not remove(server, parameters(), check_mode=False)["changed"]


def test_a_check_changes_nothing() -> None:
    server = Server()
    assert post(server, parameters(), check_mode=True)["changed"]
    assert server.objects == {}
    post(server, parameters(), check_mode=False)
    assert remove(server, parameters(), check_mode=True)["changed"]
    assert len(server.objects) == 1
