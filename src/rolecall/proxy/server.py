"""The endpoint that runs talk to: an API server on loopback that knows which run is asking.

Each request goes the same way: who asks; does it leave HTTP; what does it write; on to the API server; what did it
change or show. Without the secret of a live run nothing goes through. What the API server answers passes unchanged;
what the proxy itself has to say are Status objects.
"""

from dataclasses import dataclass, replace

from aiohttp import web
from structlog.contextvars import bound_contextvars

from rolecall.kube.client import Client
from rolecall.kube.metadata import resource_version_of
from rolecall.kube.references import ObjectKey
from rolecall.logs import get_logger
from rolecall.proxy import error_responses
from rolecall.proxy.credentials import ProxyCredentials
from rolecall.proxy.reads.cached_reads import Cache, CachedReads, ReadRequest
from rolecall.proxy.reads.dependent_discovery import LOOKED_THROUGH_BYTES, DependentDiscovery
from rolecall.proxy.reads.read_watermark import passing
from rolecall.proxy.request_info import RequestInfo, is_well_formed, origin_form, parse
from rolecall.proxy.sessions import Session, Sessions, SessionSpec
from rolecall.proxy.transport.connect_tunnel import ConnectTunnel
from rolecall.proxy.transport.forward import (
    Copy,
    Headers,
    Upstream,
    end_to_end,
    relay,
    whole_answer,
    without_run_credentials,
)
from rolecall.proxy.transport.upgrade import is_upgrade, tunnel
from rolecall.proxy.writes.bodies import decode
from rolecall.proxy.writes.conditional_writes import ConditionalWrites
from rolecall.proxy.writes.deletions import removed_uid
from rolecall.proxy.writes.owner_injection import OwnerInjector, WriteRequest

logger = get_logger("proxy")

HEADER_BYTES = 1 << 20
SHUTDOWN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """What a run asks for: the target in origin form, and how it reads."""

    session: Session
    target: str
    info: RequestInfo


class Proxy:
    """Serves the API server to runs. Call ``start`` before ``register``, and ``stop`` at the end.

    ``port`` 0 takes a free one. With a ``cache`` some reads are answered from it.
    """

    def __init__(self, client: Client, port: int = 0, host: str = "127.0.0.1", cache: Cache | None = None) -> None:
        self._cached = None if cache is None else CachedReads(client, cache)
        self._host, self._port = host, port
        self._sessions = Sessions()
        self._tunnel = ConnectTunnel()
        self._upstream = Upstream(client)
        self._owner_injector = OwnerInjector(client, self._upstream)
        self._dependents = DependentDiscovery(client)
        self._conditional_writes = ConditionalWrites(self._upstream)
        self._runner: web.ServerRunner | None = None

    async def start(self) -> None:
        """Listen. Raises OSError when the port is taken."""
        server = web.Server(
            self._handle,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            max_line_size=HEADER_BYTES,
            max_field_size=HEADER_BYTES,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=SHUTDOWN_SECONDS)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()
        self._port = self._runner.addresses[0][1]
        logger.info("Proxy started", url=self.url)

    async def stop(self) -> None:
        """Revoke every run, close all connections and stop listening."""
        await self._sessions.revoke_all()
        if self._runner is not None:
            await self._runner.cleanup()
        await self._upstream.close()

    @property
    def url(self) -> str:
        """The URL to reach the proxy by, without any secret."""
        return f"http://{self._host}:{self._port}"

    def register(self, run: SessionSpec) -> ProxyCredentials:
        """Let a run in and return what it needs to know."""
        return ProxyCredentials(self.url, self._sessions.add(run), run.key.namespace)

    async def revoke(self, run: SessionSpec) -> None:
        """Shut a run out. When this returns none of its requests is under way and its secret is worth nothing."""
        await self._sessions.revoke(run)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        session = self._who_asks(request)
        if session is None or self._runner is None or self._runner.server is None:
            return error_responses.unauthorized()
        with session.request_under_way(), bound_contextvars(**session.run.log_fields):
            if request.method == "CONNECT":
                return await self._tunnel.serve(request, session, self._runner.server)
            return await self._answer(request, session)

    def _who_asks(self, request: web.BaseRequest) -> Session | None:
        """Return the run that a request comes from, by its own word or by that of its connection."""
        headers = (request.headers.get(name, "") for name in ("Authorization", "Proxy-Authorization"))
        found = next(filter(None, map(self._sessions.authenticate, filter(None, headers))), None)
        return found or self._tunnel.run_of(request)

    async def _answer(self, request: web.BaseRequest, session: Session) -> web.StreamResponse:
        target = origin_form(request.raw_path)
        if not is_well_formed(target):
            return error_responses.bad_request(target)
        info = parse(request.method, target)
        try:
            if is_upgrade(request) and info.may_leave_http:
                return await tunnel(request, self._upstream)
            return await self._forward(request, SessionRequest(session, target, info))
        except Exception as error:
            answer = error_responses.gateway_error(error, self._upstream.base_url)
            if answer is None:
                logger.exception("Proxy request failed", method=request.method, target=target)
            return answer or error_responses.internal_error(error)

    async def _forward(self, request: web.BaseRequest, asked: SessionRequest) -> web.StreamResponse:
        session, target, info = asked.session, asked.target, asked.info
        headers = without_run_credentials(end_to_end(request.headers))
        if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if info.is_write:
            body = await request.content.read()
            write = WriteRequest(request.method, info, target, headers.get("Content-Type", ""), body)
            _ask_for_plain_json(headers)
            write = replace(write, body=await self._owner_injector.body_for(session, write))
            return await session.finish(self._write(session, write, headers))
        if self._cached is not None and request.method == "GET":
            cached = await self._cached.answer(session.run, ReadRequest(target, info, request.headers))
            if cached is not None and isinstance(cached.body, bytes):
                await self._dependents.look_through(session, info, cached.body)
                return cached
        body_stream = request.content if request.body_exists else None
        async with await self._upstream.send(
            request.method, target, headers, body_stream, is_long_running=info.is_long_running
        ) as answer:
            with passing(session.run.seen, info, answer.status) as show:
                copy = Copy(LOOKED_THROUGH_BYTES) if self._dependents.is_worth_a_copy(info, answer) else None
                response = await relay(request, answer, copy)
                show(None if copy is None else copy.body)
        if copy is not None and copy.body:
            await self._dependents.look_through(session, info, copy.body)
        return response

    async def _write(self, session: Session, write: WriteRequest, headers: Headers) -> web.StreamResponse:
        """Send a write; what it has changed is noted before the run has its answer."""
        outcome = await self._conditional_writes.send(session, write, headers)
        for obj in outcome.changed:
            session.saw(write.info, resource_version_of(obj), ObjectKey.of_object(obj).name)
            session.run.on_write(obj)
        if session.run.seen is not None:
            content = decode(outcome.body, outcome.answer.headers.get("Content-Type", ""))
            session.run.seen.answer(write.info, outcome.answer.status, content)
        if uid := removed_uid(write.info, outcome):
            session.run.on_removal(uid)
        return whole_answer(outcome.answer, outcome.body)


def _ask_for_plain_json(headers: Headers) -> None:
    """Narrow down what the answer to a write may be to what can be read here, where the client allows it."""
    for name in ("Accept-Encoding", "Content-Length"):
        headers.popall(name, None)
    accepted = headers.get("Accept", "*/*")
    if "application/json" in accepted and "protobuf" in accepted:
        headers["Accept"] = "application/json"
