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
