"""Bodies of requests to the API server, and of its responses: decoding and encoding in JSON, YAML, and protobuf.

A body in an unsupported format, a malformed one, or YAML beyond its limit is not an error: it decodes to None. The
caller then forwards it unchanged, because validation is up to the API server. YAML is decoded as the API server does
it: timestamps stay strings.

kubectl sends built-in kinds as protobuf, which is decoded only as required for owner injection. A body is an envelope
around a message whose first field is the metadata; this applies to every persisted kind. If a message contains a field
twice, protobuf merges the two. So additions to the metadata are appended, and the rest of the object isn't decoded.
"""

import itertools
import json
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Final

import yaml

from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import RawObject

MAX_INSPECTED_BYTES: Final = 8 << 20
"""The limit of decoded bodies, before and after decompression."""

GZIP_MAGIC: Final = b"\x1f\x8b"

MAX_YAML_BYTES: Final = 1 << 20
"""The limit of YAML, also with its aliases expanded: decoding it is a hundred times slower than decoding JSON."""

_READABLE: Final = ("", "application/json", "application/yaml")
_READABLE_SUFFIXES: Final = ("+json", "+yaml")
_DECODER: Final = json.JSONDecoder()

PROTOBUF_MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\x00"
_ENVELOPE_RAW, _ENVELOPE_ENCODING = 2, 3
_METADATA: Final = 1
_DELETE_OPTIONS, _DRY_RUN = 2, 5
_NAMES: Final = {1: "name", 3: "namespace"}
_ANNOTATIONS, _OWNER_REFERENCES = 12, 13
_REFERENCE_STRINGS: Final = {1: "kind", 3: "name", 4: "uid", 5: "apiVersion"}
_REFERENCE_FLAGS: Final = {6: "controller", 7: "blockOwnerDeletion"}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_LENGTHS: Final = {_FIXED64: 8, _FIXED32: 4}
_MAX_VARINT_BITS: Final = 63

_TAG: Final = "tag:yaml.org,2002:"
_KEPT_TAGS: Final = ("null", "bool", "int", "str", "seq", "map")
_PLAIN_SCALARS: Final = {
    "null": r"~|null|Null|NULL|",
    "bool": r"[yYnN]|yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF",
    "int": r"[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|0o[0-7_]+|[1-9][0-9_]*)",
    "float": r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
    "merge": r"<<",
}
_INTEGRAL_BELOW: Final = 1e21
"""From this value on, Go writes floats without a fraction with an exponent."""


def media_type(content_type: str) -> str:
    """Return a Content-Type without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def decode(body: bytes, content_type: str, *, unique: bool = False) -> Any:
    """Return the content of a body, None if its format is unsupported, or if it is malformed or beyond its limit.

    Of a key that an object has twice, the last value counts; with ``unique``, such a body is malformed.
    """
    found = media_type(content_type)
    if not (found in _READABLE or found.endswith(_READABLE_SUFFIXES)) or len(body) > MAX_INSPECTED_BYTES:
        return None
    is_yaml = "yaml" in content_type.lower()
    try:
        # In JSON, the API server replaces what isn't UTF-8, and rejects a byte order mark.
        text = body.decode(errors="strict" if is_yaml else "replace")
        return json.loads(text, object_pairs_hook=_without_duplicates if unique else None)
    except (ValueError, RecursionError):
        return _decode_yaml(body, unique=unique) if is_yaml else None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("found a key twice")
    return found


def _decode_yaml(body: bytes, *, unique: bool) -> Any:
    if len(body) > MAX_YAML_BYTES:
        return None
    try:
        loader = (_UniqueLoader if unique else YamlLoader)(body)
        node = loader.get_node() if loader.check_node() else None  # the API server reads only the first document
        if node is None or _expanded_length(node, {}) > MAX_YAML_BYTES:
            return None
        return loader.construct_document(node)
    except (yaml.YAMLError, ValueError, LookupError, RecursionError):  # PyYAML's own for !!bool x and !!int ""
        return None


def _expanded_length(node: yaml.Node, known: dict[int, float]) -> float:
    """Return the number of characters of a node with each alias replaced by its content: infinite in a cycle."""
    if isinstance(node, yaml.ScalarNode):
        return len(node.value) + 1
    length = known.get(id(node))
    if length is None:
        known[id(node)] = math.inf
        below = node.value if isinstance(node, yaml.SequenceNode) else itertools.chain.from_iterable(node.value)
        length = known[id(node)] = 1 + sum(_expanded_length(child, known) for child in below)
    return length


class YamlLoader(yaml.SafeLoader):
    """Loads YAML as programs in Go do, for example the API server.

    This is YAML 1.1 with differences: ``y`` and ``n`` are booleans, dates and ``12:30`` are strings, ``1e3`` is an
    integer, and unknown tags are ignored.
    """

    bool_values: ClassVar = yaml.SafeLoader.bool_values | {"y": True, "n": False}

    def construct_number(self, node: yaml.ScalarNode) -> float:
        """Return a number; a float without a fraction is an integer, as in JSON written by Go."""
        number: float = self.construct_yaml_float(node)
        return int(number) if number.is_integer() and abs(number) < _INTEGRAL_BELOW else number


class _UniqueLoader(YamlLoader):
    """Loads YAML without duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        _without_duplicates([(str(key.value), None) for key, _ in node.value])
        return super().construct_mapping(node, deep)


YamlLoader.yaml_implicit_resolvers = {
    None: [(_TAG + name, re.compile(rf"(?:{pattern})\Z")) for name, pattern in _PLAIN_SCALARS.items()]
}
YamlLoader.yaml_constructors = {
    **{_TAG + name: yaml.SafeLoader.yaml_constructors[_TAG + name] for name in _KEPT_TAGS},
    _TAG + "float": YamlLoader.construct_number,
    _TAG + "binary": lambda loader, node: loader.construct_yaml_binary(node).decode(errors="replace"),
    None: lambda loader, node: getattr(loader, f"construct_{node.id}")(node),
}


def decode_list(body: bytes, visit: Callable[[RawObject], None]) -> RawObject | None:
    """Call ``visit`` with each object of a list or Table in JSON, and return the rest, None for a malformed body."""
    rest: RawObject = {}
    try:
        text = body.decode()
        at = _expect(text, _skip(text, 0), "{")
        while text[at] != "}":
            name, at = _DECODER.raw_decode(text, at)
            at = _skip(text, _expect(text, _skip(text, at), ":"))
            if name in {"items", "rows"} and text[at] == "[":
                at = _read_objects(text, at + 1, visit)
            else:
                rest[name], at = _DECODER.raw_decode(text, at)
            at = _next(text, at, "}")
    except (ValueError, IndexError, RecursionError):
        return None
    return rest


def _read_objects(text: str, at: int, visit: Callable[[RawObject], None]) -> int:
    """Visit the objects of the list that starts here and return the position after it."""
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


def decode_object(body: bytes, content_type: str, *, unique: bool = False) -> RawObject | None:
    """Return the content of a body as ``decode`` does, if it is an object, else None; for protobuf, the metadata."""
    if media_type(content_type) == PROTOBUF_MEDIA_TYPE:
        return decode_protobuf(body)
    content = decode(body, content_type, unique=unique)
    return content if isinstance(content, dict) else None


def encode(content: object) -> bytes:
    """Return JSON, which is also valid YAML. Raises TypeError or ValueError for content that JSON cannot represent."""
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()


def encode_changed(body: bytes, content_type: str, obj: RawObject, changed: RawObject) -> bytes:
    """Return the body for a changed object, in the format of the body that ``obj`` was decoded from.

    In protobuf, only added annotations and owner references are encoded. Raises TypeError or ValueError for content
    that cannot be encoded.
    """
    if media_type(content_type) != PROTOBUF_MEDIA_TYPE:
        return encode(changed)
    before, after = metadata_of(obj), metadata_of(changed)
    annotations = dict((after.get("annotations") or {}).items() - (before.get("annotations") or {}).items())
    known = before.get("ownerReferences") or []
    references = [reference for reference in after.get("ownerReferences") or [] if reference not in known]
    return add_to_protobuf_metadata(body, annotations, references)


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


def decode_protobuf(body: bytes) -> RawObject | None:
    """Return an object's metadata (name, namespace, annotations, owner references), None for a malformed body."""
    try:
        message = b"".join(_values(_object_message(body), _METADATA))
        names = {name: _text(message, number) for number, name in _NAMES.items()}
        annotations = {_text(entry, 1): _text(entry, 2) for entry in _values(message, _ANNOTATIONS)}
        references = [_decode_reference(each) for each in _values(message, _OWNER_REFERENCES)]
    except (IndexError, ValueError):
        return None
    metadata = {**names, "annotations": annotations, "ownerReferences": references}
    return {"metadata": {name: value for name, value in metadata.items() if value}}


def decode_delete_options(body: bytes, content_type: str, *, is_eviction: bool) -> RawObject | None:
    """Return the DeleteOptions in the body of a deletion or eviction, None for an unreadable body.

    For protobuf, only ``dryRun``.
    """
    if media_type(content_type) != PROTOBUF_MEDIA_TYPE:
        content = decode_object(body, content_type)
        return (content.get("deleteOptions") or {}) if content is not None and is_eviction else content
    try:
        options = _object_message(body)
        if is_eviction:
            options = b"".join(_values(options, _DELETE_OPTIONS))
        return {"dryRun": [each.decode() for each in _values(options, _DRY_RUN)]}
    except (IndexError, ValueError):
        return None


def add_to_protobuf_metadata(body: bytes, annotations: dict[str, str], references: Iterable[dict[str, Any]]) -> bytes:
    """Return the body with these annotations and owner references added. Raises ValueError for a malformed body."""
    entries = (_bytes(1, name.encode()) + _bytes(2, value.encode()) for name, value in annotations.items())
    added = b"".join(_bytes(_ANNOTATIONS, entry) for entry in entries)
    added += b"".join(_bytes(_OWNER_REFERENCES, _encode_reference(reference)) for reference in references)
    raw = _object_message(body) + _bytes(_METADATA, added)
    fields = _fields(body[len(_MAGIC) :])
    others = (_bytes(number, each) for number, each in fields if number != _ENVELOPE_RAW and isinstance(each, bytes))
    return _MAGIC + b"".join(others) + _bytes(_ENVELOPE_RAW, raw)


def _object_message(body: bytes) -> bytes:
    if not body.startswith(_MAGIC):
        raise ValueError(f"found {body[:4]!r} at the start of the body, expected {_MAGIC!r}")
    envelope = body[len(_MAGIC) :]
    if encoding := _text(envelope, _ENVELOPE_ENCODING):
        raise ValueError(f"found content encoding {encoding!r}, expected none")
    return b"".join(_values(envelope, _ENVELOPE_RAW)[-1:])


def _decode_reference(message: bytes) -> dict[str, Any]:
    strings = {name: _text(message, number) for number, name in _REFERENCE_STRINGS.items()}
    fields = dict(_fields(message))
    return strings | {name: bool(fields[number]) for number, name in _REFERENCE_FLAGS.items() if number in fields}


def _values(message: bytes, number: int) -> list[bytes]:
    """Return the values of a field that is a string or a message, in order."""
    return [value for found, value in _fields(message) if found == number and isinstance(value, bytes)]


def _text(message: bytes, number: int) -> str:
    """Return the value of a field that is a string: the last one, an empty one if there is none."""
    return b"".join(_values(message, number)[-1:]).decode()


def _fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yield the number and value of each field in order. Raises ValueError or IndexError for a malformed message."""
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        number, wire_type = key >> 3, key & 7
        if wire_type == _VARINT:
            number_value, at = _read_varint(message, at)
            yield number, number_value
            continue
        length = _FIXED_LENGTHS.get(wire_type)
        if wire_type == _BYTES:
            length, at = _read_varint(message, at)
        if length is None or at + length > len(message):
            raise ValueError(f"field {number} of wire type {wire_type} exceeds the message")
        yield number, message[at : at + length]
        at += length


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, _MAX_VARINT_BITS + 1, 7):
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the high bit is set if another byte follows
            return value, at
    raise ValueError("found a varint of more than 64 bits")


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:  # noqa: PLR2004 - seven bits in a byte
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(value)) + value


def _encode_reference(reference: dict[str, Any]) -> bytes:
    texts = {number: str(reference.get(name, "")) for number, name in _REFERENCE_STRINGS.items()}
    strings = b"".join(_bytes(number, text.encode()) for number, text in texts.items())
    flags = (_varint(number << 3) + _varint(1) for number, name in _REFERENCE_FLAGS.items() if reference.get(name))
    return strings + b"".join(flags)
