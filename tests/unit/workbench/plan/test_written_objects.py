"""The changes of objects follow from the writes of all runs for an object, in the order of the first writes."""

from typing import Any

from rolecall.kube.references import ObjectKey, RawObject
from rolecall.workbench.comparison.reports import TaskName
from rolecall.workbench.plan.model import ObjectChange
from rolecall.workbench.plan.written_objects import WrittenObjects
from tests.unit.fake_cluster import FakeCluster
from tests.unit.runner.record.records import exchange, make_record

MAPS = "/api/v1/namespaces/ns/configmaps"
SCALE = "/apis/apps/v1/namespaces/ns/deployments/web/scale"
TASK = TaskName("Write", "/r/main.yml:3")


def config_map(version: str, name: str = "a") -> RawObject:
    """Return a ConfigMap as the API server returns it."""
    metadata = {"name": name, "namespace": "ns", "resourceVersion": version}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def write(method: str, path: str, answer: RawObject, status: int = 200) -> Any:
    """Return a write and its response."""
    return exchange(method, path, {}, answer, status)


def changes_of(*writes: Any) -> tuple[tuple[ObjectChange, ...], int]:
    """Return the changes of a run's writes, and how many writes changed an object."""
    written = WrittenObjects(FakeCluster())
    changed = written.add(make_record(*writes))
    assert len(written.writes) == len(writes)
    return written.changes(), changed


def test_created_object_is_as_its_last_write_left_it() -> None:
    [change], changed = changes_of(
        write("POST", MAPS, config_map("1"), 201),
        write("PUT", f"{MAPS}/a", config_map("2")),
        write("PUT", f"{MAPS}/a", config_map("2")),
    )
    assert (change.key, change.before, change.after) == (ObjectKey("ns", "a"), None, config_map("2"))
    assert change.gvk.kind == "ConfigMap"
    assert change.tasks == (TASK,)
    assert changed == 2


def test_rejected_write_changes_nothing() -> None:
    assert changes_of(write("PUT", f"{MAPS}/a", {"kind": "Status"}, 409)) == ((), 0)


def test_created_and_deleted_object_has_no_state() -> None:
    [change], changed = changes_of(
        write("POST", MAPS, config_map("1"), 201), write("DELETE", f"{MAPS}/a", {"kind": "Status"})
    )
    assert (change.before, change.after, changed) == (None, None, 2)


def test_objects_are_in_the_order_of_their_first_writes() -> None:
    found, _ = changes_of(
        write("POST", MAPS, config_map("1", "b"), 201),
        write("POST", MAPS, config_map("2", "a"), 201),
        write("PUT", f"{MAPS}/b", config_map("3", "b")),
    )
    assert [each.key.name for each in found] == ["b", "a"]


def test_write_of_a_status_is_marked() -> None:
    [change], _ = changes_of(write("PUT", f"{MAPS}/a/status", config_map("2")))
    assert change.writes_status
    [change], _ = changes_of(write("PUT", f"{MAPS}/a", config_map("2")))
    assert not change.writes_status


def test_scale_changes_the_replicas_of_a_known_object() -> None:
    web = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "ns", "resourceVersion": "1"},
        "spec": {"replicas": 1, "paused": True},
    }
    scale = {"kind": "Scale", "metadata": {"name": "web", "resourceVersion": "2"}, "spec": {"replicas": 3}}
    [change], changed = changes_of(
        write("POST", "/apis/apps/v1/namespaces/ns/deployments", web, 201), write("PUT", SCALE, scale)
    )
    assert changed == 2
    assert change.after is not None
    assert change.after["spec"] == {"replicas": 3, "paused": True}
    assert change.after["metadata"]["resourceVersion"] == "2"
