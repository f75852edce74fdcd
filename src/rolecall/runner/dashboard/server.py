"""Serves the pages, as HTML or, for ``?format=json`` and clients that accept only that, as JSON.

A page requests its changing part every two seconds, with the tag of its current content: if nothing has changed, the
response is 304, without a body. No connection stays open, so this works behind every proxy and through
``kubectl port-forward``, and a client that disconnects leaves nothing behind.

On a loopback address, the request must name a loopback host, so that a web site whose name resolves to this machine
can't read the dashboard. Everywhere else, a token is needed.
"""

import ipaddress
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from rolecall.kube.client import Client
from rolecall.kube.references import ObjectKey
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.yaml_reader import ConfigurationError
from rolecall.runner.dashboard.html import (
    NO_NAMESPACE,
    STATIC_TYPES,
    Pages,
    list_path,
    object_path,
    query_of,
    static_file,
)
from rolecall.runner.dashboard.object_tree import ClusterViews
from rolecall.runner.dashboard.objects import list_view, object_view
from rolecall.runner.dashboard.runs import RecordCache, run_view
from rolecall.runner.dashboard.sources import Kind, ObjectNote, Sources
from rolecall.runner.dashboard.views import ListView, ObjectView, Query, RunView, to_json
from rolecall.runner.serving.authentication import TokenReviewer, refusal
from rolecall.runner.serving.metrics import OperatorMetrics
from rolecall.runner.serving.servers import SharedResults, parse_address, serve, serving_tls
from rolecall.system.blocking_work import run_in_thread
from rolecall.system.logs import get_logger

logger = get_logger("dashboard")

FLAG: Final = "--ui-bind-address"
ACCESS_PATH: Final = "/ui"
"""The path for which a client needs the permission ``get``, for any page."""

_HTML: Final = "text/html"
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


@asynccontextmanager
async def serving_dashboard(
    settings: Settings, client: Client, metrics: OperatorMetrics, sources: Sources
) -> AsyncIterator[int]:
    """Serve the dashboard at the address in the settings, and yield its port.

    Raise ConfigurationError if the operator can't listen there, or if others could read the dashboard without a token.
    """
    address = parse_address(settings.ui_bind_address, FLAG)
    if address is None:
        raise ConfigurationError(f"{FLAG}: expected an address, found {settings.ui_bind_address!r}")
    on_loopback = is_loopback(address.host)
    if not on_loopback and not (settings.metrics_secure and settings.metrics_require_rbac):
        raise ConfigurationError(
            f"{FLAG}: others can reach {str(address)!r}, and the dashboard shows what roles work with: listen on "
            f"loopback, as in '127.0.0.1:{address.port}', which 'kubectl port-forward' reaches, or give "
            "--metrics-secure and --metrics-require-rbac, so that a token is needed"
        )
    reviewer = TokenReviewer(client.create, metrics.now) if settings.metrics_require_rbac else None
    application = dashboard_application(sources, Guard(reviewer, on_loopback))
    async with serving_tls(settings, metrics) as tls, serve(application, address, tls) as port:
        host = f"[{address.host}]" if ":" in address.host else address.host or "localhost"
        logger.info("Serving the dashboard", url=f"{'https' if tls else 'http'}://{host}:{port}/")
        yield port


def dashboard_application(sources: Sources, guard: "Guard") -> web.Application:
    """Return the application that serves the pages."""
    application = web.Application(middlewares=[guard.check])
    application.on_response_prepare.append(_add_headers)
    clock = sources.manager.clock
    lists = SharedResults(partial(list_view, sources), clock.monotonic)
    records = RecordCache(sources.recorder)
    handlers = _Handlers(sources, lists, records, ClusterViews(sources, records), Pages(clock.now))
    application.router.add_get("/", handlers.objects)
    # Without a pattern, a segment has no braces.
    application.router.add_get("/kinds/{kind}/{namespace}/{name:[^/]+}", handlers.object)
    application.router.add_get("/kinds/{kind}/{namespace}/{name:[^/]+}/runs/{run}", handlers.run)
    application.router.add_get("/static/{file}", handlers.static)
    return application


@dataclass(slots=True)
class _Handlers:
    sources: Sources
    lists: SharedResults[Query, ListView]
    records: RecordCache
    cluster: ClusterViews
    pages: Pages

    async def objects(self, request: web.Request) -> web.Response:
        return await self._answer(request, "objects", await self.lists.get(query_of(request.query)))

    async def object(self, request: web.Request) -> web.Response:
        found = self._find(request)
        if found is None:
            return self._missing(
                request, "There is no such object", "It was deleted, or this operator does not watch it."
            )
        place = found[0], found[1].key
        cluster = await self.cluster.get(*place, is_new=request.query.get("part") != "polled")
        view = object_view(self.sources, *found, await self.records.get(*place))
        return await self._answer(request, "object", replace(view, cluster=cluster))

    async def run(self, request: web.Request) -> web.Response:
        found = self._find(request)
        record = await self.records.get(found[0], found[1].key, request.match_info["run"]) if found else None
        if found is None or record is None:
            text = (
                "Memory keeps the last runs of an object, within the limit of --record-memory; --record-dir keeps more."
            )
            return self._missing(request, "There is no record of this run", text)
        view = await run_in_thread(partial(run_view, self.sources, found[0], record))
        if _wants_json(request):
            return _json(view)
        text = await run_in_thread(partial(self.pages.page, "run", view))
        return web.Response(text=text, content_type=_HTML)

    async def static(self, request: web.Request) -> web.Response:
        name = request.match_info["file"]
        if name not in STATIC_TYPES:
            raise web.HTTPNotFound
        headers = {"Cache-Control": "private, max-age=86400"}  # the path has a digest of the file
        return web.Response(body=static_file(name), content_type=STATIC_TYPES[name], charset="utf-8", headers=headers)

    def _find(self, request: web.Request) -> tuple[Kind, ObjectNote] | None:
        kind = self.sources.kind(request.match_info["kind"])
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        key = ObjectKey("" if namespace == NO_NAMESPACE else namespace, name)
        note = kind.note(key) if kind is not None else None
        return (kind, note) if kind is not None and note is not None else None

    async def _answer(self, request: web.Request, name: str, view: ListView | ObjectView) -> web.Response:
        if _wants_json(request):
            return _json(view)
        is_part = request.query.get("part") == "polled"
        if isinstance(view, ListView):
            page = list_path(view.query)
        else:
            page = object_path(view.row.kind, view.row.namespace, view.row.name)
        polled, tag = await run_in_thread(partial(self.pages.fragment, name, page, view))
        if is_part and request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"ETag": tag})
        text = str(polled) if is_part else self.pages.page(name, view, polled)
        return web.Response(text=text, content_type=_HTML, headers={"ETag": tag} if is_part else {})

    def _missing(self, request: web.Request, title: str, text: str) -> web.Response:
        if _wants_json(request):
            return web.json_response({"error": f"{title}. {text}"}, status=404)
        # A page whose object has been deleted reloads itself, and then reports this.
        headers = {"HX-Refresh": "true"} if request.query.get("part") == "polled" else {}
        return web.Response(text=self.pages.message(title, text), content_type=_HTML, status=404, headers=headers)


def _wants_json(request: web.Request) -> bool:
    accepted = request.headers.get("Accept", "")
    return request.query.get("format") == "json" or ("application/json" in accepted and _HTML not in accepted)


def _json(view: ListView | ObjectView | RunView) -> web.Response:
    return web.json_response(to_json(view), dumps=lambda value: json.dumps(value, ensure_ascii=False))


@dataclass(frozen=True, slots=True)
class Guard:
    """Accepts requests that may read the dashboard; without a reviewer, no token is needed."""

    reviewer: TokenReviewer | None
    is_on_loopback: bool

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Return the response to a request, or why it is rejected."""
        if request.method not in _METHODS:
            return web.Response(status=405, text="The dashboard is read-only\n", headers={"Allow": ", ".join(_METHODS)})
        if self.is_on_loopback and not is_loopback(_host_of(request)):
            return web.Response(status=421, text="The dashboard is served on loopback: use localhost as its host\n")
        if self.reviewer is not None:
            rejected = await refusal(request, self.reviewer, ACCESS_PATH, takes_password=True)
            if rejected is not None:
                return rejected
        return await handler(request)


def is_loopback(host: str) -> bool:
    """Return whether a host without a port, as in an address or in a request, can only be this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def _host_of(request: web.Request) -> str:
    """Return the host that a request names, without its port."""
    host = request.headers.get("Host", "").lower()
    return host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)
    response.headers.setdefault("Cache-Control", "no-store")
