"""The loopback endpoint to which roles send their own metrics with the module ``osdk_metric``."""

import json
from collections.abc import Callable, Mapping

from aiohttp import web

from rolecall.runner.serving.user_metrics import RefusedError

HOST = "127.0.0.1"
PATH = "/metrics"
URL_VARIABLE = "ROLECALL_METRICS_URL"
"""The environment variable with the URL of the endpoint; the module ``rolecall.util.osdk_metric`` reads it."""


def user_metrics_application(apply: Callable[[object], None]) -> web.Application:
    """Return the application that passes each request, decoded, to ``apply``, and answers 400 if it is invalid."""

    async def answer(request: web.Request) -> web.Response:
        try:
            apply(json.loads(await request.read()))
        except (RefusedError, ValueError) as error:
            return web.Response(status=400, text=f"{error}\n")
        return web.Response()

    application = web.Application()
    application.router.add_post(PATH, answer)
    return application


def run_environment(port: int) -> Mapping[str, str]:
    """Return the environment variables with which a run finds the endpoint."""
    return {URL_VARIABLE: f"http://{HOST}:{port}{PATH}"}
