"""Decoding and encoding of request and response bodies in JSON, YAML and protobuf.

A body in another format, a malformed one, or one in YAML beyond its limit is not an error: it decodes to None. The
caller then forwards it unchanged, because validation is up to the API server. YAML is decoded as the API server does
it: timestamps stay strings.
"""

import itertools
import json
import math
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import yaml

from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import RawObject
from rolecall.runner.proxy import protobuf
from rolecall.runner.proxy.body_worker import GZIP_MAGIC, MAX_INSPECTED_BYTES

MAX_YAML_BYTES: Final = 1 << 20
"""The limit of a body in YAML, also when its aliases are expanded: YAML is decoded a hundred times slower than JSON."""

_READABLE: Final = ("", "application/json", "application/yaml")
_READABLE_SUFFIXES: Final = ("+json", "+yaml")
_DECODER: Final = json.JSONDecoder()
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"


class _Loader(yaml.SafeLoader):
    """Loads YAML without converting strings that look like dates."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def media_type(content_type: str) -> str:
    """Return a Content-Type without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def is_readable(content_type: str) -> bool:
    """Return whether ``decode`` supports this Content-Type."""
    found = media_type(content_type)
    return found in _READABLE or found.endswith(_READABLE_SUFFIXES)


def decode(body: bytes, content_type: str) -> Any:
    """Return the content of a body, None for an unsupported format, a malformed body or one beyond its limit."""
    if not is_readable(content_type) or len(body) > MAX_INSPECTED_BYTES:
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return _decode_yaml(body) if "yaml" in content_type.lower() else None


def _decode_yaml(body: bytes) -> Any:
    if len(body) > MAX_YAML_BYTES:
        return None
    try:
        loader = _Loader(body)
        node = loader.get_single_node()
        if node is None or _expanded_length(node, {}) > MAX_YAML_BYTES:
            return None
        return loader.construct_document(node)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def _expanded_length(node: yaml.Node, known: dict[int, float]) -> float:
    """Return how many characters a node has when each alias is replaced by its content: infinitely many in a cycle."""
    if isinstance(node, yaml.ScalarNode):
        return len(node.value) + 1
    length = known.get(id(node))
    if length is None:
        known[id(node)] = math.inf
        below = node.value if isinstance(node, yaml.SequenceNode) else itertools.chain.from_iterable(node.value)
        length = known[id(node)] = 1 + sum(_expanded_length(child, known) for child in below)
    return length


def decode_list(body: bytes, visit: Callable[[RawObject], None]) -> RawObject | None:
    """Call ``visit`` with each object of a list or Table in JSON, and return the rest, None for a malformed body."""
    try:
        return _read_members(body.decode(), visit)
    except (ValueError, IndexError, RecursionError):
        return None


def _read_members(text: str, visit: Callable[[RawObject], None]) -> RawObject:
    rest: RawObject = {}
    at = _expect(text, _skip(text, 0), "{")
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        at = _skip(text, _expect(text, _skip(text, at), ":"))
        if name in {"items", "rows"} and text[at] == "[":
            at = _read_objects(text, at + 1, visit)
        else:
            rest[name], at = _DECODER.raw_decode(text, at)
        at = _next(text, at, "}")
    return rest


def _read_objects(text: str, at: int, visit: Callable[[RawObject], None]) -> int:
    """Visit the objects of the list that begins here and return the position behind it."""
    at = _skip(text, at)
    while text[at] != "]":
        value, at = _DECODER.raw_decode(text, at)
        obj = value.get("object", value) if isinstance(value, dict) and "cells" in value else value
        if isinstance(obj, dict):
            visit(obj)
        at = _next(text, at, "]")
    return at + 1


def _skip(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at


def _expect(text: str, at: int, character: str) -> int:
    if text[at] != character:
        raise ValueError(f"found {text[at]!r} at {at}, expected {character!r}")
    return _skip(text, at + 1)


def _next(text: str, at: int, end: str) -> int:
    """Return the position of the next element, or of the end."""
    at = _skip(text, at)
    return at if text[at] == end else _expect(text, at, ",")


def decode_object(body: bytes, content_type: str) -> RawObject | None:
    """Return the content of a body if it is an object, else None; for protobuf, only the metadata."""
    if media_type(content_type) == protobuf.MEDIA_TYPE:
        return protobuf.decode(body)
    content = decode(body, content_type)
    return content if isinstance(content, dict) else None


def encode(content: object) -> bytes:
    """Return JSON, which is also valid YAML. Raises TypeError or ValueError for content that JSON cannot represent."""
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()


def encode_changed(body: bytes, content_type: str, obj: RawObject, changed: RawObject) -> bytes:
    """Return the body for a changed object, in the format of the body that ``obj`` was decoded from.

    In protobuf, only added annotations and owner references are encoded. Raises TypeError or ValueError for content
    that cannot be encoded.
    """
    if media_type(content_type) != protobuf.MEDIA_TYPE:
        return encode(changed)
    before, after = metadata_of(obj), metadata_of(changed)
    annotations = dict((after.get("annotations") or {}).items() - (before.get("annotations") or {}).items())
    known = before.get("ownerReferences") or []
    references = [reference for reference in after.get("ownerReferences") or [] if reference not in known]
    return protobuf.add_to_metadata(body, annotations, references)


def objects_in(content: Any) -> Iterator[RawObject]:
    """Yield the objects in a response: the object itself, the items of a list, or the rows of a Table; not a Status."""
    if not isinstance(content, dict) or content.get("kind") == "Status":
        return
    if isinstance(content.get("rows"), list) and content.get("kind") == "Table":
        found = [row.get("object") for row in content["rows"] if isinstance(row, dict)]
    elif isinstance(content.get("items"), list) and str(content.get("kind")).endswith("List"):
        found = content["items"]
    else:
        found = [content]
    yield from (obj for obj in found if isinstance(obj, dict))


def decompress(body: bytes, limit: int) -> bytes | None:
    """Return a body without gzip compression, None if it is longer than the limit, an empty one if it is malformed."""
    if not body.startswith(GZIP_MAGIC):
        return body
    decompressor = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        found = decompressor.decompress(body, limit + 1)
    except zlib.error:
        return b""
    if len(found) > limit:
        return None
    return found if decompressor.eof else b""
