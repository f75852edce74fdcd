from typing import Any

import pytest

from rolecall.kube.json_values import all_values, texts_in, with_texts

VALUE: dict[str, Any] = {"a": ["x", {"b": "y"}, 1, None], "c": "z", "d": {}}


def test_values_come_in_their_order_at_any_depth() -> None:
    assert list(all_values(VALUE)) == [VALUE, VALUE["a"], "x", {"b": "y"}, "y", 1, None, "z", {}]
    assert list(texts_in(VALUE)) == ["x", "y", "z"]


def test_deep_value_needs_no_recursion() -> None:
    deep: Any = "text"
    for _ in range(50_000):
        deep = [deep]
    assert list(texts_in(deep)) == ["text"]


@pytest.mark.parametrize(
    ("with_keys", "expected"),
    [
        (False, {"a": ["X", {"b": "Y"}, 1, None], "c": "Z", "d": {}}),
        (True, {"A": ["X", {"B": "Y"}, 1, None], "C": "Z", "D": {}}),
    ],
)
def test_copy_has_other_strings(expected: object, *, with_keys: bool) -> None:
    assert with_texts(VALUE, str.upper, with_keys=with_keys) == expected
    assert VALUE["c"] == "z"
    assert with_texts(("x",), str.upper) == ["X"]
