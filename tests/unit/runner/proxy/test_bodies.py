import gzip
import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.runner.proxy.bodies import (
    MAX_YAML_BYTES,
    decode,
    decode_list,
    decode_object,
    decompress,
    encode,
    objects_in,
)
from tests.unit.json_values import JSON

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


@pytest.fixture
def bounded_memory() -> Iterator[None]:
    """Fail if more than 16 MiB are in use at any time."""
    tracemalloc.start()
    yield
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20


@pytest.mark.usefixtures("bounded_memory")
@pytest.mark.parametrize(
    "line",
    [
        "{below}: &{below} [*{above}, *{above}, *{above}]",
        "{below}: &{below} {{<<: [*{above}, *{above}, *{above}], x: 1}}",
    ],
    ids=["sequences", "merge keys"],
)
def test_aliases_that_expand_to_megabytes_are_refused_before_they_do(line: str) -> None:
    lines = ["a0: &a0 {k: v}"]
    lines += [line.format(below=f"a{number}", above=f"a{number - 1}") for number in range(1, 30)]
    assert decode("\n".join(lines).encode(), "application/yaml") is None


def test_a_few_aliases_are_content_as_any_other() -> None:
    body = b"a: &a {k: v}\nb: [*a, *a]\nc: {<<: *a, d: 1}"
    assert decode(body, "application/yaml") == {"a": {"k": "v"}, "b": [{"k": "v"}] * 2, "c": {"k": "v", "d": 1}}


def test_an_alias_of_itself_is_refused() -> None:
    assert decode(b"a: &a [*a]", "application/yaml") is None


def test_long_yaml_is_refused_but_long_json_of_the_same_type_is_not() -> None:
    text = "x" * MAX_YAML_BYTES
    assert decode(f"a: {text}".encode(), "application/yaml") is None
    assert decode(json.dumps({"a": text}).encode(), "application/yaml") == {"a": text}


@pytest.mark.usefixtures("bounded_memory")
def test_only_as_much_is_decompressed_as_the_limit_allows() -> None:
    packed = gzip.compress(bytes(4_000_000))
    assert decompress(packed, 4_000_000) == bytes(4_000_000)
    assert decompress(packed, 3_999_999) is None
    assert decompress(packed[:-9], 4_000_000) == b""
    assert decompress(b"\x1f\x8bnonsense", 100) == b""
    assert decompress(b"plain", 1) == b"plain"


@given(JSON, st.lists(JSON), st.sampled_from(["items", "rows"]), st.sampled_from([None, 1]))
def test_a_list_is_the_same_object_by_object(rest: Any, values: list[Any], name: str, indent: int | None) -> None:
    objects = [{"cells": [], "object": {"a": value}} if name == "rows" else {"a": value} for value in values]
    body = {"kind": "TableOrList", "metadata": {"resourceVersion": "1", "rest": rest}, name: objects, "z": rest}
    seen: list[Any] = []
    assert decode_list(json.dumps(body, indent=indent).encode(), seen.append) == {
        key: value for key, value in body.items() if key != name
    }
    assert seen == [{"a": value} for value in values]


@given(st.binary())
def test_a_malformed_list_is_none_and_does_not_raise(body: bytes) -> None:
    assert decode_list(b'{"items":[' + body, print) is None or body.rstrip().endswith(b"}")


@pytest.mark.parametrize("items", ["null", "[]", "[ ]", "[1, null]"])
def test_a_list_without_objects_is_the_rest(items: str) -> None:
    seen: list[Any] = []
    found = decode_list(f'{{"kind": "PodList", "items": {items}}}'.encode(), seen.append)
    assert found is not None
    assert found["kind"] == "PodList"
    assert seen == []
