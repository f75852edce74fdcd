"""The proxy's own answers when it cannot give the API server's: Status objects, as every Kubernetes client expects.

kubernetes.core and kubectl show the message of a Status to people, so it names what failed and where; programs look at
the code and the reason, which are those that an API server would use.
"""

import json
from http import HTTPStatus

import aiohttp
from aiohttp import web

from rolecall.kube.errors import ApiError, KubeError, UnreachableError
from rolecall.proxy.transport.forward import SILENCE_SECONDS


def error_response(status: int, reason: str, message: str) -> web.Response:
    """Make an answer that is a Status object; ``reason`` is the word that programs look at."""
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
    """Make the answer to a request that carries no live run's secret."""
    message = "the request carries no secret of a live run: the run has ended, or its credentials were not used"
    return error_response(HTTPStatus.UNAUTHORIZED, "Unauthorized", message)


def bad_request(target: str) -> web.Response:
    """Make the answer to a request whose target is no path."""
    message = f"found {target!r} as the target of the request, expected a path and a query"
    return error_response(HTTPStatus.BAD_REQUEST, "BadRequest", message)


def internal_error(error: BaseException) -> web.Response:
    """Make the answer when the proxy itself failed."""
    message = f"the operator's proxy failed: {error!r}"
    return error_response(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalError", message)


def gateway_error(error: BaseException, url: str) -> web.Response | None:
    """Make the answer when the API server at this URL did not do its part, None for an error that is none of its.

    503: nothing was sent. 504: it was sent, and silence followed. 502: the answer broke off. A refusal of what the
    proxy has to know first, such as the kinds of a group whose server is down, is passed on as it is.
    """
    match error:
        case ApiError():
            return error_response(error.status, error.reason or "InternalError", error.message)
        case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError() | UnreachableError():
            message = f"the API server at {url} cannot be reached: {error!s}"
            return error_response(HTTPStatus.SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
        case aiohttp.SocketTimeoutError():
            message = f"the API server at {url} took the request and gave no answer for {SILENCE_SECONDS:g} s"
            return error_response(HTTPStatus.GATEWAY_TIMEOUT, "Timeout", message)
        case aiohttp.ClientError() | EOFError() | OSError() | KubeError():
            message = f"the API server at {url} gave no complete answer: {error!r}"
            return error_response(HTTPStatus.BAD_GATEWAY, "BadGateway", message)
    return None
