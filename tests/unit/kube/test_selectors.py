from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.kube.selectors import (
    LabelSelector,
    field_requirement,
    field_requirements,
    qualified_name_problem,
    selects,
)


def expression(operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "tier", "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("raw", "labels", "matches"),
    [
        (None, {}, True),
        ({}, {"a": "b"}, True),
        ({"matchLabels": {"a": "b"}}, {"a": "b", "c": "d"}, True),
        ({"matchLabels": {"a": "b"}}, {"a": "c"}, False),
        ({"matchLabels": {"a": "b"}}, {}, False),
        ({"matchLabels": {"a": "b", "c": "d"}}, {"a": "b"}, False),
        (expression("In", "web", "db"), {"tier": "db"}, True),
        (expression("In", "web", "db"), {"tier": "cache"}, False),
        (expression("In", "web", "db"), {}, False),
        (expression("NotIn", "web"), {"tier": "db"}, True),
        (expression("NotIn", "web"), {"tier": "web"}, False),
        (expression("NotIn", "web"), {}, True),
        (expression("Exists"), {"tier": ""}, True),
        (expression("Exists"), {}, False),
        (expression("DoesNotExist"), {}, True),
        (expression("DoesNotExist"), {"tier": "web"}, False),
        ({"matchLabels": {"a": "b"}} | expression("Exists"), {"a": "b"}, False),
        ({"matchLabels": {"a": "b"}} | expression("Exists"), {"a": "b", "tier": "x"}, True),
    ],
)
def test_selector_matches_as_in_kubernetes(
    raw: Mapping[str, Any] | None, labels: dict[str, str], *, matches: bool
) -> None:
    assert LabelSelector.compile(raw).matches(labels) is matches


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (["a"], r"selector: expected a mapping, found \['a'\]"),
        ({"matchlabels": {}}, "selector: expected matchLabels and matchExpressions, found 'matchlabels'"),
        ({"matchLabels": ["a"]}, "matchLabels: expected a mapping of strings"),
        ({"matchLabels": {"a": 1}}, "matchLabels: expected a string for 'a', found 1"),
        ({"matchLabels": {1: "a"}}, "matchLabels: expected strings as keys, found 1"),
        ({"matchExpressions": {}}, "matchExpressions: expected a list, found {}"),
        ({"matchExpressions": ["a"]}, r"matchExpressions\[0\]: expected a mapping, found 'a'"),
        (
            {"matchExpressions": [{"operator": "Exists"}]},
            r"matchExpressions\[0\].key: expected a label key, found None",
        ),
        (expression("Contains", "a"), "operator: expected one of In, NotIn, Exists, DoesNotExist, found 'Contains'"),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": "b"}]}, "values: expected a list of strings"),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": [1]}]}, "values: expected a list of strings"),
        (expression("In"), "values: expected at least one value for In"),
        (expression("Exists", "a"), "values: expected no values for Exists"),
    ],
)
def test_invalid_selector_is_rejected_with_key_and_value(raw: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LabelSelector.compile(raw)


KEYS = st.sampled_from(["team", "example.com/team", "tier"])
VALUES = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3)
REQUIREMENTS = st.one_of(
    st.fixed_dictionaries({"key": KEYS, "operator": st.sampled_from(["In", "NotIn"]), "values": VALUES}),
    st.fixed_dictionaries({"key": KEYS, "operator": st.sampled_from(["Exists", "DoesNotExist"])}),
)


@given(st.lists(REQUIREMENTS, max_size=4), st.lists(REQUIREMENTS, max_size=4), st.randoms())
def test_text_of_a_selector_is_the_same_only_for_equal_requirements(one: Any, other: Any, random: Any) -> None:
    def text(requirements: Any) -> str:
        return LabelSelector.compile({"matchExpressions": requirements}).text

    shuffled = [each | ({"values": each["values"][::-1]} if "values" in each else {}) for each in one]
    random.shuffle(shuffled)
    assert text(one) == text([*shuffled, *shuffled])
    meanings = [
        {(each["key"], each["operator"], frozenset(each.get("values", ()))) for each in requirements}
        for requirements in (one, other)
    ]
    assert (text(one) == text(other)) is (meanings[0] == meanings[1])


@pytest.mark.parametrize("name", ["a/b", "a", "example.com/a.b_C-1", "x" * 63, f"{'a' * 253}/b"])
def test_name_that_the_api_server_accepts_is_qualified(name: str) -> None:
    assert qualified_name_problem(name) == ""


@pytest.mark.parametrize(
    "name", ["", "/", "a/", "/a", "a/b/c", "a b", "x" * 64, "A.com/x", f"{'a' * 254}/b", "-a", "a_", "ä/b", "a/b\n"]
)
def test_name_that_the_api_server_rejects_is_not_qualified(name: str) -> None:
    assert qualified_name_problem(name)


@pytest.mark.parametrize("labels", [{"a b": "c"}, {"a": "b c"}, {"a": "x" * 64}, {"a": "-"}, {"a": "b,c=d"}])
def test_label_that_no_object_can_have_is_rejected(labels: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="expected at most 63 letters"):
        LabelSelector.compile({"matchLabels": labels})


@given(st.text(), st.text())
def test_requirement_of_any_value_selects_exactly_it(value: str, other: str) -> None:
    text = field_requirement("metadata.name", value)
    assert field_requirements(text) == [("metadata.name", "=", value)]
    assert field_requirements(f"a!=b,{text}") == [("a", "!=", "b"), ("metadata.name", "=", value)]
    for name in (value, other):
        assert selects({"metadata": {"name": name}}, "", text) is (name == value)


@pytest.mark.parametrize("text", ["name", "=x", "a=b=c", r"a=b\c", "a=b,c"])
def test_malformed_field_selector_is_invalid(text: str) -> None:
    with pytest.raises(ValueError, match="not a requirement of a field selector"):
        field_requirements(text)
