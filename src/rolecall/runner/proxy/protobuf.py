"""Kubernetes protobuf bodies, as far as owner injection needs them.

kubectl sends built-in kinds in this format. A body is an envelope around a message whose first field is the metadata;
this holds for every persisted kind. If a message contains a field twice, protobuf merges the two. So additions to the
metadata are appended, and the rest of the object does not have to be decoded.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from rolecall.kube.references import RawObject

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\x00"
_ENVELOPE_RAW, _ENVELOPE_ENCODING = 2, 3
_METADATA: Final = 1
_NAME, _NAMESPACE, _ANNOTATIONS, _OWNER_REFERENCES = 1, 3, 12, 13
_REFERENCE_STRINGS: Final = {1: "kind", 3: "name", 4: "uid", 5: "apiVersion"}
_REFERENCE_FLAGS: Final = {6: "controller", 7: "blockOwnerDeletion"}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_LENGTHS: Final = {_FIXED64: 8, _FIXED32: 4}
_MAX_VARINT_BITS: Final = 63

Value = bytes | int


def decode(body: bytes) -> RawObject | None:
    """Return an object's metadata (name, namespace, annotations, owner references), None for a malformed body."""
    try:
        return {"metadata": _decode_metadata(_object_message(_envelope(body)))}
    except (IndexError, ValueError, TypeError, AttributeError):
        return None


def add_to_metadata(body: bytes, annotations: dict[str, str], references: Iterable[dict[str, Any]]) -> bytes:
    """Return the body with these annotations and owner references added. Raises ValueError for a malformed body."""
    entries = (_string(1, name) + _string(2, value) for name, value in annotations.items())
    added = b"".join(_bytes(_ANNOTATIONS, entry) for entry in entries)
    added += b"".join(_bytes(_OWNER_REFERENCES, _encode_reference(reference)) for reference in references)
    fields = _envelope(body)
    raw = _object_message(fields) + _bytes(_METADATA, added)
    kept = b"".join(_bytes(number, value) for number, value in fields if number != _ENVELOPE_RAW)
    return _MAGIC + kept + _bytes(_ENVELOPE_RAW, raw)


def _envelope(body: bytes) -> list[tuple[int, bytes]]:
    if not body.startswith(_MAGIC):
        raise ValueError(f"found {body[:4]!r} at the start of the body, expected {_MAGIC!r}")
    return [(number, value) for number, value in _fields(body[len(_MAGIC) :]) if isinstance(value, bytes)]


def _object_message(envelope: list[tuple[int, bytes]]) -> bytes:
    fields = dict(envelope)
    if fields.get(_ENVELOPE_ENCODING):
        raise ValueError(f"found content encoding {fields[_ENVELOPE_ENCODING]!r}, expected none")
    return fields.get(_ENVELOPE_RAW, b"")


def _decode_metadata(raw: bytes) -> dict[str, Any]:
    message = b"".join(value for number, value in _fields(raw) if number == _METADATA and isinstance(value, bytes))
    metadata: dict[str, Any] = {}
    for number, value in _fields(message):
        if not isinstance(value, bytes):
            continue
        if number in {_NAME, _NAMESPACE}:
            metadata["name" if number == _NAME else "namespace"] = value.decode()
        elif number == _ANNOTATIONS:
            entry = dict(_fields(value))
            metadata.setdefault("annotations", {})[_decode_string(entry.get(1, b""))] = _decode_string(
                entry.get(2, b"")
            )
        elif number == _OWNER_REFERENCES:
            metadata.setdefault("ownerReferences", []).append(_decode_reference(value))
    return metadata


def _decode_reference(message: bytes) -> dict[str, Any]:
    fields = dict(_fields(message))
    strings = {name: _decode_string(fields[number]) for number, name in _REFERENCE_STRINGS.items() if number in fields}
    return strings | {name: bool(fields[number]) for number, name in _REFERENCE_FLAGS.items() if number in fields}


def _decode_string(value: Value) -> str:
    if isinstance(value, int):
        raise ValueError(f"found the number {value!r}, expected a string")  # noqa: TRY004 - the input is invalid
    return value.decode()


def _fields(message: bytes) -> Iterator[tuple[int, Value]]:
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


def _string(number: int, value: str) -> bytes:
    return _bytes(number, value.encode())


def _encode_reference(reference: dict[str, Any]) -> bytes:
    strings = b"".join(_string(number, str(reference.get(name, ""))) for number, name in _REFERENCE_STRINGS.items())
    flags = (_varint(number << 3) + _varint(1) for number, name in _REFERENCE_FLAGS.items() if reference.get(name))
    return strings + b"".join(flags)
