from typing import Any

import pytest

from rolecall.runner.runs.launcher import check_size, count_values


@pytest.mark.parametrize(
    ("value", "number"),
    [("text", 1), (None, 1), ([], 1), ({}, 1), ([1, 2], 3), ({"a": [1, {"b": 2}]}, 5)],
)
def test_values_are_counted_at_every_depth(value: Any, number: int) -> None:
    assert count_values(value) == number


def test_a_deeply_nested_object_can_be_counted() -> None:
    value: Any = 1
    for _ in range(50_000):
        value = [value]
    assert count_values(value) == 50_001


def test_an_object_with_too_many_values_is_refused_with_what_to_do() -> None:
    obj = {"metadata": {"name": "a"}, "spec": {"items": ["x"] * 2000}}
    with pytest.raises(ValueError, match=r"2,005 values.*at most 2,000.*--max-object-values"):
        check_size(obj, 2000)


def test_an_object_of_the_largest_size_is_accepted() -> None:
    check_size({"spec": {"items": ["x"] * 1997}}, 2000)


def test_managed_fields_do_not_count() -> None:
    check_size({"metadata": {"managedFields": [{}] * 3000}, "spec": {"items": ["x"] * 1990}}, 2000)


def test_zero_means_no_limit() -> None:
    check_size({"spec": {"items": ["x"] * 100_000}}, 0)
