"""The proxy's HTTP server: an API endpoint on loopback that identifies the run that sends each request.

Each request takes the same path, from ``Proxy._handle`` downwards: authenticate the run; serve a tunnel; read the body
of a write; ask the interceptor; upgrade the connection; inject the owner into a write; forward the request to the API
server; record what it changed or returned; notify the observer. Nothing is forwarded without the secret of an active
run. Responses of the API server are not changed; errors of the proxy itself are Status objects.
"""

import asyncio
import hashlib
import secrets
import socket
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Self

from aiohttp import web
from structlog.contextvars import bound_contextvars

from rolecall.kube.bodies import MAX_INSPECTED_BYTES
from rolecall.kube.client import Client
from rolecall.kube.metadata import resource_version_of
from rolecall.kube.references import ObjectKey
from rolecall.runner.proxy import forward
from rolecall.runner.proxy.bodies import BodyWorker, read_body
from rolecall.runner.proxy.forward import Headers, TraceContext, buffered_response, relay, upstream_headers
from rolecall.runner.proxy.read_inspection import Inspection, ReadInspector, inspect_read, read_unserved
from rolecall.runner.proxy.request_info import authority_of, is_valid_target, origin_form, parse
from rolecall.runner.proxy.seen_objects import seen_object
from rolecall.runner.proxy.sessions import (
    SEPARATOR,
    Caller,
    ProxiedRequest,
    ProxiedRun,
    ProxyCredentials,
    RequestInterceptor,
    RequestOrigin,
    Session,
)
from rolecall.runner.proxy.upgrade import ConnectTunnels, forward_upgrade, is_own_address, is_upgrade
from rolecall.runner.proxy.writes import Writes, removed_uids, with_delete_options
from rolecall.runner.serving.authentication import basic_credentials, bearer_token
from rolecall.system.clock import SYSTEM_CLOCK, Clock
from rolecall.system.limited_listener import BACKLOG, LimitedListener, RequestLog
from rolecall.system.logs import get_logger

logger = get_logger("proxy")

HEADER_BYTES = 1 << 20
SECRET_BYTES = 32
SHUTDOWN_SECONDS = 1.0
CONNECTIONS = 512
"""The maximum number of connections of all runs together."""

_NAME = "proxy-port"


class Proxy:
    """Serves the Kubernetes API to runs. Enter it before ``register``.

    With ``port`` 0 the system chooses a free port. Writes are rejected when ``may_write`` returns False, because
    another replica may be the leader. An ``interceptor`` is awaited before each request.
    """

    def __init__(
        self,
        client: Client,
        port: int = 0,
        may_write: Callable[[], bool] = lambda: True,
        interceptor: RequestInterceptor | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client = client
        self._host, self._port = "127.0.0.1", port
        self._may_write = may_write
        self._interceptor = interceptor
        self._clock = clock
        self._sessions: dict[bytes, Session] = {}
        """The sessions by the digest of their secret, which is stored nowhere."""
        self._tunnels = ConnectTunnels()
        self._worker = BodyWorker()
        self._writes = Writes(client, self._worker)
        self._read_inspector = ReadInspector(client)
        self._runner: web.ServerRunner | None = None
        self._listener: LimitedListener | None = None

    async def __aenter__(self) -> Self:
        """Listen. Raises OSError if the port is in use."""
        server = web.Server(
            self._handle,
            handler_cancellation=True,
            access_log=None,
            logger=RequestLog(_NAME),
            auto_decompress=False,
            max_line_size=HEADER_BYTES,
            max_field_size=HEADER_BYTES,
        )
        listener = socket.create_server((self._host, self._port))
        self._listener = LimitedListener(listener, CONNECTIONS, CONNECTIONS, _NAME)
        self._port = self._listener.getsockname()[1]
        self._runner = web.ServerRunner(server, shutdown_timeout=SHUTDOWN_SECONDS)
        await self._runner.setup()
        await web.SockSite(self._runner, self._listener, backlog=BACKLOG).start()
        logger.info("Proxy started", url=self.url)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Revoke every run, close all connections and stop listening."""
        for session in list(self._sessions.values()):
            await self.revoke(session.run)
        if self._runner is not None:
            await self._runner.cleanup()
        self._worker.stop()

    @property
    def url(self) -> str:
        """The URL of the proxy, without a secret."""
        return f"http://{self._host}:{self._port}"

    def register(self, run: ProxiedRun) -> ProxyCredentials:
        """Start a session for a run and return its credentials."""
        secret = secrets.token_urlsafe(SECRET_BYTES)
        self._sessions[_digest(secret)] = Session(run)
        return ProxyCredentials(self.url, secret, run.owner.key.namespace)

    async def revoke(self, run: ProxiedRun) -> None:
        """End the session of a run. When this returns, its secret is invalid and none of its requests is in flight."""
        revoked = [digest for digest, session in self._sessions.items() if session.run is run]
        await asyncio.gather(*(self._sessions.pop(digest).revoke() for digest in revoked))

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Authenticate a request, respond to it, and notify the observer of its run."""
        if self._listener is None or self._runner is None or self._runner.server is None:
            return forward.unauthorized()
        caller = self._authenticate(request)
        if caller is None:
            if request.method == "CONNECT":  # the Python client opens its tunnels without credentials
                return await self._tunnels.serve(request, None, self._runner.server)
            return forward.unauthorized()
        session, run = caller.session, caller.session.run
        in_use = self._listener.in_use(request.transport)
        with in_use, session.track_request(), bound_contextvars(**run.log_fields):
            if request.method == "CONNECT":
                return await self._tunnels.serve(request, caller, self._runner.server)
            target = origin_form(request.raw_path)
            if (rejected := _rejected(request, target)) is not None:
                return rejected
            info = parse(request.method, target)
            content_type = request.headers.get("Content-Type", "")
            context = TraceContext.of_request(request.headers, run.new_traceparent)
            facts = caller.origin, request.method, target, info, self._clock.now(), 0.0, content_type
            proxied = ProxiedRequest(*facts, context=context, session=session)
            response: web.StreamResponse | None = None
            try:
                response = await self._respond(request, proxied)
            except Exception as error:
                response = forward.gateway_error(error, self._client.base_url)
                if response is None:
                    logger.exception("Proxy request failed", method=request.method, target=target)
                    response = forward.internal_error(error)
            finally:
                run.responded(proxied.named_info, 0 if response is None else response.status, proxied.seen)
                if run.is_recorded:
                    proxied.finish(request, response)
                    run.exchanged(proxied)
            return response

    def _authenticate(self, request: web.BaseRequest) -> Caller | None:
        """Return the caller of a request, from its headers or from the CONNECT tunnel it came through.

        The secret is the token of a Bearer header, or the user name of a Basic header. Only the secret is verified, not
        the name of the task that follows it.
        """
        for name in ("Authorization", "Proxy-Authorization"):
            header = request.headers.get(name, "")
            secret, _, task = (bearer_token(header) or basic_credentials(header)[0]).partition(SEPARATOR)
            if session := self._sessions.get(_digest(secret)):
                return Caller(session, RequestOrigin.parse(task))
        return self._tunnels.caller_of(request)

    async def _respond(self, request: web.BaseRequest, proxied: ProxiedRequest) -> web.StreamResponse:
        """Prepare a request and forward it."""
        if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if proxied.info.is_write:  # the body of any other request is forwarded as it arrives
            body = proxied.body = await read_body(request)
            content_type = proxied.content_type
            proxied.info = await self._worker.run(body, lambda: with_delete_options(proxied.info, body, content_type))
        if self._interceptor is not None and (intercepted := await self._interceptor(proxied)) is not None:
            return intercepted
        if is_upgrade(request) and proxied.info.may_upgrade:
            if not self._may_write():
                return forward.not_leading()
            return await forward_upgrade(request, self._client, proxied.context)
        headers = upstream_headers(request.headers, proxied.context)
        if not proxied.info.is_write:
            return await self._read(request, proxied, headers)
        return await proxied.session.shield_write(self._write(proxied, headers))

    async def _write(self, proxied: ProxiedRequest, headers: Headers) -> web.StreamResponse:
        """Send a write, and record what it changed before the run gets the response."""
        session, run, info = proxied.session, proxied.run, proxied.info
        if not self._may_write():
            return forward.not_leading()
        if not info.is_dry_run:
            run.about_to_write(info.group)
        # The response must be decodable here: uncompressed, and in JSON if the client accepts it.
        for name in ("Accept-Encoding", "Content-Length"):
            headers.popall(name, None)
        accepted = headers.get("Accept", "*/*")
        if "application/json" in accepted and "protobuf" in accepted:
            headers["Accept"] = "application/json"
        result = await self._writes.send(proxied, headers)
        if result.objects is not None:
            now = self._clock.now()
            proxied.seen = tuple(seen_object(info, obj, run.owner, now) for obj in result.objects)
        for obj in result.changed:
            session.record_version(info, resource_version_of(obj), ObjectKey.of_object(obj).name)
            run.wrote(obj)
        for uid in await self._worker.run(result.body, lambda: removed_uids(proxied, result)):
            run.deleted(uid)
        return buffered_response(result.response, result.body)

    async def _read(self, request: web.BaseRequest, proxied: ProxiedRequest, headers: Headers) -> web.StreamResponse:
        """Forward a request other than a write, and inspect its response."""
        info = proxied.info
        pending, is_unserved = await self._read_inspector.register(proxied)
        needs = {"needs_content": pending is not None, "needs_keys": pending is not None and pending.needs_keys}
        needs["needs_all"] = proxied.run.follows_waiting
        status, found = 0, Inspection()
        data = request.content if request.body_exists else None
        timeout = forward.LONG_RUNNING_TIMEOUT if info.is_long_running else forward.REQUEST_TIMEOUT
        try:
            async with await forward.send(
                self._client, request.method, proxied.target, headers, data=data, timeout=timeout
            ) as upstream_response:
                status = upstream_response.status
                if is_unserved:
                    whole = await read_unserved(info, upstream_response, self._worker)
                    return buffered_response(upstream_response, whole)
                is_inspected = self._read_inspector.should_inspect(info, upstream_response)
                capture = proxied.capture_response(MAX_INSPECTED_BYTES if is_inspected else None)
                response = await relay(request, upstream_response, capture)
                if is_inspected and capture is not None and (body := capture.body):
                    inspect = partial(inspect_read, body, info, proxied.run.owner, self._clock.now(), **needs)
                    found = await self._worker.run(body, inspect)
                    proxied.seen = found.seen
        finally:
            if pending is not None:
                if status == HTTPStatus.NOT_FOUND and not info.tells_absence(status):
                    status = 0
                pending.record_response(status, found.content if status == HTTPStatus.OK else None, found.keys)
        await self._read_inspector.report(proxied, found)
        return response


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="surrogateescape")).digest()


def _rejected(request: web.BaseRequest, target: str) -> web.Response | None:
    """Return the response to a request for another server, or with an invalid target; None for any other."""
    server = authority_of(request.raw_path)
    if server and (request.transport is None or not is_own_address(request.transport, server)):
        return forward.other_server(request.raw_path)
    return None if is_valid_target(target) else forward.bad_request(target)
