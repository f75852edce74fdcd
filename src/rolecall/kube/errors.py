"""The errors of requests to the API server, and their texts for people.

``connection`` translates the exceptions of the official client and of aiohttp, so that no other module needs to know
them. There is one class for each status that is handled separately. Messages are truncated, so that a large or secret
payload is not logged.

Modules of Ansible put the whole response into their message: the Status object, in JSON, as a Python literal, or
escaped again. ``plain_errors`` replaces each by its own message.
"""

import json
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

from rolecall.kube.references import GVK

MESSAGE_LIMIT = 512
_TOO_LARGE_FOR_ETCD = ("request is too large", "message larger than max")

_MAX_SEARCHED: Final = 1 << 16
"""How many characters of a text are searched: messages are cut to far fewer."""

_MAX_UNESCAPED: Final = 1 << 13
_MAX_OBJECTS: Final = 16
_LEVELS: Final = 4
"""How many times an object may be escaped, plus one."""

_START: Final = re.compile(r'\{(?:\s|\\+n)*\\*"(?:kind|apiVersion|metadata|status|message|reason|details|code)\\*"\s*:')
_CLIENT_ERROR: Final = re.compile(
    r"\(?\d{3}\)?\s*\nReason: [^\n]*\n(?:HTTP response headers: [^\n]*\n)?HTTP response body: (?:b\\*['\"])?\Z"
)
"""What the Kubernetes client for Python puts in front of a response."""

_LITERAL: Final = re.compile(r"b\\*['\"]\Z")
_END_OF_LITERAL: Final = re.compile(r"(?:\s|\\+[nr])*\\*['\"]")
_TRACEBACK: Final = re.compile(r"\s*Original traceback:.*", re.DOTALL)
_CHARACTER: Final = re.compile(r"((?:\\x[0-9a-fA-F]{2})+)|((?:\\u[0-9a-fA-F]{4})+)|\\?(.)", re.DOTALL)
_ESCAPED: Final = {r"\n": "\n", r"\r": "\r", r"\t": "\t"}
_FAILURE: Final = (re.compile(r'"kind"\s*:\s*"Status"'), re.compile(r'"status"\s*:\s*"Failure"'))
_MESSAGE: Final = re.compile(r'"message"\s*:\s*"((?:[^"\\]|\\.)*)', re.DOTALL)
_DECODER: Final = json.JSONDecoder(strict=False)


class KubeError(Exception):
    """The base class of all errors of requests to the API server."""


class UnknownKindError(KubeError):
    """The API server does not serve a kind: its CRD is not installed, or does not serve this version."""

    def __init__(self, gvk: GVK) -> None:
        super().__init__(f"the API server does not serve {gvk}: is its CustomResourceDefinition installed?")
        self.gvk = gvk


class InvalidNameError(KubeError):
    """A name that can't be a segment of a URL path, so no object has it; no request was sent."""


class OtherObjectError(KubeError):
    """A response with another object than the requested one."""


class UnreachableError(KubeError):
    """No response: the connection was refused or broken, or the request timed out."""


class ResponseTimeoutError(UnreachableError):
    """The connection was accepted, but the response was late."""


class UnreadableError(KubeError):
    """JSON of the API server that cannot be read here, because it is too long or too deeply nested."""


class ApiError(KubeError):
    """A response with an error status.

    ``status`` is the HTTP status, ``reason`` the machine-readable reason of the Status object (may be empty).
    """

    def __init__(self, status: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(f"{status} {reason}: {message[:MESSAGE_LIMIT]}")
        self.status = status
        self.reason = reason
        self.message = message[:MESSAGE_LIMIT]
        self.details = details or {}


class NotFoundError(ApiError):
    """404 that names the object: the API server knows the kind and has no such object."""


class NotServedError(ApiError):
    """404 that names no object: the API server, or a gateway before it, doesn't serve the path.

    Nothing follows from it about objects. An API server answers it for a CRD that it doesn't serve yet, a gateway while
    it starts.
    """


class ForbiddenError(ApiError):
    """403: RBAC or an admission plugin denies the request."""


class ConflictError(ApiError):
    """409: the object has changed since it was read, or already exists."""


class GoneError(ApiError):
    """410: the resourceVersion is too old, list again."""


class TooLargeError(ApiError):
    """413, or a 500 from the storage: the object is too large, so a retry does not help."""


class InvalidError(ApiError):
    """422: the object violates the schema or a validation rule."""


_BY_STATUS: dict[int, type[ApiError]] = {
    403: ForbiddenError,
    404: NotFoundError,
    413: TooLargeError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
}


def from_status(status: int, body: object) -> ApiError:
    """Return the error for an HTTP status and its body: a decoded Status object, or text."""
    if isinstance(body, dict):
        reason, message, details = str(body.get("reason") or ""), str(body.get("message") or ""), body.get("details")
    else:
        reason, message, details = "", str(body), None
    details = details if isinstance(details, dict) else {}
    kind = _BY_STATUS.get(status, ApiError)
    if kind is NotFoundError and not (reason == "NotFound" and details.get("name")):
        kind = NotServedError
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR and any(each in message for each in _TOO_LARGE_FOR_ETCD):
        kind = TooLargeError
    return kind(status, reason, message, details)


def plain_errors(text: str) -> str:
    """Return a text in which each Status object of a failure in JSON is replaced by its message and code.

    An object may be in a Python literal, escaped several times, or cut at its end. Any other text stays as it is.
    """
    parts: list[str] = []
    position = 0
    for _ in range(_MAX_OBJECTS):
        match = _START.search(text, position, _MAX_SEARCHED)
        if match is None:
            break
        start = end = match.start()
        client = _CLIENT_ERROR.search(text, position, start)
        literal = _LITERAL.search(text, max(position, start - _LEVELS - 2), start)
        message, end = _status_at(text, start, is_literal=literal is not None)
        if not message:
            parts.append(text[position:end])
            position = end
            continue
        parts += [text[position : (client or literal or match).start()], message]
        endings = ((literal, _END_OF_LITERAL), (client, _TRACEBACK))
        for _, ending in (each for each in endings if each[0]):
            found = ending.match(text, end)
            end = found.end() if found else end
        position = end if text[end:].strip() else len(text)
    return "".join((*parts, text[position:]))


def _status_at(text: str, start: int, *, is_literal: bool) -> tuple[str, int]:
    """Return the message of the Status object that starts here, and its end in the text.

    Without such an object, the message is empty, and the end is after its brace.
    """
    content = text[start:]
    ends: Sequence[int] = range(start + 1, len(text) + 1)
    cut = ""
    for level in range(_LEVELS):
        if level:
            content, ends = _unescaped(content[:_MAX_UNESCAPED], ends)
        elif is_literal:  # its own escapes come first
            continue
        try:
            value, length = _DECODER.raw_decode(content)
        except (ValueError, RecursionError):
            cut = cut or _message_before_cut(content)
            continue
        if message := _message_of(value):
            return message, ends[length - 1]
        return "", start + 1
    return (cut, len(text)) if cut else ("", start + 1)


def _message_of(value: Any) -> str:
    """Return the message and code of a Status object of a failure, an empty string for anything else."""
    if not isinstance(value, dict) or (value.get("kind"), value.get("status")) != ("Status", "Failure"):
        return ""
    message, code = value.get("message"), value.get("code")
    if not isinstance(message, str) or not message.strip():
        return ""
    return f"{message.strip()} ({code})" if type(code) is int else message.strip()


def _message_before_cut(content: str) -> str:
    """Return the message of a Status object whose end is missing, empty if it isn't one, or lacks the message."""
    found = _MESSAGE.search(content)
    if found is None or not all(each.search(content) for each in _FAILURE):
        return ""
    try:
        message = str(json.loads(f'"{found[1]}"', strict=False))
    except ValueError:  # cut within an escape
        message = found[1]
    message = message.strip().removesuffix("…").rstrip()
    return f"{message}…" if message else ""


def _unescaped(text: str, ends: Sequence[int]) -> tuple[str, list[int]]:
    """Return a text without one level of backslashes, and the end of each of its characters in the original text.

    ``ends`` has the ends of the given text's characters.
    """
    characters: list[str] = []
    positions: list[int] = []
    for match in _CHARACTER.finditer(text):
        if match[1]:
            found = bytes.fromhex(match[1].replace(r"\x", "")).decode("utf-8", errors="replace")
        elif match[2]:
            found = str(json.loads(f'"{match[2]}"'))
        else:
            found = _ESCAPED.get(match[0], match[3])
        characters.append(found)
        positions += [ends[match.end() - 1]] * len(found)
    return "".join(characters), positions
