"""Bodies as they stand in a record: decoded if they are JSON or YAML, so that people and programs can read them.

A content is a mapping with one of the keys ``json``, ``lines`` (a watch), ``text``, ``base64`` and ``omitted``.
"""

import base64
import json
from typing import Any, Final

from rolecall.runner.proxy.bodies import decode

TOO_LONG: Final = "the body is longer than what is kept of one"
NO_ROOM: Final = "the bodies of the run are longer than what is kept of one run"
UNREADABLE: Final = "the body is of a Secret, in a format in which its values cannot be masked"

Content = dict[str, Any]


def content_of(body: bytes, content_type: str, *, is_secret: bool) -> Content:
    """Return a body without compression as it stands in a record; what may hold a Secret must be decodable."""
    found = decode(body, content_type or "application/json")
    if found is not None:
        return {"json": _as_json(found) if "yaml" in content_type else found}
    lines = _lines(body)
    if lines is not None:
        return {"lines": lines}
    if is_secret:
        return {"omitted": UNREADABLE}
    try:
        return {"text": body.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode()}


def omitted(reason: str) -> Content:
    """Return what stands in place of a body that was not kept."""
    return {"omitted": reason}


def _as_json(value: Any) -> Any:
    """Return a value of YAML as one of JSON, which has no bytes, sets and times, and only texts for keys."""
    if isinstance(value, dict):
        return {str(key): _as_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set):
        return [_as_json(inner) for inner in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _lines(body: bytes) -> list[Any] | None:
    """Return the values of a body with one JSON value on each line, as a watch has it; None for any other."""
    *whole, last = body.split(b"\n")
    if not whole:
        return None
    try:
        values = [json.loads(line) for line in whole if line.strip()]
        return values + ([json.loads(last)] if last.strip() else [])
    except (ValueError, RecursionError):
        return None
