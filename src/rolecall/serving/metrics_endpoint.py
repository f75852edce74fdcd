"""The endpoint that Prometheus scrapes, open or with authentication and authorization by the API server."""

from collections.abc import Callable

from aiohttp import web

from rolecall.kube.errors import KubeError
from rolecall.logs import get_logger
from rolecall.metrics.registry import CONTENT_TYPE
from rolecall.serving.shared_render import SharedRender
from rolecall.serving.token_reviews import TokenReviewer, Verdict

logger = get_logger("metrics")

PATH = "/metrics"
_CONTENT_TYPE = {"Content-Type": CONTENT_TYPE}


def metrics_application(render: Callable[[], bytes], reviewer: TokenReviewer | None) -> web.Application:
    """Return the application that serves the output of ``render``; without a reviewer it serves every client."""
    shared = SharedRender(render)

    async def answer(request: web.Request) -> web.Response:
        if reviewer is not None and (refusal := await _refusal(request, reviewer)) is not None:
            return refusal
        return web.Response(body=await shared.text(), headers=_CONTENT_TYPE)

    application = web.Application()
    application.router.add_get(PATH, answer)
    return application


async def _refusal(request: web.Request, reviewer: TokenReviewer) -> web.Response | None:
    """Return the error response for a request that is not authorized, else None."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        return web.Response(status=401, text="Unauthorized\n", headers={"WWW-Authenticate": "Bearer"})
    try:
        verdict = await reviewer.authorize(token.strip(), request.method.lower(), request.path)
    except KubeError as error:
        logger.error("Cannot authenticate a client of the metrics endpoint", error=str(error))  # noqa: TRY400
        return web.Response(status=500, text="Authentication failed\n")
    match verdict:
        case Verdict.UNAUTHENTICATED:
            return web.Response(status=401, text="Unauthorized\n", headers={"WWW-Authenticate": "Bearer"})
        case Verdict.FORBIDDEN:
            return web.Response(status=403, text="Forbidden\n")
    return None
