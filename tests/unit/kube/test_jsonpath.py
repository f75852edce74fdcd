from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.kube.jsonpath import NO_MATCH, FieldPath, digest_of, parse_path, values_at

POD = {
    "spec": {"containers": [{"name": "a"}, {"name": "b"}]},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]},
    "metadata": {"labels": {"app.kubernetes.io/name": "web"}},
}


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("$.spec.containers[*].name", ["a", "b"]),
        ("$.spec.containers[0]", [{"name": "a"}]),
        ('$.status.conditions[?(@.type == "Ready")].status', ["True"]),
        ("$.metadata.labels['app.kubernetes.io/name']", ["web"]),
        ("$.spec.nothing", []),
        ("$.spec.nothing.below", []),
    ],
)
def test_a_path_gives_all_that_it_matches_in_order(path: str, values: list[object]) -> None:
    assert values_at(parse_path(path), POD) == values


@pytest.mark.parametrize("document", [None, 5, "text", [], {}, {"spec": None}, {"spec": {"containers": 3}}])
def test_a_document_of_another_shape_matches_nothing(document: object) -> None:
    assert values_at(parse_path("$.spec.containers[?(@.name > 3)].name"), document) == []


@pytest.mark.parametrize("text", ["", "$.a[", "$.a..", "$.a[?("])
def test_what_is_no_path_is_an_error_that_shows_it(text: str) -> None:
    with pytest.raises(ValueError, match="not a JSONPath") as raised:
        parse_path(text)
    assert repr(text) in str(raised.value)


def test_a_path_is_parsed_once() -> None:
    assert parse_path("$.a.b") is parse_path("$.a.b")


OBJECT = {
    "spec": {"a": 1, "b": {"x": "y"}, "c": [{"n": 1}, {"n": 2}], "none": None},
    "metadata": {"annotations": {"a.b/c": "v"}},
}


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
    ],
)
def test_a_path_gives_what_it_matches(text: str, values: list[Any]) -> None:
    assert FieldPath.parse(text).values(OBJECT) == values


def test_names_may_contain_dots() -> None:
    path = FieldPath.of_names("metadata", "annotations", "a.b/c")
    assert path.values(OBJECT) == ["v"]
    assert FieldPath.parse(path.text).values(OBJECT) == ["v"]


def test_paths_of_the_same_text_are_one_path() -> None:
    assert len({FieldPath.parse("$.spec.a"), FieldPath.parse("$.spec.a"), FieldPath.parse("$.spec.b")}) == 2


def test_a_bad_path_is_refused_with_its_text() -> None:
    with pytest.raises(ValueError, match=r"\$\.spec\[\["):
        FieldPath.parse("$.spec[[")


@pytest.mark.parametrize(
    ("text", "fingerprint"),
    [("$.spec.a", 1), ("$.spec.missing", NO_MATCH), ("$.spec.none", None), ("$.spec.b.x", "y")],
)
def test_the_fingerprint_of_a_scalar_is_the_scalar(text: str, fingerprint: object) -> None:
    assert FieldPath.parse(text).fingerprint(OBJECT) == fingerprint


@pytest.mark.parametrize("text", ["$.spec.b", "$.spec.c[*].n"])
def test_the_fingerprint_of_more_than_a_scalar_is_a_digest(text: str) -> None:
    assert len(FieldPath.parse(text).fingerprint(OBJECT)) == 16


def test_digests_do_not_depend_on_the_order_of_keys() -> None:
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1}) != digest_of({"a": 1, "b": 3})


NAMES = st.sampled_from(["a", "b", "c"])
DOCUMENTS = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.dictionaries(NAMES, inner) | st.lists(inner, max_size=2),
    max_leaves=12,
)


@given(st.dictionaries(NAMES, DOCUMENTS), st.lists(NAMES, min_size=1, max_size=4))
def test_plain_paths_give_what_the_library_would_give(document: dict[str, Any], names: list[str]) -> None:
    text = "$." + ".".join(names)
    assert FieldPath.parse(text).values(document) == values_at(parse_path(text), document)


def test_the_fingerprint_of_a_long_text_is_small_and_tells_texts_apart() -> None:
    path = FieldPath.parse("$.spec.text")
    one, other = (path.fingerprint({"spec": {"text": "x" * 100_000 + end}}) for end in "ab")
    assert one == path.fingerprint({"spec": {"text": "x" * 100_000 + "a"}}) != other
    assert len(one) == 16
