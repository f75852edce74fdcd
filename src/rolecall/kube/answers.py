"""Reading of the API server's answers: objects, and the lines of a watch.

Whatever an answer contains, only errors of ``errors`` are raised. JSON that is nested too deeply for the parser, or too
long, is an UnreadableError: the request succeeded, and other answers can be read.
"""

import json
import sys
from collections.abc import AsyncIterator
from typing import Final

import aiohttp

from rolecall.kube.errors import MESSAGE_LIMIT, KubeError, UnreadableError, from_status
from rolecall.kube.references import RawObject

LINE_BYTES: Final = 16 << 20
"""The longest line of a watch: JSON can be six times as long as an object of the 1.5 MiB that etcd takes."""

_PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"


def decode(body: bytes) -> object:
    """Return the JSON of an answer, or its text. Raise UnreadableError for JSON that is nested too deeply."""
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")
    except RecursionError as error:
        raise UnreadableError(f"nested more deeply than the JSON parser of Python {_PYTHON} can go") from error


def read_object(body: bytes, request: str) -> RawObject:
    """Return the object in an answer. Raise UnreadableError, or KubeError if the answer is no object."""
    try:
        decoded = decode(body)
    except UnreadableError as error:
        raise UnreadableError(f"{request}: the answer is {error}") from error
    if not isinstance(decoded, dict):
        raise KubeError(f"{request}: expected an object, found {repr(decoded)[:MESSAGE_LIMIT]}")
    return decoded


async def lines_of(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield each line; of one that is longer than ``LINE_BYTES`` only the beginning, which is still longer.

    Raise ValueError if the stream ends within a line.
    """
    line = bytearray()
    async for chunk in content.iter_any():
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            yield bytes(line + end)
            line.clear()
        line += rest[: max(0, LINE_BYTES + 1 - len(line))]
    if line:
        raise ValueError(f"the stream ended within the line {bytes(line[:MESSAGE_LIMIT])!r}")


def read_event(line: bytes) -> tuple[str, RawObject]:
    """Return (type, object) of one line of a watch. Raise UnreadableError, or the error of an ERROR event."""
    if len(line) > LINE_BYTES:
        raise UnreadableError(f"longer than {LINE_BYTES} bytes")
    event = decode(line)
    if not isinstance(event, dict) or "type" not in event or "object" not in event:
        raise UnreadableError(f"expected a type and an object, found {line[:MESSAGE_LIMIT]!r}")
    if event["type"] == "ERROR":
        status = event["object"] or {}
        raise from_status(int(status.get("code") or 500), status)
    return event["type"], event["object"]
