from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.runner.controller.store import Outline, summarize_fields
from tests.unit.json_values import JSON

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
def test_the_fields_that_changed_are_named_to_the_second_level(changes: dict[str, Any], fields: list[str]) -> None:
    assert Outline.of(WEB).changed_fields(Outline.of(WEB | changes)) == fields


def test_objects_of_one_shape_share_their_names() -> None:
    other = WEB | {"status": {"phase": "Running"}}
    assert Outline.of(WEB).names is Outline.of(other).names


def test_a_few_names_are_told_and_how_many_more_there_are() -> None:
    assert summarize_fields(["a", "b"]) == "a, b"
    assert summarize_fields(list("abcdefg")) == "a, b, c, d, e and 2 more"


@given(st.dictionaries(st.text(), JSON, max_size=4), st.dictionaries(st.text(), JSON, max_size=4))
def test_no_object_is_too_odd(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert Outline.of(one).changed_fields(Outline.of(one)) == []
    assert Outline.of(one).changed_fields(Outline.of(other)) == Outline.of(other).changed_fields(Outline.of(one))


def test_the_names_of_an_outline_are_limited_whatever_an_object_has() -> None:
    many = {f"key-{number}" * 40: "x" for number in range(10_000)}
    outline = Outline.of({"data": many, **many})
    assert len(outline.names) <= 256
    assert max(map(len, outline.names)) <= 128
    assert outline.changed_fields(Outline.of({"data": many | {"more": "y"}, **many})) == ["data"]
