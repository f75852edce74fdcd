"""Error responses of the proxy itself: Status objects, as every Kubernetes client expects.

kubernetes.core and kubectl show the message of a Status to users, so it says what failed and where. Programs evaluate
the code and the reason, which are the ones that an API server would use.
"""

import json
from http import HTTPStatus

import aiohttp
from aiohttp import web

from rolecall.kube.errors import ApiError, KubeError, UnreachableError
from rolecall.runner.proxy.forward import READ_TIMEOUT_SECONDS


def error_response(status: int, reason: str, message: str) -> web.Response:
    """Return a response with a Status object; ``reason`` is its machine-readable reason."""
    content = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": int(status),
    }
    return web.Response(status=status, text=json.dumps(content), content_type="application/json")


def unauthorized() -> web.Response:
    """Return the response to a request without the secret of an active run."""
    message = "the request has no valid credentials of a run: the run has ended, or its credentials were not sent"
    return error_response(HTTPStatus.UNAUTHORIZED, "Unauthorized", message)


def bad_request(target: str) -> web.Response:
    """Return the response to a request whose target is not a path."""
    message = f"found the request target {target!r}, expected a path and an optional query"
    return error_response(HTTPStatus.BAD_REQUEST, "BadRequest", message)


def not_leading() -> web.Response:
    """Return the response to a write that was not sent because this replica may not be the leader any more."""
    message = "the write was not sent: this operator has not renewed its Lease in time, so another replica may lead"
    return error_response(HTTPStatus.SERVICE_UNAVAILABLE, "ServiceUnavailable", message)


def internal_error(error: BaseException) -> web.Response:
    """Return the response if the proxy itself failed."""
    message = f"internal error of the operator's proxy: {error!r}"
    return error_response(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalError", message)


def gateway_error(error: BaseException, url: str) -> web.Response | None:
    """Return the response if the API server at this URL failed, None for an error of another origin.

    503: the request was not sent. 504: it was sent, but there was no response. 502: the response was incomplete. An
    error in a lookup that the proxy needs first, such as discovery for an unavailable API group, is returned unchanged.
    """
    match error:
        case ApiError():
            return error_response(error.status, error.reason or "InternalError", error.message)
        case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError() | UnreachableError():
            message = f"the API server at {url} is unreachable: {error!s}"
            return error_response(HTTPStatus.SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
        case aiohttp.SocketTimeoutError():
            message = f"the API server at {url} accepted the request but sent nothing for {READ_TIMEOUT_SECONDS:g} s"
            return error_response(HTTPStatus.GATEWAY_TIMEOUT, "Timeout", message)
        case aiohttp.ClientError() | EOFError() | OSError() | KubeError():
            message = f"the response of the API server at {url} is incomplete: {error!r}"
            return error_response(HTTPStatus.BAD_GATEWAY, "BadGateway", message)
    return None
