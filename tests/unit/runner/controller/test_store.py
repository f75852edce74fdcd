import json
import sys
import tracemalloc
import uuid
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.kube.jsonpath import FieldPath
from rolecall.kube.references import GVK, ObjectKey, OwnerReference, RawObject
from rolecall.runner.controller.store import EMPTY, Change, Entry, FieldChecksums, Store
from rolecall.runner.controller.work_queue import MAX_CAUSE_LENGTH, Cause, Priority
from tests.unit.json_values import JSON
from tests.unit.runner.controller.samples import POD, make_change, make_object

FRAMES = 8
OBJECTS = 300
"""The depth of the traced calls below a test."""

OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "u", "controller": True}


def test_entry_has_the_fields_of_predicates_and_triggers() -> None:
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


def test_object_without_metadata_is_an_empty_entry() -> None:
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
def test_status_and_volatile_metadata_do_not_change_the_digest(other: RawObject) -> None:
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
def test_other_fields_change_the_digest(other: RawObject) -> None:
    assert Entry.of(make_object()).digest != Entry.of(other).digest


def test_tombstone_of_a_cluster_scoped_object_has_no_namespace() -> None:
    assert Entry.of(make_object(namespace="")).tombstone(GVK("", "v1", "Node")) == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "web", "uid": "uid-web", "resourceVersion": "1"},
    }


def test_store_keeps_the_last_entry_of_each_object() -> None:
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


def test_entry_takes_less_than_two_kibibytes() -> None:
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


def test_user_defined_strings_are_not_interned() -> None:
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


def test_equal_labels_and_namespaces_share_their_strings() -> None:
    one, other = (Entry.of(json.loads(json.dumps(make_object(labels={"app": "web-server"})))) for _ in range(2))
    assert one.namespace is other.namespace
    assert next(iter(one.labels.items()))[1] is next(iter(other.labels.items()))[1]


def test_long_string_is_freed_with_its_entry() -> None:
    text = "x" * 100_000 + str(uuid.uuid4())
    entry = Entry.of(make_object(annotations={"operator-sdk/primary-resource": text}))
    assert entry.primary_resource is text
    del entry
    assert sys.getrefcount(text) <= 3


WEB: dict[str, Any] = {
    "kind": "Pod",
    "metadata": {"name": "web", "resourceVersion": "1", "labels": {"a": "1"}},
    "spec": {"nodeName": "one", "containers": [{"name": "c"}]},
    "status": {"phase": "Pending"},
}


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({}, []),
        ({"status": {"phase": "Running"}}, ["status.phase"]),
        ({"spec": {"containers": [{"name": "c"}]}}, ["spec.nodeName"]),
        ({"data": {"key": "value"}}, ["data.key"]),
        ({"type": "Opaque"}, ["type"]),
        (
            {"metadata": {"name": "web", "resourceVersion": "2", "managedFields": [], "generation": 3}},
            ["metadata.labels"],
        ),
    ],
)
def test_changed_fields_are_named_to_the_second_level(changes: dict[str, Any], fields: list[str]) -> None:
    assert FieldChecksums.of(WEB).changed_fields(FieldChecksums.of(WEB | changes)) == fields


def test_objects_with_the_same_fields_share_the_names() -> None:
    other = WEB | {"status": {"phase": "Running"}}
    assert FieldChecksums.of(WEB).names is FieldChecksums.of(other).names


@given(st.dictionaries(st.text(), JSON, max_size=4), st.dictionaries(st.text(), JSON, max_size=4))
def test_any_object_has_checksums(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert FieldChecksums.of(one).changed_fields(FieldChecksums.of(one)) == []
    assert FieldChecksums.of(one).changed_fields(FieldChecksums.of(other)) == FieldChecksums.of(other).changed_fields(
        FieldChecksums.of(one)
    )


def test_field_names_are_limited() -> None:
    many = {f"key-{number}" * 40: "x" for number in range(10_000)}
    outline = FieldChecksums.of({"data": many, **many})
    assert len(outline.names) <= 256
    assert max(map(len, outline.names)) <= 128
    assert outline.changed_fields(FieldChecksums.of({"data": many | {"more": "y"}, **many})) == ["data"]


def test_cause_of_a_listed_change_has_no_version() -> None:
    change = make_change(make_object(), make_object(resourceVersion="2"), from_watch=False)
    assert change.cause("text") == Cause("text")


def test_cause_of_an_initially_listed_object_has_low_priority() -> None:
    change = replace(make_change(None, make_object(), from_watch=False), in_initial_list=True)
    assert change.cause("text") == Cause("text", priority=Priority.LOW)


def test_change_without_entries_is_an_error() -> None:
    with pytest.raises(ValueError, match="Kind=Pod without entries, expected an old or a new one"):
        _ = Change(POD, None, None, {}).key


def test_reason_names_the_changed_fields() -> None:
    web = make_object(status={"phase": "Pending"})
    running = make_object(resourceVersion="2", status={"phase": "Running"})
    assert make_change(None, web).reason == "Pod default/web created"
    assert make_change(web, running).reason == "Pod default/web: status.phase"
    assert make_change(web, make_object(resourceVersion="2", status={"phase": "Pending"})).reason == (
        "Pod default/web: updated without a visible change"
    )
    assert make_change(web, None).reason == "Pod default/web deleted"


@pytest.mark.parametrize(
    ("names", "listed"), [("ab", "spec.a, spec.b"), ("abcdefg", "spec.a, spec.b, spec.c, spec.d, spec.e and 2 more")]
)
def test_reason_lists_at_most_five_fields(names: str, listed: str) -> None:
    change = make_change(make_object(spec={}), make_object(spec=dict.fromkeys(names, 1)))
    assert change.reason == f"Pod default/web: {listed}"


def test_reason_counts_the_long_fields_that_it_leaves_out() -> None:
    names = [f"{letter * 90}\n" for letter in "abc"]
    change = make_change(make_object(spec={}), make_object(spec=dict.fromkeys(names, 1)))
    cause = change.cause(change.reason)
    assert cause.text == f"Pod default/web: spec.{names[0][:-1]} , spec.{names[1][:-1]} and 1 more"


@given(annotations=st.dictionaries(st.text(max_size=300), st.text(), max_size=120))
def test_cause_of_any_change_is_one_short_line(annotations: dict[str, str]) -> None:
    change = make_change(make_object(data={}), make_object(data=annotations, resourceVersion="2"))
    shown = change.cause(change.reason).text
    assert shown.isprintable()
    assert len(shown) <= MAX_CAUSE_LENGTH


def test_existing_object_is_found_and_not_created() -> None:
    entry = make_change(None, make_object()).new
    assert Change(POD, None, entry, {}, from_watch=False, in_initial_list=True).reason == (
        "Pod default/web found at startup"
    )
