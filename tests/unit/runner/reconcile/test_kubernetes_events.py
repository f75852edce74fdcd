from typing import Any

import pytest
from structlog.testing import capture_logs

from rolecall.kube.errors import ForbiddenError, UnreachableError
from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.runner.reconcile import kubernetes_events
from rolecall.runner.reconcile.kubernetes_events import EVENT, REFILL_SECONDS, EventRecorder, EventSpec
from tests.unit.fake_cluster import FakeCluster

FAILED = EventSpec("Warning", "ReconcileFailed", "Task 'Boom': no more coffee")
NOW = 1_800_000_000.0


def thing(name: str = "one", namespace: str = "default") -> RawObject:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "7"}
    return {"apiVersion": "test.rolecall.dev/v1", "kind": "Thing", "metadata": metadata}


class Desk:
    """A recorder whose times stand still unless a test moves them."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.time = 0.0
        self.recorder = EventRecorder(cluster, now=lambda: NOW + self.time, monotonic=lambda: self.time)

    async def record(self, *happenings: EventSpec, obj: RawObject | None = None) -> None:
        """Record all of these about one object, and wait until they are written."""
        async with self.recorder.running():
            for happening in happenings:
                self.recorder.record(obj or thing(), happening)

    def events(self) -> list[dict[str, Any]]:
        """Return the Events that there are."""
        return [obj for (gvk, _), obj in self.cluster.objects().items() if gvk == EVENT]


@pytest.fixture
def desk(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(kubernetes_events, "_LAST_SECONDS", 60.0)  # all Events are written, however slow the machine is
    return Desk(cluster)


async def test_event_has_object_and_message(desk: Desk) -> None:
    await desk.record(FAILED)
    [event] = desk.events()
    assert metadata_of(event)["namespace"] == "default"
    assert event["involvedObject"] == {
        "apiVersion": "test.rolecall.dev/v1",
        "kind": "Thing",
        "namespace": "default",
        "name": "one",
        "uid": "uid-one",
        "resourceVersion": "7",
    }
    assert (event["type"], event["reason"], event["message"]) == ("Warning", FAILED.reason, FAILED.message)
    assert (event["count"], event["firstTimestamp"]) == (1, "2027-01-15T08:00:00Z")


async def test_equal_events_are_counted(desk: Desk) -> None:
    await desk.record(FAILED)
    desk.time = 60.0
    await desk.record(FAILED, FAILED)
    [event] = desk.events()
    assert (event["count"], event["firstTimestamp"], event["lastTimestamp"]) == (
        3,
        "2027-01-15T08:00:00Z",
        "2027-01-15T08:01:00Z",
    )


async def test_expired_event_is_recreated(desk: Desk) -> None:
    await desk.record(FAILED)
    desk.cluster.objects().clear()
    await desk.record(FAILED)
    assert [event["count"] for event in desk.events()] == [1]


async def test_allowance_of_an_object_refills(desk: Desk) -> None:
    many = [EventSpec("Normal", "Reconciled", str(number)) for number in range(40)]
    await desk.record(*many)
    assert len(desk.events()) == 15
    desk.time = 2 * REFILL_SECONDS
    await desk.record(*many)
    desk.time += 1.0
    await desk.record(FAILED, obj=thing("two"))
    assert len(desk.events()) == 16, "the two that are allowed again are counted, and another object has its own"
    assert sorted(event["count"] for event in desk.events())[-3:] == [1, 2, 2]


async def test_events_of_cluster_scoped_objects_are_in_default(desk: Desk) -> None:
    await desk.record(FAILED, obj=thing(namespace=""))
    [event] = desk.events()
    assert metadata_of(event)["namespace"] == "default"
    assert "namespace" not in event["involvedObject"]


async def test_longest_name_and_message_fit(desk: Desk) -> None:
    await desk.record(EventSpec("Warning", "ReconcileFailed", "ä" * 5000), obj=thing("n" * 253))
    [event] = desk.events()
    assert len(metadata_of(event)["name"]) <= 253
    assert len(event["message"].encode()) <= 1024


async def test_no_event_is_written_about_an_event(desk: Desk) -> None:
    await desk.record(FAILED, obj=thing() | {"apiVersion": "v1", "kind": "Event"})
    assert desk.events() == []


async def test_missing_permission_is_logged_once_and_retried_later(desk: Desk) -> None:
    forbidden = ForbiddenError(403, "Forbidden", 'events is forbidden: User "x" cannot create resource')
    desk.cluster.troubles = [("create", forbidden)]
    with capture_logs() as logs:
        await desk.record(FAILED)
        await desk.record(FAILED)
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == ["Not permitted to write Events"]
    assert desk.events() == []
    desk.time = 601.0
    await desk.record(FAILED)
    assert len(desk.events()) == 1


async def test_missing_permission_in_one_namespace_affects_no_other(desk: Desk) -> None:
    desk.cluster.troubles = [("create", ForbiddenError(403, "Forbidden", "events is forbidden"))]
    await desk.record(FAILED, obj=thing(namespace="closed"))
    await desk.record(FAILED, obj=thing(namespace="open"))
    await desk.record(FAILED, obj=thing(namespace="closed"))
    assert [metadata_of(event)["namespace"] for event in desk.events()] == ["open"]


@pytest.mark.parametrize(
    "error",
    [
        UnreachableError("nobody there"),
        ForbiddenError(403, "Forbidden", "unable to create new content in namespace x because it is being terminated"),
    ],
)
async def test_temporary_error_loses_one_event_without_a_log_line(desk: Desk, error: Exception) -> None:
    desk.cluster.troubles = [("create", error)]  # type: ignore[list-item]
    with capture_logs() as logs:
        await desk.record(FAILED)
    assert [line for line in logs if line["log_level"] != "debug"] == []
    await desk.record(FAILED)
    assert len(desk.events()) == 1


async def test_event_kind_of_another_group_gets_events(desk: Desk) -> None:
    other = thing() | {"apiVersion": "example.com/v1", "kind": "Event"}
    await desk.record(FAILED, obj=other)
    key = ObjectKey.of_object(desk.events()[0])
    assert await desk.cluster.get(GVK("", "v1", "Event"), key)
