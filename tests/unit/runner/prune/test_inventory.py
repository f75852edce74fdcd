import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.runner.prune.inventory import (
    INVENTORY_ANNOTATION,
    Inventory,
    InventoryObject,
    digest_of_object,
    inputs_of,
)
from rolecall.runner.prune.observations import ObjectId

TEXT = st.text(max_size=10)
IDS = st.builds(ObjectId, TEXT, TEXT, TEXT, TEXT)
OBJECTS = st.builds(
    InventoryObject, IDS, TEXT, TEXT, TEXT, st.integers(-1, 2_000_000_000), asks=st.booleans(), seen=TEXT
)
PRIMARY: dict[str, Any] = {
    "apiVersion": "e.com/v1",
    "kind": "Shop",
    "metadata": {"name": "s", "uid": "u", "labels": {"a": "b"}, "annotations": {"own": "x"}},
    "spec": {"size": 1},
    "status": {"conditions": []},
}


def primary_with(text: str) -> dict[str, Any]:
    return {"metadata": {"annotations": {INVENTORY_ANNOTATION: text}}}


@given(TEXT, st.lists(OBJECTS, max_size=5, unique_by=lambda each: each.id), st.dictionaries(IDS, TEXT, max_size=3))
def test_inventory_is_read_as_it_was_written(
    text: str, objects: list[InventoryObject], waiting: dict[ObjectId, str]
) -> None:
    ordered = tuple(sorted(objects, key=lambda each: each.id))
    inventory = Inventory(text, text, len(objects), ordered, "me", text, text, waiting)
    assert Inventory.of(primary_with(inventory.to_text())) == inventory


def test_inventory_of_the_first_format_keeps_its_objects_and_has_no_inputs() -> None:
    entry = ["", "services", "ns", "a", "v1", "Service", "uid", 1_700_000_000]
    text = json.dumps({"by": "me", "inputs": "spec.role", "objects": [entry]})
    found = Inventory.of(primary_with(text))
    expected = InventoryObject(ObjectId("", "services", "ns", "a"), "v1", "Service", "uid", 1_700_000_000)
    assert (found.by, found.spec, found.role, found.objects) == ("me", "", "", (expected,))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | TEXT, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner)
    )
)
def test_any_other_json_counts_as_empty(content: object) -> None:
    assert Inventory.of(primary_with(json.dumps(content))) == Inventory()
    forged = json.dumps({"by": "me", "spec": "1", "objects": [content]})
    assert Inventory.of(primary_with(forged)) == Inventory()
    waiting = json.dumps({"by": "me", "spec": "1", "objects": [], "waiting": [content]})
    assert not Inventory.of(primary_with(waiting)).objects


@given(st.integers(0, 300))
def test_truncated_inventory_counts_as_empty(length: int) -> None:
    entry = InventoryObject(ObjectId("", "services", "n", "a"), "v1", "Service", "u")
    text = Inventory("1", "2", 3, (entry,), "me").to_text()
    if length < len(text):
        assert Inventory.of(primary_with(text[:length])) == Inventory()


@pytest.mark.parametrize(
    "change",
    [
        {"status": {"conditions": [1]}},
        {"metadata": PRIMARY["metadata"] | {"resourceVersion": "9", "managedFields": [{}]}},
        {"metadata": PRIMARY["metadata"] | {"finalizers": ["x"]}},
        {"metadata": PRIMARY["metadata"] | {"annotations": {"own": "x", "rolecall.dev/inventory": "y"}}},
    ],
)
def test_inputs_do_not_include_what_the_operator_writes(change: dict[str, Any]) -> None:
    assert inputs_of({**PRIMARY, **change}, {}) == inputs_of(PRIMARY, {})


def test_labels_and_annotations_are_no_edit_of_the_spec() -> None:
    """But a deletion isn't sent if they changed since the run."""
    before = inputs_of(PRIMARY, {})
    changes: list[dict[str, Any]] = [{"labels": {}}, {"annotations": {"own": "y"}}]
    for metadata in changes:
        after = inputs_of({**PRIMARY, "metadata": PRIMARY["metadata"] | metadata}, {})
        assert after[:2] == before[:2]
        assert after != before


def test_spec_and_role_have_digests_of_their_own() -> None:
    before = inputs_of(PRIMARY, {"files": "1"})
    edited, released = inputs_of({**PRIMARY, "spec": {}}, {"files": "1"}), inputs_of(PRIMARY, {"files": "2"})
    assert (edited.spec != before.spec, edited.role == before.role) == (True, True)
    assert (released.spec == before.spec, released.role != before.role) == (True, True)
    assert inputs_of({**PRIMARY, "data": {}}, {"files": "1"}).spec != before.spec


def test_first_annotation_of_the_operator_changes_no_inputs() -> None:
    bare = {**PRIMARY, "metadata": {"name": "s", "uid": "u"}}
    noted = {**PRIMARY, "metadata": {"name": "s", "uid": "u", "annotations": {"rolecall.dev/inventory": "x"}}}
    assert inputs_of(noted, {}) == inputs_of(bare, {})


@pytest.mark.parametrize(
    ("change", "is_seen"),
    [
        ({"status": {"ready": 1}}, False),
        ({"metadata": {"resourceVersion": "8", "managedFields": [{"manager": "m", "subresource": "status"}]}}, False),
        ({"metadata": {"managedFields": [{"manager": "m", "operation": "Apply"}]}}, True),
        ({"metadata": {"labels": {"a": "b"}}}, True),
        ({"metadata": {"annotations": {"rolecall.dev/prune": "false"}}}, True),
        ({"spec": {}}, True),
    ],
)
def test_digest_of_an_object_shows_any_change_outside_its_status(change: dict[str, Any], *, is_seen: bool) -> None:
    obj: dict[str, Any] = {"kind": "Service", "metadata": {"name": "a", "resourceVersion": "7"}, "spec": {"x": 1}}
    metadata: dict[str, Any] = {**obj["metadata"], **change.get("metadata", {})}
    changed = {**obj, **change, "metadata": metadata}
    assert (digest_of_object(changed) != digest_of_object(obj)) is is_seen
