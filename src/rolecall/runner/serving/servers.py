"""Starts the operator's own servers according to the settings.

The addresses of the operator's own servers, and how they listen.

Addresses have the format of Go programs: ``:8443`` for all interfaces, ``127.0.0.1:8443`` or ``[::1]:8443`` for one,
port 0 for any free port; ``0`` or an empty string disables a server. If the operator cannot listen on an address, it
reports one error with the flag. A client that sends nothing, or does not read its answer, is disconnected after a time.

The health probes: liveness and readiness.

``/healthz`` returns 200 while the event loop runs. ``/readyz`` returns 200 once every informer has synced, or knows
that it cannot sync for now; in a leader election, followers are ready like the leader. Each check has its own path, for
example ``/healthz/ping``, and ``?verbose`` lists all checks, and the kinds that cannot be listed for now.

The endpoint that Prometheus scrapes, open or with authentication and authorization by the API server.

The text of all metrics, rendered once for everybody who asks at the same time.

With thousands of objects rendering takes long, and any pod may ask as often as it likes. So there is one render at a
time, in a thread of its own, and its text answers everybody for a second.

The loopback endpoint to which roles send their own metrics with the module ``osdk_metric``.
"""

import asyncio
import json
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from rolecall.kube.client import Client
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.yaml_reader import ConfigurationError
from rolecall.runner.serving.authentication import TokenReviewer, refusal
from rolecall.runner.serving.certificate import ServingCertificate, mounted_directory
from rolecall.runner.serving.controller_metrics import CONTENT_TYPE
from rolecall.runner.serving.operator_metrics import OperatorMetrics
from rolecall.runner.serving.user_metrics import RefusedError
from rolecall.system.blocking_work import run_in_thread
from rolecall.system.limited_listener import LimitedListener
from rolecall.system.logs import get_logger

SHUTDOWN_SECONDS = 1.0
CONNECTIONS = 64
"""How many connections each server has at most."""

REQUEST_SECONDS = 30.0
"""How long a client may take to send a request, and then to read the answer."""

_HIGHEST_PORT = 65535


@dataclass(frozen=True, slots=True)
class Address:
    """An address to listen on; ``host`` is empty for all interfaces, ``flag`` is the flag that sets the address."""

    host: str
    port: int
    flag: str

    def __str__(self) -> str:
        """Return the address as written in the flag."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, flag: str) -> Address | None:
    """Return the address in the text, None if it disables the server. Raise ConfigurationError."""
    if text in ("", "0"):
        return None
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not port.isdecimal() or int(port) > _HIGHEST_PORT or (":" in bare and bare == host):
        raise ConfigurationError(f"{flag}: expected an address such as ':8443', or '0' to disable, found {text!r}")
    return Address(bare, int(port), flag)


@asynccontextmanager
async def serve(
    application: web.Application, address: Address, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve an application and yield its port. Raise ConfigurationError if it cannot listen on the address."""
    try:
        listener = _listener(address)
    except OSError as error:
        # An unresolvable name has an error number below zero and its own text.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise ConfigurationError(f"cannot listen on {str(address)!r} ({address.flag}): {reason}") from error
    application.middlewares.append(_answered_in_time(listener))
    runner = web.AppRunner(
        application, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS, keepalive_timeout=REQUEST_SECONDS
    )
    try:
        await runner.setup()
        await web.SockSite(runner, listener, ssl_context=tls).start()
        yield int(listener.getsockname()[1])
    finally:
        await runner.cleanup()
        listener.close()


def _answered_in_time(listener: LimitedListener) -> Middleware:
    """Return what keeps a connection open while its request is answered, and ends it if that takes too long."""

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        with listener.in_use(request.transport):
            try:
                async with asyncio.timeout(REQUEST_SECONDS):
                    response = await handler(request)
                    await response.prepare(request)
                    await response.write_eof()
            except TimeoutError:
                if request.transport is not None:
                    request.transport.abort()
                raise ConnectionResetError("the client took too long") from None
            return response

    return answer


def _listener(address: Address) -> LimitedListener:
    """Open a socket; for all interfaces, use IPv4 and IPv6 if the system supports both."""
    return LimitedListener(_open(address), CONNECTIONS, address.flag.removeprefix("--"))


def _open(address: Address) -> socket.socket:
    if address.host:
        family, _, _, _, where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(where, family=family)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", address.port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", address.port))


Check = Callable[[], bool]
Notes = Callable[[], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the informers are ready, and notes on those that cannot sync for now."""

    is_ready: Check
    notes: Notes = tuple


def probes_application(readiness: Readiness) -> web.Application:
    """Return the application that serves the probes."""
    application = web.Application()
    _add(application, "healthz", {"ping": lambda: True})
    _add(application, "readyz", {"readyz": lambda: True, "informers": readiness.is_ready}, readiness.notes)
    return application


def _add(application: web.Application, probe: str, checks: Mapping[str, Check], notes: Notes = tuple) -> None:
    async def answer(request: web.Request) -> web.Response:
        name = request.match_info.get("check", "")
        if name and name not in checks:
            raise web.HTTPNotFound(text=f"unknown check: {name!r}\n")
        selected = {name: checks[name]} if name else checks
        results = {each: check() for each, check in selected.items()}
        if "verbose" not in request.query:
            return web.Response(text="ok") if all(results.values()) else _report(probe, results)
        return _report(probe, results, notes())

    for path in (f"/{probe}", f"/{probe}/", f"/{probe}/{{check}}"):
        application.router.add_get(path, answer)


def _report(probe: str, results: Mapping[str, bool], notes: Iterable[str] = ()) -> web.Response:
    is_healthy = all(results.values())
    lines = [f"[+]{name} ok" if passed else f"[-]{name} failed: not yet" for name, passed in results.items()]
    lines += [f"[!]{note}" for note in notes]
    text = "\n".join([*lines, f"{probe} check {'passed' if is_healthy else 'failed'}", ""])
    return web.Response(text=text, status=200 if is_healthy else 500)


FRESH_SECONDS = 1.0


class SharedRender:
    """Call ``render`` at most once at a time; ``now`` is a monotonic clock in seconds."""

    def __init__(self, render: Callable[[], bytes], now: Callable[[], float] = time.monotonic) -> None:
        self._render = render
        self._now = now
        self._current: asyncio.Task[tuple[bytes, float]] | None = None

    async def text(self) -> bytes:
        """Return a text that is at most a second old. Raise what ``render`` raises."""
        if self._current is None or self._is_over(self._current):
            self._current = asyncio.create_task(self._render_once())
        # A reader that goes away must not end what others wait for.
        text, _ = await asyncio.shield(self._current)
        return text

    def _is_over(self, rendering: asyncio.Task[tuple[bytes, float]]) -> bool:
        if not rendering.done():
            return False
        return rendering.cancelled() or rendering.exception() is not None or self._now() >= rendering.result()[1]

    async def _render_once(self) -> tuple[bytes, float]:
        text = await run_in_thread(self._render)
        return text, self._now() + FRESH_SECONDS


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


HOST = "127.0.0.1"
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


logger = get_logger("serving")


@asynccontextmanager
async def serving(
    settings: Settings, client: Client, metrics: OperatorMetrics, readiness: Readiness
) -> AsyncIterator[int]:
    """Serve probes, metrics and the endpoint for metrics of roles; yield the port of the latter, on loopback.

    Raise ConfigurationError if an address is invalid or the operator cannot listen on it.
    """
    async with AsyncExitStack() as stack:
        await _serve_probes(stack, settings, readiness)
        await _serve_metrics(stack, settings, client, metrics)
        address = Address(HOST, settings.user_metrics_port, "--user-metrics-port")
        port = await stack.enter_async_context(serve(user_metrics_application(metrics.user_metrics.apply), address))
        logger.debug("Serving the endpoint for metrics of roles", port=port)
        yield port


async def _serve_probes(stack: AsyncExitStack, settings: Settings, readiness: Readiness) -> None:
    address = parse_address(settings.health_probe_bind_address, "--health-probe-bind-address")
    if address is not None:
        port = await stack.enter_async_context(serve(probes_application(readiness), address))
        logger.info("Serving health probes", host=address.host, port=port)


async def _serve_metrics(stack: AsyncExitStack, settings: Settings, client: Client, metrics: OperatorMetrics) -> None:
    address = parse_address(settings.metrics_bind_address, "--metrics-bind-address")
    if address is None:
        return
    context = tls_of(stack, settings, metrics)
    reviewer = TokenReviewer(client) if settings.metrics_require_rbac else None
    port = await stack.enter_async_context(serve(metrics_application(metrics.render, reviewer), address, context))
    logger.info("Serving metrics", host=address.host, port=port, secure=settings.metrics_secure)


def tls_of(stack: AsyncExitStack, settings: Settings, metrics: OperatorMetrics) -> ssl.SSLContext | None:
    """Return what encrypts metrics and the live page, None if nothing does; renewed certificates count until the end.

    Raise ConfigurationError if the mounted certificate is invalid.
    """
    if not settings.metrics_secure:
        return None
    certificate = ServingCertificate(mounted_directory(), lambda ok: metrics.count_certificate(succeeded=ok))
    certificate.load()
    _run_beside(stack, certificate)
    return certificate.context


def _run_beside(stack: AsyncExitStack, certificate: ServingCertificate) -> None:
    task = asyncio.create_task(certificate.watch(), name="certificate of the metrics endpoint")

    async def end() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    stack.push_async_callback(end)
