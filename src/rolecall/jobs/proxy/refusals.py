"""The proxy's own answers when it cannot give the API server's: Status objects, as every Kubernetes client expects.

kubernetes.core and kubectl show the message of a Status to people, so it names what failed and where; programs look at
the code and the reason, which are those that an API server would use. Neighbour: ``server`` chooses among them.
"""

import json
from http import HTTPStatus

from aiohttp import web


def refusal(status: HTTPStatus, reason: str, message: str) -> web.Response:
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
    return refusal(HTTPStatus.UNAUTHORIZED, "Unauthorized", message)


def unreachable(url: str, error: BaseException) -> web.Response:
    """Make the answer when no connection to the API server could be had."""
    message = f"the API server at {url} cannot be reached: {error!s}"
    return refusal(HTTPStatus.SERVICE_UNAVAILABLE, "ServiceUnavailable", message)


def broken(url: str, error: BaseException) -> web.Response:
    """Make the answer when the API server's own could not be read to its end."""
    message = f"the API server at {url} gave no complete answer: {error!r}"
    return refusal(HTTPStatus.BAD_GATEWAY, "BadGateway", message)


def failed(error: BaseException) -> web.Response:
    """Make the answer when the proxy itself failed."""
    message = f"the operator's proxy failed: {error!r}"
    return refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalError", message)
