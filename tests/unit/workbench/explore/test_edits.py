"""Edits reach every field of a schema in their order, and each changes the spec at its path only."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.workbench.explore.edits import (
    ODD_STRINGS,
    ORDER,
    REMOVED,
    Change,
    Edit,
    changed_values,
    described,
    edits_of,
    field_of,
    pairs_of,
    schema_of,
)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 0, "maximum": 5},
        "mode": {"type": "string", "enum": ["fast", "safe"]},
        "tls": {"type": "object", "properties": {"enabled": {"type": "boolean"}, "secret": {"type": "string"}}},
        "env": {"type": "array", "items": {"type": "string"}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "image": {"type": "string"},
        "debug": {"type": "boolean"},
    },
}
SPEC: dict[str, Any] = {
    "size": 3,
    "mode": "fast",
    "tls": {"enabled": False},
    "env": ["a", "b", "c"],
    "labels": {"app": "web"},
    "image": "web:1",
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)
SPECS = st.dictionaries(st.text("abc", min_size=1, max_size=2), VALUES, max_size=4)


def fields_of(edit: Edit) -> set[str]:
    """Return the paths that an edit changes, without indexes."""
    return {field_of(each.path) for each in edit.changes}


def values_at(kind: str, *path: str | int, only: str = "") -> list[Any]:
    """Return the new values of a kind of edit at a path."""
    found = [each.changes[0] for each in edits_of(SCHEMA, SPEC, only=only) if each.kind == kind]
    return [each.value for each in found if each.path == path]


def test_boolean_is_inverted() -> None:
    assert values_at("boolean", "tls", "enabled") == [True]


def test_enum_gets_every_other_value() -> None:
    assert values_at("enum", "mode") == ["safe"]


def test_number_gets_bounds_and_neighbors_within_its_schema() -> None:
    assert sorted(values_at("bound", "size")) == [0, 1, 2, 4, 5]


def test_optional_field_is_removed_and_required_one_is_not() -> None:
    assert values_at("absent", "mode") == [REMOVED]
    assert values_at("absent", "size") == []


def test_absent_field_gets_samples() -> None:
    assert values_at("absent", "debug") == [True, False]
    assert values_at("absent", "tls", "secret") == ["explored"]


def test_list_loses_ends_and_middle_and_grows() -> None:
    assert values_at("list", "env") == [["a", "b"], ["b", "c"], ["a", "c"], [], ["a", "b", "c", "explored"]]


def test_map_loses_and_gains_a_key() -> None:
    assert values_at("map", "labels", "app") == [REMOVED]
    assert values_at("map", "labels", "explored") == ["explored"]


INT_OR_STRING: dict[str, Any] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}
ANY: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True}


def types_of(schema: dict[str, Any], spec: dict[str, Any], name: str) -> set[type]:
    """Return the types that a field gets, of its value or, inside a list, of the items."""
    values = [each.changes[0].value for each in edits_of({"properties": schema}, spec)]
    names = [field_of(each.changes[0].path) for each in edits_of({"properties": schema}, spec)]
    found = [value for one, value in zip(names, values, strict=True) if one == name and value is not REMOVED]
    is_list = schema[name].get("type") == "array"
    return {type(item) for value in found for item in (value if is_list else [value])}


@pytest.mark.parametrize("spec", [{}, {"port": 80}, {"port": "http"}, {"port": "80%"}])
def test_field_for_integers_and_strings_gets_both(spec: dict[str, Any]) -> None:
    for schema in (INT_OR_STRING, {"x-kubernetes-int-or-string": True}):
        assert types_of({"port": schema}, spec, "port") == {int, str}


@pytest.mark.parametrize("spec", [{}, {"ports": []}, {"ports": [80]}, {"ports": ["http"]}, {"ports": [80, "http"]}])
def test_list_of_integers_and_strings_gets_items_of_both_types(spec: dict[str, Any]) -> None:
    assert types_of({"ports": {"type": "array", "items": INT_OR_STRING}}, spec, "ports") == {int, str}


def test_map_of_integers_and_strings_gets_values_of_both_types() -> None:
    schema = {"limits": {"type": "object", "additionalProperties": INT_OR_STRING}}
    for limits in ({}, {"cpu": 1}):
        spec = {"limits": limits}
        changes = [each.changes[0] for each in edits_of({"properties": schema}, spec) if each.kind == "map"]
        assert {type(each.value) for each in changes} >= {int, str}


@pytest.mark.parametrize("spec", [{}, {"config": None}, {"config": 3}, {"config": "x"}, {"config": []}, {"config": {}}])
def test_field_without_a_type_gets_values_of_each_type(spec: dict[str, Any]) -> None:
    assert types_of({"config": ANY}, spec, "config") >= {bool, int, str, list, dict} - {type(spec.get("config"))}


@pytest.mark.parametrize("spec", [{"items": []}, {"items": [1]}, {}])
def test_list_without_a_type_of_items_gets_items_of_each_type(spec: dict[str, Any]) -> None:
    assert types_of({"items": {"type": "array", "items": ANY}}, spec, "items") == {bool, int, str, list, dict}


@pytest.mark.parametrize("schema", [{"type": "object", **ANY}, {"type": "object", "additionalProperties": True}, ANY])
@pytest.mark.parametrize("spec", [{}, {"config": {}}, {"config": {"a": 1}}])
def test_object_with_any_fields_gets_a_field(schema: dict[str, Any], spec: dict[str, Any]) -> None:
    edited = [each.apply(spec).get("config") for each in edits_of({"properties": {"config": schema}}, spec)]
    assert any(isinstance(each, dict) and "explored" in each for each in edited)


def test_each_option_of_an_absent_object_is_switched_on_with_what_is_required() -> None:
    inner = {"type": "object", "properties": {"trace": {"type": "boolean"}}}
    tls = {
        "type": "object",
        "required": ["secret"],
        "properties": {"secret": {"type": "string"}, "enabled": {"type": "boolean"}, "log": inner},
    }
    base = {"secret": "explored"}
    for schema, wrap in ((tls, lambda each: each), ({"type": "array", "items": tls}, lambda each: [each])):
        edited = [each.apply({})["tls"] for each in edits_of({"properties": {"tls": schema}}, {})]
        for value in (base, {**base, "enabled": True}, {**base, "log": {"trace": True}}):
            assert wrap(value) in edited


def test_option_is_edited_in_each_item_that_has_another_value() -> None:
    spec: dict[str, Any] = {"ports": [{"tls": True}, {"tls": True}, {"tls": False}, {"debug": True}]}
    edited = [each.apply(spec)["ports"] for each in edits_of(schema_of(spec), spec) if each.kind == "boolean"]
    assert [[{"tls": False}, *spec["ports"][1:]], [*spec["ports"][:2], {"tls": True}, spec["ports"][3]]] == edited[:2]
    assert [*spec["ports"][:3], {"debug": False}] in edited


def test_string_gets_odd_strings() -> None:
    assert values_at("string", "image") == list(ODD_STRINGS)


def test_string_in_a_name_is_edited_only_if_the_field_is_named() -> None:
    used = frozenset({"registry/web:1"})
    assert not [each for each in edits_of(SCHEMA, SPEC, used) if "image" in fields_of(each)]
    assert {name for each in edits_of(SCHEMA, SPEC, used, "image") for name in fields_of(each)} == {"image"}


def test_field_selects_the_fields_below_it() -> None:
    assert {name for each in edits_of(SCHEMA, SPEC, only="tls") for name in fields_of(each)} == {
        "tls",
        "tls.enabled",
        "tls.secret",
    }


def test_edits_are_in_their_order() -> None:
    kinds = [ORDER.index(each.kind) for each in edits_of(SCHEMA, SPEC)]
    assert kinds == sorted(kinds)


def test_pair_has_the_first_edits_of_two_fields_that_one_task_reads() -> None:
    edits = edits_of(SCHEMA, SPEC)
    [pair] = pairs_of(edits, [frozenset({"mode", "size"}), frozenset({"debug"}), frozenset({"size", "mode"})])
    assert fields_of(pair) == {"mode", "size"}
    assert pair.apply(SPEC)["mode"] == "safe"
    assert pair.apply(SPEC)["size"] != SPEC["size"]


def test_edit_of_a_missing_parent_creates_it() -> None:
    assert Edit("absent", (Change(("tls", "secret"), "x"),)).apply({}) == {"tls": {"secret": "x"}}


@given(SPECS)
def test_each_edit_changes_the_spec_at_its_field_only(spec: dict[str, Any]) -> None:
    before = copy.deepcopy(spec)
    for each in edits_of(schema_of(spec), spec):
        edited = each.apply(spec)
        assert edited != spec
        assert spec == before
        changed = changed_values(spec, edited)
        assert all(any(name == one or name.startswith(f"{one}.") for one in fields_of(each)) for name in changed)


@given(SPECS, SPECS)
def test_description_is_empty_exactly_for_equal_specs(one: dict[str, Any], two: dict[str, Any]) -> None:
    assert bool(described(one, two)) is bool(changed_values(one, two))
    assert described(one, copy.deepcopy(one)) == ""


@pytest.mark.parametrize(
    ("after", "text"),
    [
        ({"size": 0}, "size: 3 -> 0"),
        ({}, "size: 3 -> (absent)"),
        ({"size": 3, "tls": {"enabled": True}}, 'tls: (absent) -> {"enabled": true}'),
        ({"a": 1, "b": 2}, "size: 3 -> (absent), a: (absent) -> 1, and 1 more"),
    ],
)
def test_description_names_paths_with_both_values(after: dict[str, Any], text: str) -> None:
    assert described({"size": 3}, after) == text
