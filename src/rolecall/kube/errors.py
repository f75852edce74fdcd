"""The errors of requests to the API server.

``connection`` translates the exceptions of the official client and of aiohttp, so that no other module needs to know
them. There is one class for each status that is handled separately. Messages are truncated, so that a large or secret
payload is not logged.
"""

from http import HTTPStatus
from typing import Any

from rolecall.kube.references import GVK

MESSAGE_LIMIT = 512
_TOO_LARGE_FOR_ETCD = ("request is too large", "message larger than max")


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
