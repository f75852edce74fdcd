import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.runner.prune.inventory import (
    INVENTORY_ANNOTATION,
    Inventory,
    InventoryObject,
    digest_of_inputs,
)
from rolecall.runner.prune.observations import ObjectId

TEXT = st.text(max_size=10)
OBJECTS = st.builds(
    InventoryObject, st.builds(ObjectId, TEXT, TEXT, TEXT, TEXT), TEXT, TEXT, TEXT, st.integers(0, 2_000_000_000)
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


@given(TEXT, st.lists(OBJECTS, max_size=5, unique_by=lambda each: each.id))
def test_inventory_is_read_as_it_was_written(inputs: str, objects: list[InventoryObject]) -> None:
    inventory = Inventory(inputs, tuple(sorted(objects, key=lambda each: each.id)), "me")
    assert Inventory.of(primary_with(inventory.to_text())) == inventory


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | TEXT, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner)
    )
)
def test_any_other_json_counts_as_empty(content: object) -> None:
    assert Inventory.of(primary_with(json.dumps(content))) == Inventory()
    forged = json.dumps({"by": "me", "inputs": "1", "objects": [content]})
    assert Inventory.of(primary_with(forged)) == Inventory()


@given(st.integers(0, 200))
def test_truncated_inventory_counts_as_empty(length: int) -> None:
    text = Inventory("1", (InventoryObject(ObjectId("", "services", "n", "a"), "v1", "Service", "u"),), "me").to_text()
    if length < len(text):
        assert Inventory.of(primary_with(text[:length])) == Inventory()


@pytest.mark.parametrize(
    "change",
    [
        {"status": {"conditions": [1]}},
        {"metadata": PRIMARY["metadata"] | {"resourceVersion": "9", "managedFields": [{}], "generation": 4}},
        {"metadata": PRIMARY["metadata"] | {"finalizers": ["x"]}},
        {"metadata": PRIMARY["metadata"] | {"annotations": {"own": "x", "rolecall.dev/inventory": "y"}}},
    ],
)
def test_inputs_do_not_include_what_the_operator_writes(change: dict[str, Any]) -> None:
    assert digest_of_inputs({**PRIMARY, **change}, {}) == digest_of_inputs(PRIMARY, {})


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"size": 2}},
        {"metadata": PRIMARY["metadata"] | {"labels": {}}},
        {"metadata": PRIMARY["metadata"] | {"annotations": {"own": "y"}}},
        {"metadata": PRIMARY["metadata"] | {"uid": "another"}},
        {"data": {}},
    ],
)
def test_inputs_include_what_users_write(change: dict[str, Any]) -> None:
    assert digest_of_inputs({**PRIMARY, **change}, {}) != digest_of_inputs(PRIMARY, {})


def test_first_annotation_of_the_operator_changes_no_inputs() -> None:
    bare = {**PRIMARY, "metadata": {"name": "s", "uid": "u"}}
    noted = {**PRIMARY, "metadata": {"name": "s", "uid": "u", "annotations": {"rolecall.dev/inventory": "x"}}}
    assert digest_of_inputs(noted, {}) == digest_of_inputs(bare, {})


def test_inputs_include_the_role() -> None:
    assert digest_of_inputs(PRIMARY, {"files": "1"}) != digest_of_inputs(PRIMARY, {"files": "2"})
