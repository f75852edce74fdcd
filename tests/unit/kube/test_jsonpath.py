import pytest

from rolecall.kube.jsonpath import parse_path, values_at

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
