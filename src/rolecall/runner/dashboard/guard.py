"""Protects the dashboard: who may read it, from where, and what a browser may do with it.

On a loopback address, the request must name a loopback host, so that a web site whose name resolves to this machine
can't read the dashboard. Everywhere else, a token is needed.
"""

import ipaddress
from dataclasses import dataclass
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from rolecall.runner.serving.authentication import TokenReviewer, refusal

ACCESS_PATH: Final = "/ui"
"""The path for which a client needs the permission ``get``, for any page."""

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_METHODS: Final = ("GET", "HEAD")


def is_loopback(host: str) -> bool:
    """Return whether a host without a port, as in an address or in a request, can only be this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Guard:
    """Accepts requests that may read the dashboard; without a reviewer, no token is needed."""

    reviewer: TokenReviewer | None
    is_on_loopback: bool

    def protect(self, application: web.Application) -> None:
        """Protect an application."""
        application.on_response_prepare.append(_add_headers)

        @web.middleware
        async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
            refused = await self._refusal(request)
            return refused if refused is not None else await handler(request)

        application.middlewares.append(check)

    async def _refusal(self, request: web.Request) -> web.Response | None:
        if request.method not in _METHODS:
            return web.Response(status=405, text="The dashboard is read-only\n", headers={"Allow": ", ".join(_METHODS)})
        if self.is_on_loopback and not is_loopback(_host_of(request)):
            return web.Response(status=421, text="The dashboard is served on loopback: use localhost as its host\n")
        if self.reviewer is None:
            return None
        return await refusal(request, self.reviewer, ACCESS_PATH, takes_password=True)


def _host_of(request: web.Request) -> str:
    """Return the host that a request names, without its port."""
    host = request.headers.get("Host", "").lower()
    return host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)
    response.headers.setdefault("Cache-Control", "no-store")
