import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.kube.jsonpath import NO_MATCH, FieldPath, digest_of, parse_path, values_at

OBJECT = {
    "spec": {"a": 1, "b": {"x": "y"}, "c": [{"n": 1}, {"n": 2}], "none": None},
    "metadata": {"annotations": {"a.b/c": "v"}},
}


@pytest.mark.parametrize("document", [None, 5, "text", [], {}, {"spec": None}, {"spec": {"containers": 3}}])
def test_document_of_unexpected_shape_matches_nothing(document: object) -> None:
    assert values_at(parse_path("$.spec.containers[?(@.name > 3)].name"), document) == []


@pytest.mark.parametrize("text", ["", "$.a[", "$.a..", "$.a[?("])
def test_invalid_path_is_error_with_text(text: str) -> None:
    with pytest.raises(ValueError, match="not a JSONPath: " + re.escape(repr(text))):
        FieldPath.parse(text)


def test_path_is_parsed_once() -> None:
    assert parse_path("$.a.b") is parse_path("$.a.b")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("$.spec.a", [1]),
        ("spec.a", [1]),
        ("$.spec.b", [{"x": "y"}]),
        ("$.spec.b.x", ["y"]),
        ("$.spec.b.missing", []),
        ("$.spec.a.below_a_number", []),
        ("$.spec.none", [None]),
        ("$.spec.c[*].n", [1, 2]),
        ("$.spec.c[?(@.n > 1)].n", [2]),
        ('$.metadata.annotations."a.b/c"', ["v"]),
        ("$", [OBJECT]),
        ("$.metadata.annotations.*", ["v"]),
        ("$.metadata.annotations['a.b/c']", ["v"]),
        ("$.spec.c[0]", [{"n": 1}]),
        ("$.spec.c[?(@.n == 2)].n", [2]),
        ("$.spec.nothing.below", []),
    ],
)
def test_path_returns_matches_in_order(text: str, values: list[Any]) -> None:
    assert FieldPath.parse(text).values(OBJECT) == values
    assert values_at(parse_path(text), OBJECT) == values


def test_names_may_contain_dots() -> None:
    path = FieldPath.of_names("metadata", "annotations", "a.b/c")
    assert path.values(OBJECT) == ["v"]
    assert FieldPath.parse(path.text).values(OBJECT) == ["v"]


def test_paths_with_same_text_are_equal() -> None:
    assert len({FieldPath.parse("$.spec.a"), FieldPath.parse("$.spec.a"), FieldPath.parse("$.spec.b")}) == 2


@pytest.mark.parametrize(
    ("text", "fingerprint"),
    [("$.spec.a", 1), ("$.spec.missing", NO_MATCH), ("$.spec.none", None), ("$.spec.b.x", "y")],
)
def test_fingerprint_of_scalar_is_scalar(text: str, fingerprint: object) -> None:
    assert FieldPath.parse(text).fingerprint(OBJECT) == fingerprint


@pytest.mark.parametrize("text", ["$.spec.b", "$.spec.c[*].n"])
def test_fingerprint_of_structure_is_digest(text: str) -> None:
    assert len(FieldPath.parse(text).fingerprint(OBJECT)) == 16


def test_digest_does_not_depend_on_key_order() -> None:
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1}) != digest_of({"a": 1, "b": 3})


NAMES = st.sampled_from(["a", "b", "c"])
DOCUMENTS = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.dictionaries(NAMES, inner) | st.lists(inner, max_size=2),
    max_leaves=12,
)


@given(st.dictionaries(NAMES, DOCUMENTS), st.lists(NAMES, min_size=1, max_size=4))
def test_plain_path_equals_library(document: dict[str, Any], names: list[str]) -> None:
    text = "$." + ".".join(names)
    assert FieldPath.parse(text).values(document) == values_at(parse_path(text), document)


def test_fingerprint_of_long_string_is_digest() -> None:
    path = FieldPath.parse("$.spec.text")
    one, other = (path.fingerprint({"spec": {"text": "x" * 100_000 + end}}) for end in "ab")
    assert one == path.fingerprint({"spec": {"text": "x" * 100_000 + "a"}}) != other
    assert len(one) == 16
