import json
import sys
import tracemalloc
import uuid

import pytest

from rolecall.kube.jsonpath import FieldPath
from rolecall.kube.references import GVK, ObjectKey, OwnerReference, RawObject
from rolecall.runner.controller.store import EMPTY, Entry, Store
from tests.unit.runner.controller.samples import make_object

FRAMES = 8
OBJECTS = 300
"""How deep the calls below a test are seen."""

OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "u", "controller": True}


def test_an_entry_has_what_predicates_and_triggers_ask_for() -> None:
    annotations = {"operator-sdk/primary-resource": "ns/x", "operator-sdk/primary-resource-type": "Foo.example.com"}
    obj = make_object(
        labels={"app": "nginx"},
        annotations=annotations,
        generation=3,
        ownerReferences=[OWNER],
        deletionTimestamp="2026-01-01T00:00:00Z",
        status={"phase": "Running"},
    )
    entry = Entry.of(obj, (FieldPath.parse("$.status.phase"), FieldPath.parse("$.spec.x")))
    assert (entry.key, entry.uid, entry.resource_version) == (ObjectKey("default", "web"), "uid-web", "1")
    assert (entry.generation, entry.is_deleting, entry.labels) == (3, True, {"app": "nginx"})
    assert (entry.primary_resource, entry.primary_resource_type) == ("ns/x", "Foo.example.com")
    assert entry.owners == (OwnerReference("apps/v1", "ReplicaSet", "rs", "u", controller=True),)
    assert entry.values == ("Running", ())


def test_an_object_without_metadata_is_an_empty_entry() -> None:
    entry = Entry.of({})
    assert (entry.key, entry.generation, entry.labels, entry.annotations_digest) == (ObjectKey("", ""), 0, {}, b"")
    assert entry.labels is EMPTY


@pytest.mark.parametrize(
    "other",
    [
        make_object(status={"phase": "Running"}),
        make_object(resourceVersion="2"),
        make_object(managedFields=[{"manager": "kubectl", "time": "now"}]),
    ],
)
def test_status_and_bookkeeping_do_not_change_the_digest(other: RawObject) -> None:
    assert Entry.of(make_object()).digest == Entry.of(other).digest


@pytest.mark.parametrize(
    "other",
    [
        make_object(spec={"replicas": 2}),
        make_object(labels={"a": "b"}),
        make_object(annotations={"a": "b"}),
        make_object(finalizers=["x"]),
        make_object() | {"data": {"key": "value"}},
    ],
)
def test_everything_else_changes_the_digest(other: RawObject) -> None:
    assert Entry.of(make_object()).digest != Entry.of(other).digest


def test_what_is_left_of_a_cluster_scoped_object_has_no_namespace() -> None:
    assert Entry.of(make_object(namespace="")).tombstone(GVK("", "v1", "Node")) == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "web", "uid": "uid-web", "resourceVersion": "1"},
    }


def test_a_store_remembers_the_last_entry_of_each_object() -> None:
    store = Store()
    first, second = Entry.of(make_object()), Entry.of(make_object(resourceVersion="2"))
    other = Entry.of(make_object(namespace="other"))
    assert store.put(first) is None
    assert store.put(second) is first
    store.put(other)
    assert len(store) == 2
    assert list(store) == [second, other]
    assert list(store.in_namespace("other")) == [other]
    assert list(store.in_namespace("unknown")) == []
    assert store.get(ObjectKey("default", "web")) is second
    assert store.remove(ObjectKey("default", "web")) is second
    assert store.remove(ObjectKey("default", "web")) is None
    assert store.get(ObjectKey("default", "web")) is None


def test_an_object_costs_less_than_two_kibibytes() -> None:
    store = Store()
    tracemalloc.start(FRAMES)
    for number in range(OBJECTS):
        obj = make_object(
            f"web-{number}-with-a-long-name",
            labels={"app.kubernetes.io/name": "nginx", "pod-template-hash": "abcdef", "instance": f"web-{number}"},
            annotations={"kubectl.kubernetes.io/last-applied-configuration": "x" * 1000},
            ownerReferences=[OWNER | {"uid": f"uid-{number}"}],
            spec={"containers": [{"name": "nginx", "image": "nginx:latest"}] * 3},
        )
        store.put(Entry.of(obj, (FieldPath.parse("$.status.phase"),)))
    # Only what was allocated below this function: whatever else the process does meanwhile is not the store.
    ours = tracemalloc.take_snapshot().filter_traces(
        [tracemalloc.Filter(inclusive=True, filename_pattern=__file__, all_frames=True)]
    )
    tracemalloc.stop()
    assert len(store) == OBJECTS
    assert 500 < sum(trace.size for trace in ours.traces) / OBJECTS < 2048


def is_interned(text: str) -> bool:
    """Return whether a string is in the interpreter's table, from which Python 3.12.1 removes nothing."""
    equal = "".join(list(text))
    return sys.intern(equal) is not equal


def test_no_text_that_users_choose_is_interned() -> None:
    """Python 3.12.1 would never free it."""
    texts = {name: f"{name}-{uuid.uuid4()}" for name in ("label", "label value", "key", "value", "namespace", "owner")}
    obj = make_object(
        labels={texts["label"]: texts["label value"]},
        annotations={texts["key"]: texts["value"], "operator-sdk/primary-resource": texts["owner"]},
        namespace=texts["namespace"],
    )
    entry = Entry.of(obj)
    assert entry.labels == {texts["label"]: texts["label value"]}
    assert [name for name, text in texts.items() if is_interned(text)] == []


def test_equal_labels_and_namespaces_of_objects_are_the_same_strings() -> None:
    one, other = (Entry.of(json.loads(json.dumps(make_object(labels={"app": "web-server"})))) for _ in range(2))
    assert one.namespace is other.namespace
    assert next(iter(one.labels.items()))[1] is next(iter(other.labels.items()))[1]


def test_a_long_text_is_kept_by_its_object_only() -> None:
    text = "x" * 100_000 + str(uuid.uuid4())
    entry = Entry.of(make_object(annotations={"operator-sdk/primary-resource": text}))
    assert entry.primary_resource is text
    del entry
    assert sys.getrefcount(text) <= 3
