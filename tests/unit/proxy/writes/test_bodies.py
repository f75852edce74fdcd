from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.proxy.writes.bodies import decode, decode_object, encode, objects_in

ONE, TWO = {"metadata": {"name": "one"}}, {"metadata": {"name": "two"}}


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (b'{"a":1}', "application/json", {"a": 1}),
        (b'{"a":1}', "", {"a": 1}),
        (b'{"a":1}', "Application/JSON; charset=utf-8", {"a": 1}),
        (b"a: 1", "application/json", None),
        (b"a: 1", "application/yaml", {"a": 1}),
        (b"a: 1", "application/apply-patch+yaml", {"a": 1}),
        (
            b"a: 2020-01-02\nb: 2020-01-02T03:04:05Z",
            "application/yaml",
            {"a": "2020-01-02", "b": "2020-01-02T03:04:05Z"},
        ),
        (b"a: !!python/object:os.system {}", "application/yaml", None),
        (b'{"a":1}', "application/vnd.kubernetes.protobuf", None),
        (b"\xff\xfe\xfd", "application/json", None),
    ],
)
def test_json_and_yaml_are_read_and_everything_else_is_none(body: bytes, content_type: str, expected: Any) -> None:
    assert decode(body, content_type) == expected


@given(st.binary(), st.sampled_from(["application/json", "application/yaml", "application/apply-patch+yaml"]))
def test_no_body_raises(body: bytes, content_type: str) -> None:
    assert decode_object(body, content_type) is None or isinstance(decode_object(body, content_type), dict)


@pytest.mark.parametrize("body", [b"[1]", b"1", b"null", b'"text"'])
def test_only_a_mapping_is_an_object(body: bytes) -> None:
    assert decode_object(body, "application/json") is None


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (ONE, [ONE]),
        ({"kind": "PodList", "items": [ONE, TWO]}, [ONE, TWO]),
        ({"kind": "Table", "rows": [{"object": ONE}, {"cells": []}]}, [ONE]),
        ({"kind": "ConfigMap", "items": [1], **ONE}, [{"kind": "ConfigMap", "items": [1], **ONE}]),
        ({"kind": "Status", "details": {"uid": "u"}}, []),
        ([ONE], []),
        (None, []),
        ("text", []),
    ],
)
def test_an_answer_holds_itself_or_its_items(answer: Any, expected: list[Any]) -> None:
    assert list(objects_in(answer)) == expected


def test_text_that_is_no_unicode_survives() -> None:
    assert decode(encode({"a": "\ud800"}), "application/json") == {"a": "\ud800"}


def test_numbers_that_json_does_not_know_are_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        encode({"a": float("nan")})
