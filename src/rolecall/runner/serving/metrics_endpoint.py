"""The endpoint that Prometheus scrapes, open or with authentication and authorization by the API server."""

from collections.abc import Callable

from aiohttp import web

from rolecall.runner.serving.authorization import refusal
from rolecall.runner.serving.registry import CONTENT_TYPE
from rolecall.runner.serving.shared_render import SharedRender
from rolecall.runner.serving.token_reviews import TokenReviewer

PATH = "/metrics"
_CONTENT_TYPE = {"Content-Type": CONTENT_TYPE}


def metrics_application(render: Callable[[], bytes], reviewer: TokenReviewer | None) -> web.Application:
    """Return the application that serves the output of ``render``; without a reviewer it serves every client."""
    shared = SharedRender(render)

    async def answer(request: web.Request) -> web.Response:
        if reviewer is not None and (refused := await refusal(request, reviewer, request.path)) is not None:
            return refused
        return web.Response(body=await shared.text(), headers=_CONTENT_TYPE)

    application = web.Application()
    application.router.add_get(PATH, answer)
    return application
