"""One family of errors for everything that can go wrong between us and the API server.

The official client's and aiohttp's own exceptions are translated at one boundary, ``client``; nobody else needs to know
them. There is one class for each answer that somebody handles. Texts are cut, so that a large or secret payload does
not end up in a log.
"""

from typing import Any

from rolecall.kube.references import GVK

MESSAGE_LIMIT = 512


class KubeError(Exception):
    """Anything that went wrong with the API server."""


class UnknownKindError(KubeError):
    """Discovery does not know a kind: its CRD is not installed, or not served in this version."""

    def __init__(self, gvk: GVK) -> None:
        super().__init__(f"the API server does not serve {gvk}: is its CustomResourceDefinition installed?")
        self.gvk = gvk


class UnreachableError(KubeError):
    """No answer came: connection refused or broken, or a time limit passed."""


class ApiError(KubeError):
    """An answer that is not a success.

    ``status`` is the HTTP status, ``reason`` the machine-readable word of the Status object (may be empty).
    """

    def __init__(self, status: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(f"{status} {reason}: {message[:MESSAGE_LIMIT]}")
        self.status = status
        self.reason = reason
        self.message = message[:MESSAGE_LIMIT]
        self.details = details or {}


class NotFoundError(ApiError):
    """404: the object, or its kind, is not there."""


class ForbiddenError(ApiError):
    """403: RBAC or an admission plugin says no."""


class ConflictError(ApiError):
    """409: the object has changed since it was read, or exists already."""


class GoneError(ApiError):
    """410: the resourceVersion is too old to go on from; list again."""


class TooLargeError(ApiError):
    """413, or what the storage says through a 500: the object does not fit, and waiting does not change that."""


class InvalidError(ApiError):
    """422: the object does not fit the schema or a validation rule."""


_BY_STATUS: dict[int, type[ApiError]] = {
    403: ForbiddenError,
    404: NotFoundError,
    413: TooLargeError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
}


_TOO_LARGE_FOR_THE_STORAGE = ("request is too large", "message larger than max")
_FIRST_OF_THE_SERVER = 500


def from_status(status: int, body: object) -> ApiError:
    """Make the error for an HTTP status and its body: a decoded Status object, or whatever else came as text."""
    if isinstance(body, dict):
        reason, message, details = str(body.get("reason") or ""), str(body.get("message") or ""), body.get("details")
    else:
        reason, message, details = "", str(body), None
    kind = _BY_STATUS.get(status, ApiError)
    if status >= _FIRST_OF_THE_SERVER and any(words in message for words in _TOO_LARGE_FOR_THE_STORAGE):
        kind = TooLargeError
    return kind(status, reason, message, details if isinstance(details, dict) else None)
