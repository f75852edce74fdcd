"""Decoding and encoding of request and response bodies in JSON, YAML and protobuf.

A body in another format, or a malformed one, is not an error: it decodes to None. The caller then forwards it
unchanged, because validation is up to the API server. YAML is decoded as the API server does it: timestamps stay
strings.
"""

import json
import zlib
from collections.abc import Iterator
from typing import Any, Final

import yaml

from rolecall.kube.metadata import metadata_of
from rolecall.kube.references import RawObject
from rolecall.proxy.writes import protobuf

_READABLE: Final = ("", "application/json", "application/yaml")
_READABLE_SUFFIXES: Final = ("+json", "+yaml")
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
    """Return the content of a body, None for an unsupported format or a malformed body."""
    if not is_readable(content_type):
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return _decode_yaml(body) if "yaml" in content_type.lower() else None


def _decode_yaml(body: bytes) -> Any:
    try:
        return yaml.load(body, Loader=_Loader)  # noqa: S506 - the loader is a safe one
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


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


def decompress(body: bytes) -> bytes:
    """Return a body without gzip compression, an empty one if decompression fails."""
    if not body.startswith(b"\x1f\x8b"):
        return body
    try:
        return zlib.decompress(body, wbits=zlib.MAX_WBITS | 16)
    except zlib.error:
        return b""
