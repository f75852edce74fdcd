"""Bodies of requests and answers: JSON, YAML and protobuf, and the objects that an answer holds.

A body that is in another format, or in none, is no error here: it reads as None, and whoever asked leaves the body as
it is, because the API server is the one to judge it. YAML is read as the API server reads it: times stay text.
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
    """Reads YAML without making dates of texts that look like dates."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def media_type(content_type: str) -> str:
    """Return a Content-Type without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def is_readable(content_type: str) -> bool:
    """Tell whether bodies of this Content-Type can be read here."""
    found = media_type(content_type)
    return found in _READABLE or found.endswith(_READABLE_SUFFIXES)


def decode(body: bytes, content_type: str) -> Any:
    """Return a body's content, None when it is in no format that is known here."""
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
    """Return a body's content if it is an object, else None; of one in protobuf, the metadata."""
    if media_type(content_type) == protobuf.MEDIA_TYPE:
        return protobuf.decode(body)
    content = decode(body, content_type)
    return content if isinstance(content, dict) else None


def encode(content: object) -> bytes:
    """Return JSON, which is YAML too. Raises TypeError or ValueError for content that JSON cannot say."""
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()


def encode_changed(body: bytes, content_type: str, obj: RawObject, changed: RawObject) -> bytes:
    """Return the body of a changed object in the format of the body that ``obj`` was read from.

    In protobuf annotations and owner references are added, nothing else. Raises TypeError or ValueError for what
    cannot be said.
    """
    if media_type(content_type) != protobuf.MEDIA_TYPE:
        return encode(changed)
    before, after = metadata_of(obj), metadata_of(changed)
    annotations = dict((after.get("annotations") or {}).items() - (before.get("annotations") or {}).items())
    known = before.get("ownerReferences") or []
    references = [reference for reference in after.get("ownerReferences") or [] if reference not in known]
    return protobuf.add_to_metadata(body, annotations, references)


def objects_in(answer: Any) -> Iterator[RawObject]:
    """Yield the objects of an answer: itself, the items of a list, or the rows of a table; nothing for a Status."""
    if not isinstance(answer, dict) or answer.get("kind") == "Status":
        return
    if isinstance(answer.get("rows"), list) and answer.get("kind") == "Table":
        found = [row.get("object") for row in answer["rows"] if isinstance(row, dict)]
    elif isinstance(answer.get("items"), list) and str(answer.get("kind")).endswith("List"):
        found = answer["items"]
    else:
        found = [answer]
    yield from (obj for obj in found if isinstance(obj, dict))


def unpacked(body: bytes) -> bytes:
    """Return a body without compression; one that cannot be unpacked reads as empty."""
    if not body.startswith(b"\x1f\x8b"):
        return body
    try:
        return zlib.decompress(body, wbits=zlib.MAX_WBITS | 16)
    except zlib.error:
        return b""
