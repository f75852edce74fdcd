from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.kube.selectors import LabelSelector, field_requirement, field_requirements, selects


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
