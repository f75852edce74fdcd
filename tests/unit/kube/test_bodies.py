import gzip
import json
import math
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.kube.bodies import (
    MAX_YAML_BYTES,
    add_to_protobuf_metadata,
    decode,
    decode_list,
    decode_object,
    decode_protobuf,
    decompress,
    encode,
    objects_in,
)
from tests.unit.json_values import JSON

REFERENCE = {"apiVersion": "demo.example.com/v1", "kind": "Demo", "name": "one", "uid": "uid-of-one"}
YAML_SCALARS = {"a": "12:30", "b": math.inf, "c": 1000, "d": 15, "e": 8, "f": True, "g": "="}
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
        (b"a: !!python/object:os.system {}", "application/yaml", {"a": {}}),
        (b'{"a":1}', "application/vnd.kubernetes.protobuf", None),
        (b"\xff\xfe\xfd", "application/json", None),
        (b'{"a":"\xff"}', "application/json", {"a": "\ufffd"}),
        (b'{"a":"\xff"}', "application/yaml", None),
        (b'\xef\xbb\xbf{"a":1}', "application/json", None),
        (b'{"a":1}{"a":2}', "application/json", None),
        (b"a: 1\n---\na: 2", "application/yaml", {"a": 1}),
        (b"a: 12:30\nb: .inf\nc: 1e3\nd: 0o17\ne: 08\nf: y\ng: =", "application/yaml", YAML_SCALARS),
        (b"a: !!bool x", "application/yaml", None),
        (b'a: !!int ""', "application/yaml", None),
        (b"", "application/yaml", None),
        (b"[1]", "application/cbor", None),
    ],
)
def test_decode_supports_json_and_yaml_only(body: bytes, content_type: str, expected: Any) -> None:
    assert decode(body, content_type) == expected


@given(st.binary(), st.sampled_from(["application/json", "application/yaml", "application/apply-patch+yaml"]))
def test_decode_object_never_raises(body: bytes, content_type: str) -> None:
    assert decode_object(body, content_type) is None or isinstance(decode_object(body, content_type), dict)


Pairs = list[tuple[str, Any]]
PAIRS: st.SearchStrategy[Pairs] = st.recursive(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers()), max_size=3),
    lambda inner: st.lists(st.tuples(st.sampled_from("abc"), inner), max_size=3),
)


def text_of(pairs: Pairs | int, is_unique: list[bool]) -> str:
    """Return the JSON of an object with these keys, and append whether those of each object in it are unique."""
    if isinstance(pairs, int):
        return str(pairs)
    is_unique.append(len({key for key, _ in pairs}) == len(pairs))
    return "{" + ",".join(f'"{key}":{text_of(value, is_unique)}' for key, value in pairs) + "}"


def last_of(pairs: Pairs | int) -> Any:
    """Return the object with the last value of each key."""
    return pairs if isinstance(pairs, int) else {key: last_of(value) for key, value in pairs}


@given(PAIRS, st.sampled_from(["application/json", "application/yaml"]), st.sampled_from(["", "#\n"]))
def test_of_duplicate_keys_the_last_counts_unless_keys_must_be_unique(
    pairs: Pairs, content_type: str, comment: str
) -> None:
    is_unique: list[bool] = []
    body = (text_of(pairs, is_unique) + (comment if "yaml" in content_type else "")).encode()
    assert decode(body, content_type) == last_of(pairs)
    assert decode(body, content_type, unique=True) == (last_of(pairs) if all(is_unique) else None)


@pytest.mark.parametrize("body", [b"[1]", b"1", b"null", b'"text"'])
def test_only_mapping_is_object(body: bytes) -> None:
    assert decode_object(body, "application/json") is None


@pytest.mark.parametrize(
    ("response", "expected"),
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
def test_objects_in_response_are_itself_items_or_rows(response: Any, expected: list[Any]) -> None:
    assert list(objects_in(response)) == expected


def test_invalid_unicode_is_preserved() -> None:
    assert decode(encode({"a": "\ud800"}), "application/json") == {"a": "\ud800"}


def test_encode_rejects_nan() -> None:
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
def test_yaml_with_exponential_aliases_is_rejected_in_bounded_memory(line: str) -> None:
    lines = ["a0: &a0 {k: v}"]
    lines += [line.format(below=f"a{number}", above=f"a{number - 1}") for number in range(1, 30)]
    assert decode("\n".join(lines).encode(), "application/yaml") is None


def test_few_aliases_are_expanded() -> None:
    body = b"a: &a {k: v}\nb: [*a, *a]\nc: {<<: *a, d: 1}"
    assert decode(body, "application/yaml") == {"a": {"k": "v"}, "b": [{"k": "v"}] * 2, "c": {"k": "v", "d": 1}}


def test_recursive_alias_is_rejected() -> None:
    assert decode(b"a: &a [*a]", "application/yaml") is None


def test_limit_of_yaml_does_not_apply_to_json() -> None:
    text = "x" * MAX_YAML_BYTES
    assert decode(f"a: {text}".encode(), "application/yaml") is None
    assert decode(json.dumps({"a": text}).encode(), "application/yaml") == {"a": text}


@pytest.mark.usefixtures("bounded_memory")
def test_decompression_is_limited() -> None:
    packed = gzip.compress(bytes(4_000_000))
    assert decompress(packed, 4_000_000) == bytes(4_000_000)
    assert decompress(packed, 3_999_999) is None
    assert decompress(packed[:-9], 4_000_000) == b""
    assert decompress(b"\x1f\x8bnonsense", 100) == b""
    assert decompress(b"plain", 1) == b"plain"


@given(JSON, st.lists(JSON), st.sampled_from(["items", "rows"]), st.sampled_from([None, 1]))
def test_decode_list_visits_objects_and_returns_the_rest(
    rest: Any, values: list[Any], name: str, indent: int | None
) -> None:
    objects = [{"cells": [], "object": {"a": value}} if name == "rows" else {"a": value} for value in values]
    body = {"kind": "TableOrList", "metadata": {"resourceVersion": "1", "rest": rest}, name: objects, "z": rest}
    seen: list[Any] = []
    assert decode_list(json.dumps(body, indent=indent).encode(), seen.append) == {
        key: value for key, value in body.items() if key != name
    }
    assert seen == [{"a": value} for value in values]


@given(st.binary())
def test_malformed_list_is_none(body: bytes) -> None:
    assert decode_list(b'{"items":[' + body, print) is None or body.rstrip().endswith(b"}")


@pytest.mark.parametrize("items", ["null", "[]", "[ ]", "[1, null]"])
def test_list_without_objects_is_returned(items: str) -> None:
    seen: list[Any] = []
    found = decode_list(f'{{"kind": "PodList", "items": {items}}}'.encode(), seen.append)
    assert found is not None
    assert found["kind"] == "PodList"
    assert seen == []


# The body of `kubectl create configmap cm --from-literal=a=1 -n ns`: envelope, metadata, data.
PROTOBUF = (
    b'k8s\x00\n\x0f\n\x02v1\x12\tConfigMap\x12\x1e\n\x14\n\x02cm\x12\x00\x1a\x02ns"\x00*\x002\x008\x00B\x00'
    b'\x12\x06\n\x01a\x12\x011\x1a\x00"\x00'
)


def test_protobuf_has_name_and_namespace() -> None:
    assert decode_protobuf(PROTOBUF) == {"metadata": {"name": "cm", "namespace": "ns"}}


def test_additions_to_protobuf_keep_other_fields() -> None:
    controller = REFERENCE | {"uid": "u2", "controller": True, "blockOwnerDeletion": True}
    changed = add_to_protobuf_metadata(PROTOBUF, {"note": "ä" * 200}, [REFERENCE])
    changed = add_to_protobuf_metadata(changed, {"note": "new"}, [controller])
    assert decode_protobuf(changed) == {
        "metadata": {
            "name": "cm",
            "namespace": "ns",
            "annotations": {"note": "new"},
            "ownerReferences": [REFERENCE, controller],
        }
    }
    assert b"\x12\x06\n\x01a\x12\x011" in changed
    assert changed.startswith(PROTOBUF[:4])


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"k8s\x00\xff", b"k8s\x00\x12\x7f", b"k8s\x00\x1a\x04gzip", PROTOBUF[:-12]]
)
def test_malformed_protobuf_is_none_or_empty(body: bytes) -> None:
    assert decode_protobuf(body) in (None, {"metadata": {}})


@given(st.binary())
def test_decode_protobuf_never_raises(body: bytes) -> None:
    decode_protobuf(b"k8s\x00" + body)


@given(st.dictionaries(st.text(min_size=1), st.text()), st.text())
def test_any_string_survives_in_protobuf(annotations: dict[str, str], name: str) -> None:
    reference = REFERENCE | {"name": name}
    found = decode_protobuf(add_to_protobuf_metadata(PROTOBUF, annotations, [reference]))
    assert found is not None
    assert found["metadata"].get("annotations", {}) == annotations
    assert found["metadata"]["ownerReferences"] == [reference]
