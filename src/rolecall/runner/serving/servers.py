"""The operator's own servers: health probes, metrics, and the loopback endpoint for metrics of roles.

Addresses have the format of Go programs: ``:8443`` for all interfaces, ``127.0.0.1:8443`` or ``[::1]:8443`` for one,
port 0 for any free port; ``0`` or an empty string disables a server. If the operator can't listen on an address, it
reports one error with the flag. Slow clients are disconnected.

``/healthz`` returns 200 while the event loop runs. ``/readyz`` returns 200 once every required check of the operator
passes; in a leader election, followers are ready like the leader. Each check has its own path, for example
``/healthz/ping``, and ``?verbose`` lists all checks with their notes.

Prometheus scrapes ``/metrics``, openly or with authentication and authorization by the API server. Roles send their
own metrics with the module ``osdk_metric``.

HTTPS uses the mounted certificate, which is reloaded when it is renewed, without a restart. Without one, a self-signed
certificate is created at start and kept in memory; it encrypts the connection, but clients can't verify it.
"""

import asyncio
import datetime as dt
import json
import os
import socket
import ssl
import tempfile
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Never, TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler

from rolecall.kube.client import Client
from rolecall.runner.config.settings import Settings
from rolecall.runner.config.yaml_reader import ConfigurationError
from rolecall.runner.serving.authentication import TokenReviewer, refusal
from rolecall.runner.serving.metrics import CONTENT_TYPE, OperatorMetrics, RefusedError
from rolecall.system.blocking_work import run_in_thread, running_in_background
from rolecall.system.clock import SYSTEM_CLOCK
from rolecall.system.file_changes import WATCH_ENDED, changes_in
from rolecall.system.files import ChangingFiles
from rolecall.system.limited_listener import BACKLOG, LimitedListener, RequestLog
from rolecall.system.logs import get_logger

logger = get_logger("serving")

SHUTDOWN_SECONDS = 1.0
CONNECTIONS = 64
"""The maximum number of connections of each server."""

IDLE_SECONDS = 5.0
"""The time for a TLS handshake, and for the headers of each request."""

REQUEST_SECONDS = 30.0
"""The time for the body of a request and the response to it."""

FRESH_SECONDS = 1.0
"""The age up to which a shared result is served again."""

MAX_RESULTS = 32
"""The maximum number of shared results of a server."""

METRICS_PATH = "/metrics"
LOOPBACK = "127.0.0.1"
URL_VARIABLE = "ROLECALL_METRICS_URL"
"""The environment variable with the URL of the endpoint; the module ``rolecall.util.osdk_metric`` reads it."""

_HIGHEST_PORT = 65535
_LIFETIME = dt.timedelta(days=365)
_CLOCK_TOLERANCE = dt.timedelta(minutes=5)
KeyT = TypeVar("KeyT")
ResultT = TypeVar("ResultT")


@asynccontextmanager
async def serving(
    settings: Settings, client: Client, metrics: OperatorMetrics, checks: Sequence["Check"]
) -> AsyncIterator[int]:
    """Serve probes, metrics, and the endpoint for metrics of roles; yield the port of the latter, on loopback.

    Raise ConfigurationError if an address is invalid or the operator can't listen on it.
    """
    async with AsyncExitStack() as stack:
        address = parse_address(settings.health_probe_bind_address, "--health-probe-bind-address")
        if address is not None:
            port = await stack.enter_async_context(serve(probes_application(checks), address))
            logger.info("Serving health probes", host=address.host, port=port)
        address = parse_address(settings.metrics_bind_address, "--metrics-bind-address")
        if address is not None:
            tls = await stack.enter_async_context(serving_tls(settings, metrics))
            reviewer = TokenReviewer(client.create, metrics.now) if settings.metrics_require_rbac else None
            port = await stack.enter_async_context(
                serve(metrics_application(metrics.render, reviewer, metrics.now), address, tls)
            )
            logger.info("Serving metrics", host=address.host, port=port, secure=settings.metrics_secure)
        address = Address(LOOPBACK, settings.user_metrics_port, "--user-metrics-port")
        port = await stack.enter_async_context(serve(user_metrics_application(metrics.user_metrics.apply), address))
        logger.debug("Serving the endpoint for metrics of roles", port=port)
        yield port


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
    """Return the parsed address, None if it disables the server. Raise ConfigurationError."""
    if text in ("", "0"):
        return None
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not port.isdecimal() or int(port) > _HIGHEST_PORT or (":" in bare and bare == host):
        raise ConfigurationError(f"{flag}: expected an address such as ':8443', or '0' to disable, found {text!r}")
    return Address(bare, int(port), flag)


@asynccontextmanager
async def serve(
    application: web.Application,
    address: Address,
    tls: ssl.SSLContext | None = None,
    *,
    idle_seconds: float = IDLE_SECONDS,
    request_seconds: float = REQUEST_SECONDS,
) -> AsyncIterator[int]:
    """Serve an application and yield its port. Raise ConfigurationError if it can't listen on the address.

    A client has ``idle_seconds`` for a TLS handshake and for the headers of each request, and then ``request_seconds``
    for the rest of the request and the response. Errors of clients are responses, and hardly any log lines.
    """
    name = address.flag.removeprefix("--")
    try:
        listener = LimitedListener(_open(address), CONNECTIONS, CONNECTIONS // 2, name)
    except OSError as error:
        # The error number of an unresolvable name is negative, and the error has its own text.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise ConfigurationError(f"cannot listen on {str(address)!r} ({address.flag}): {reason}") from error

    @web.middleware
    async def respond_in_time(request: web.Request, handler: Handler) -> web.StreamResponse:
        with listener.in_use(request.transport):
            try:
                async with asyncio.timeout(request_seconds):
                    response = await _response(request, handler)
                    await response.prepare(request)
                    await response.write_eof()
            except TimeoutError:
                if request.transport is not None:
                    request.transport.abort()
                raise ConnectionResetError("the client took too long") from None
            return response

    application.middlewares.insert(0, respond_in_time)
    runner = web.AppRunner(
        application,
        access_log=None,
        logger=RequestLog(name),
        shutdown_timeout=SHUTDOWN_SECONDS,
        keepalive_timeout=idle_seconds,
        handler_cancellation=True,
    )
    try:
        await runner.setup()
        accepting = await asyncio.get_running_loop().create_server(
            runner.server,  # type: ignore[arg-type] # set by setup
            sock=listener,
            ssl=tls,
            backlog=BACKLOG,
            ssl_handshake_timeout=idle_seconds if tls else None,
        )
        with closing(accepting):
            yield int(listener.getsockname()[1])
    finally:
        await runner.cleanup()
        listener.close()


async def _response(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Return the response of a handler, also if it raises one, or if the body of the request is invalid."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        return web.Response(status=error.status, reason=error.reason, body=error.body, headers=error.headers)
    except web.RequestPayloadError as error:
        return web.Response(status=400, text=f"{error}\n")


def _open(address: Address) -> socket.socket:
    """Open a socket; for all interfaces, use IPv4 and IPv6 if the system supports both."""
    if address.host:
        family, _, _, _, where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(where, family=family)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", address.port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", address.port))


@asynccontextmanager
async def serving_tls(settings: Settings, metrics: OperatorMetrics) -> AsyncIterator[ssl.SSLContext | None]:
    """Yield the TLS context of metrics and dashboard, None if they aren't encrypted; reload renewed certificates.

    Raise ConfigurationError if the mounted certificate is invalid.
    """
    if not settings.metrics_secure:
        yield None
        return
    mounted = Path(tempfile.gettempdir()) / "k8s-metrics-server" / "serving-certs"
    certificate = ServingCertificate(mounted, lambda ok: metrics.count_certificate(succeeded=ok))
    async with certificate.loaded() as context:
        yield context


@dataclass(frozen=True, slots=True)
class Check:
    """A check of a probe.

    If it isn't required, it can fail without failing the probe. ``notes`` are listed with ``?verbose``.
    """

    name: str
    passes: Callable[[], bool] = lambda: True
    reason: str = "not yet"
    """The reason of a failure."""

    is_required: bool = True
    notes: Callable[[], Iterable[str]] = tuple

    def line(self) -> str:
        """Return the result as a line."""
        if self.passes():
            return f"[+]{self.name} ok"
        return f"[{'-' if self.is_required else '!'}]{self.name} failed: {self.reason}"


def probes_application(checks: Sequence[Check]) -> web.Application:
    """Return the application that serves the probes; the checks are those of ``/readyz``."""
    application = web.Application()
    for probe, of_probe in (("healthz", [Check("ping")]), ("readyz", [Check("readyz"), *checks])):
        by_name = {check.name: check for check in of_probe}

        async def respond(
            request: web.Request, probe: str = probe, by_name: Mapping[str, Check] = by_name
        ) -> web.Response:
            name = request.match_info.get("check", "")
            if name and name not in by_name:
                raise web.HTTPNotFound(text=f"unknown check: {name!r}\n")
            selected = [by_name[name]] if name else list(by_name.values())
            is_healthy = all(check.passes() for check in selected if name or check.is_required)
            is_verbose = "verbose" in request.query
            if is_healthy and not is_verbose:
                return web.Response(text="ok")
            lines = [check.line() for check in selected]
            if is_verbose:
                lines += [f"[!]{note}" for check in by_name.values() for note in check.notes()]
            text = "\n".join([*lines, f"{probe} check {'passed' if is_healthy else 'failed'}", ""])
            return web.Response(text=text, status=200 if is_healthy else 500)

        for path in (f"/{probe}", f"/{probe}/", f"/{probe}/{{check}}"):
            application.router.add_get(path, respond)
    return application


@dataclass(slots=True)
class SharedResults(Generic[KeyT, ResultT]):
    """Calls ``make`` with a key at most once at a time, and gives the result to all clients for a second.

    Metrics and lists take long with thousands of objects, and clients may request them at any rate. ``now`` is a
    monotonic clock in seconds.
    """

    make: Callable[[KeyT], Awaitable[ResultT]]
    now: Callable[[], float] = SYSTEM_CLOCK.monotonic
    _tasks: OrderedDict[KeyT, asyncio.Task[tuple[ResultT, float]]] = field(default_factory=OrderedDict)

    async def get(self, key: KeyT) -> ResultT:
        """Return a result that is at most a second old. Raise what ``make`` raises."""
        task = self._tasks.get(key)
        if task is None or (task.done() and (task.cancelled() or task.exception() or self.now() >= task.result()[1])):
            task = self._tasks[key] = asyncio.create_task(self._made(key))
            self._tasks.move_to_end(key)
            if len(self._tasks) > MAX_RESULTS:
                self._tasks.popitem(last=False)
        result, _ = await asyncio.shield(task)  # a client that disconnects must not cancel the work for others
        return result

    async def _made(self, key: KeyT) -> tuple[ResultT, float]:
        return await self.make(key), self.now() + FRESH_SECONDS


def metrics_application(
    render: Callable[[], bytes], reviewer: TokenReviewer | None, now: Callable[[], float] = SYSTEM_CLOCK.monotonic
) -> web.Application:
    """Return the application that serves the output of ``render``; without a reviewer it serves every client.

    ``now`` is a monotonic clock in seconds.
    """
    shared = SharedResults[str, bytes](lambda _: run_in_thread(render), now)

    async def respond(request: web.Request) -> web.Response:
        if reviewer is not None and (refused := await refusal(request, reviewer, request.path)) is not None:
            return refused
        return web.Response(body=await shared.get(METRICS_PATH), headers={"Content-Type": CONTENT_TYPE})

    application = web.Application()
    application.router.add_get(METRICS_PATH, respond)
    return application


def user_metrics_application(apply: Callable[[object], None]) -> web.Application:
    """Return the application that passes each decoded request to ``apply``, and responds with 400 if it is invalid.

    A website that a browser on the same machine shows can reach it, too, under any name that resolves to loopback.
    """

    async def respond(request: web.Request) -> web.Response:
        try:
            if "Origin" in request.headers or request.url.host not in (LOOPBACK, "localhost", "::1"):
                return web.Response(status=421, text="Metrics of roles are taken from runs, not from a website\n")
            apply(json.loads(await request.read()))
        except (RefusedError, ValueError, RecursionError) as error:  # the header Host may be no host
            return web.Response(status=400, text=f"{error}\n")
        return web.Response()

    application = web.Application()
    application.router.add_post(METRICS_PATH, respond)
    return application


def run_environment(port: int) -> Mapping[str, str]:
    """Return the environment variables with which a run finds the endpoint."""
    return {URL_VARIABLE: f"http://{LOOPBACK}:{port}{METRICS_PATH}"}


class ServingCertificate:
    """The TLS context of a server.

    A certificate (``tls.crt``) and its key (``tls.key``) may be mounted in ``directory``. ``on_read`` is called with
    the success of each attempt to read them.
    """

    def __init__(self, directory: Path, on_read: Callable[[bool], None]) -> None:
        self._directory = directory
        self._pair = (directory / "tls.crt", directory / "tls.key")
        self._on_read = on_read
        self._files = ChangingFiles()
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2

    @property
    def is_mounted(self) -> bool:
        """Whether there is a mounted certificate, or a part of one, which is invalid."""
        return any(path.exists() for path in self._pair)

    def load(self) -> None:
        """Load the mounted certificate, or create one. Raise ConfigurationError if the mounted one is invalid."""
        if not self.is_mounted:
            with tempfile.TemporaryDirectory(prefix="rolecall-") as directory:  # private: a context only reads files
                path = Path(directory) / "pair.pem"
                path.touch(mode=0o600)
                path.write_bytes(b"".join(create_self_signed()))
                self.context.load_cert_chain(path)
            logger.info("Serving metrics with a self-signed certificate", directory=str(self._directory))
            return
        try:
            self._read()
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"invalid certificate in {str(self._directory)!r}: {error}") from error

    @asynccontextmanager
    async def loaded(self) -> AsyncIterator[ssl.SSLContext]:
        """Load or create the certificate, yield the context, and reload a mounted certificate whenever it changes.

        Raise ConfigurationError if the mounted one is invalid.
        """
        self.load()
        if not self.is_mounted:
            yield self.context
            return
        async with running_in_background("certificate of the metrics endpoint", self._watch):
            yield self.context

    async def _watch(self) -> Never:
        """Reload the mounted certificate whenever it changes, until cancelled. Raise OSError if it can't be watched."""
        async for _ in changes_in([self._directory]):
            if not self._files.have_changed:
                continue
            try:
                self._read()
            except (OSError, ssl.SSLError) as error:
                logger.error("Invalid renewed certificate; keeping the old one", error=str(error))  # noqa: TRY400
            else:
                logger.info("Reloaded the certificate of the metrics endpoint")
        raise OSError(WATCH_ENDED)

    def _read(self) -> None:
        succeeded = False
        try:
            self._files.record(self._pair)  # before they are read: a write in the meantime counts as a change
            # Load it into another context first: a half-written pair must not break the context in use.
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(*self._pair)
            self.context.load_cert_chain(*self._pair)
            succeeded = True
        finally:
            self._on_read(succeeded)


def create_self_signed() -> tuple[bytes, bytes]:
    """Return a new self-signed certificate and its key, both as PEM."""
    # Imported here, because it takes 5 MiB, which an operator with a mounted certificate or plain HTTP doesn't need.
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    from cryptography.x509.oid import NameOID  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rolecall metrics")])
    now = dt.datetime.now(dt.UTC)
    hosts = [x509.DNSName(host) for host in dict.fromkeys(("localhost", socket.gethostname())) if host.isascii()]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_TOLERANCE)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(pem), private
