"""The proxy's HTTP server: an API endpoint on loopback that knows which run sends each request.

Each request takes the same path: authenticate the run; upgrade the connection if requested; prepare writes; forward
the request to the API server; record what it changed or returned. Without the secret of an active run nothing is
forwarded. Responses of the API server are not changed; errors of the proxy itself are Status objects.

CONNECT tunnels, which client-go opens because it uses the proxy as an HTTP proxy.

For exec and port-forward, client-go sends CONNECT to get a connection to the server behind the HTTP proxy. That server
is the proxy itself, so the proxy continues to serve HTTP on the same connection. Requests inside the tunnel carry no
secret; they belong to the run that opened the tunnel, until it is revoked. Any other destination is refused.

The credentials of a run for the proxy: a URL and a secret, as environment variables and as a kubeconfig.

Clients differ. The Python client and kubernetes.core send a token over plain HTTP. client-go (kubectl, helm) does not;
over plain HTTP it sends only credentials that are part of a URL. It also names its caches after the server's URL, which
should therefore be the same for all runs. So the kubeconfig uses the proxy's address twice: without the secret as the
server, and with it as the ``proxy-url``. The secret never appears in a ``repr``.
"""

import asyncio
import json
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web
from structlog.contextvars import bound_contextvars

from rolecall.kube.client import Client
from rolecall.kube.metadata import resource_version_of
from rolecall.kube.references import ObjectKey
from rolecall.runner.proxy import forward as error_responses
from rolecall.runner.proxy.bodies import MAX_INSPECTED_BYTES, BodyWorker, read_body
from rolecall.runner.proxy.conditional_writes import ConditionalWrites, removed_uid
from rolecall.runner.proxy.forward import (
    BodyCapture,
    Headers,
    TraceContext,
    Upstream,
    buffered_response,
    error_response,
    relay,
    upstream_headers,
)
from rolecall.runner.proxy.owner_injection import OwnerInjector, WriteRequest
from rolecall.runner.proxy.reads import DependentDiscovery, Inspection, inspect_read
from rolecall.runner.proxy.request_info import RequestInfo, is_valid_target, origin_form, parse
from rolecall.runner.proxy.sessions import (
    Answer,
    Caller,
    Observation,
    ProxiedRequest,
    ReadTracking,
    RequestInterceptor,
    RequestOrigin,
    Session,
    Sessions,
    SessionSpec,
    tracked,
)
from rolecall.runner.proxy.upgrade import HijackedResponse, forward_upgrade, is_upgrade
from rolecall.system.limited_listener import LimitedListener
from rolecall.system.logs import get_logger


class _TunnelProtocol(asyncio.Protocol):
    """Serves a connection with the inner protocol, and notifies the outer one when it is lost."""

    def __init__(self, inner: asyncio.Protocol, outer: asyncio.BaseProtocol) -> None:
        self._inner, self._outer = inner, outer
        self.data_received = inner.data_received  # type: ignore[method-assign] # no extra call per chunk
        self.pause_writing = inner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = inner.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to serve."""
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify both protocols."""
        self._inner.connection_lost(exc)
        self._outer.connection_lost(exc)


@dataclass(slots=True)
class ConnectTunnel:
    """The open CONNECT tunnels."""

    _callers: dict[asyncio.BaseTransport, Caller] = field(default_factory=dict)

    def caller_of(self, request: web.BaseRequest) -> Caller | None:
        """Return the caller who opened the tunnel of a request, None for an ordinary connection.

        A revoked session has none: a request could arrive between the revocation and the end of the tunnel.
        """
        caller = None if request.transport is None else self._callers.get(request.transport)
        return None if caller is None or caller.session.is_revoked else caller

    async def serve(self, request: web.BaseRequest, caller: Caller, server: web.Server) -> web.StreamResponse:
        """Serve a tunnel until it is closed or the run is revoked."""
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the run has closed its connection")
        if not _is_own_address(request.raw_path, transport):
            message = f"found CONNECT to {request.raw_path!r}, expected the address of the proxy itself"
            return error_response(HTTPStatus.FORBIDDEN, "Forbidden", message)
        self._callers[transport] = caller
        try:
            transport.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            protocol = _TunnelProtocol(server(), transport.get_protocol())
            transport.set_protocol(protocol)
            protocol.connection_made(transport)
            await asyncio.get_running_loop().create_future()
        finally:
            del self._callers[transport]
            transport.close()
        return HijackedResponse()


def _is_own_address(destination: str, transport: asyncio.Transport) -> bool:
    host, _, port = destination.rpartition(":")
    own_host, own_port = transport.get_extra_info("sockname")[:2]
    return host in {own_host, "localhost"} and port == str(own_port)


_LOOPBACK: Final = ("127.0.0.1", "localhost")
_NO_PROXY: Final = ("NO_PROXY", "no_proxy")
_PROXY: Final = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", *_NO_PROXY)
_CLUSTER: Final = "proxy-server"


@dataclass(frozen=True, slots=True)
class ProxyCredentials:
    """The credentials of one run, valid until the run is revoked.

    ``url`` is the same for all runs; ``namespace`` is the primary's namespace, empty for a cluster-scoped primary.
    """

    url: str
    secret: str = field(repr=False)
    namespace: str = ""

    def environment(self, inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Return the variables to add to a play's environment; ``inherited`` is the environment without them.

        ``NO_PROXY`` is among them only if the inherited environment configures a proxy: roles copy these variables into
        the objects that they create.
        """
        variables = {"K8S_AUTH_HOST": self.url, "K8S_AUTH_API_KEY": self.secret}
        if not any(inherited.get(name) for name in _PROXY):
            return variables
        return variables | {name: _with_loopback(_no_proxy(name, inherited)) for name in _NO_PROXY}

    def kubeconfig(self) -> str:
        """Return the content of a kubeconfig file (JSON, which is YAML). It contains the secret: restrict access."""
        context, user = f"{self.namespace}/{_CLUSTER}", f"admin/{_CLUSTER}"
        scheme, _, address = self.url.partition("://")
        # client-go's WebSocket dialer sends the user name only if there is a password.
        proxy_url = f"{scheme}://{self.secret}:unused@{address}"
        content: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": _CLUSTER, "cluster": {"server": self.url, "proxy-url": proxy_url}}],
            "users": [{"name": user, "user": {"token": self.secret}}],
            "contexts": [{"name": context, "context": {"cluster": _CLUSTER, "user": user}}],
            "current-context": context,
            "preferences": {},
        }
        return json.dumps(content)


def _no_proxy(name: str, inherited: Mapping[str, str]) -> str:
    """Return the value of a variable, or of its other form: a client takes the first of the two that is set."""
    return next(filter(None, (inherited.get(each, "") for each in (name, *_NO_PROXY))), "")


def _with_loopback(excluded: str) -> str:
    """Return a ``NO_PROXY`` list that includes loopback."""
    hosts = [host.strip() for host in excluded.split(",") if host.strip()]
    return ",".join([*hosts, *(host for host in _LOOPBACK if host not in hosts)])


logger = get_logger("proxy")

HEADER_BYTES = 1 << 20
SHUTDOWN_SECONDS = 1.0
CONNECTIONS = 512
"""How many connections all runs together have at most."""


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """A request of a run: its session and task, the target in origin form and parsed, and what is observed of it."""

    session: Session
    origin: RequestOrigin
    target: str
    info: RequestInfo
    observation: Observation


class Proxy:
    """Serves the Kubernetes API to runs. Call ``start`` before ``register``, and ``stop`` at the end.

    With ``port`` 0 the system chooses a free port. Writes are refused when ``may_write`` returns False, because another
    replica may be the leader. A ``interceptor`` is awaited before each request.
    """

    def __init__(
        self,
        client: Client,
        port: int = 0,
        may_write: Callable[[], bool] = lambda: True,
        interceptor: RequestInterceptor | None = None,
    ) -> None:
        self._host, self._port = "127.0.0.1", port
        self._may_write = may_write
        self._interceptor = interceptor
        self._sessions = Sessions()
        self._tunnel = ConnectTunnel()
        self._upstream = Upstream(client)
        self._worker = BodyWorker()
        self._owner_injector = OwnerInjector(client, self._upstream, self._worker)
        self._dependents = DependentDiscovery(client)
        self._reads = ReadTracking(client)
        self._conditional_writes = ConditionalWrites(self._upstream, self._worker)
        self._runner: web.ServerRunner | None = None
        self._listener: LimitedListener | None = None

    async def start(self) -> None:
        """Listen. Raises OSError if the port is in use."""
        server = web.Server(
            self._handle,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            max_line_size=HEADER_BYTES,
            max_field_size=HEADER_BYTES,
        )
        self._listener = LimitedListener(socket.create_server((self._host, self._port)), CONNECTIONS, "proxy-port")
        self._port = self._listener.getsockname()[1]
        self._runner = web.ServerRunner(server, shutdown_timeout=SHUTDOWN_SECONDS)
        await self._runner.setup()
        await web.SockSite(self._runner, self._listener).start()
        logger.info("Proxy started", url=self.url)

    async def stop(self) -> None:
        """Revoke every run, close all connections and stop listening."""
        await self._sessions.revoke_all()
        if self._runner is not None:
            await self._runner.cleanup()
        await self._upstream.close()
        self._worker.stop()

    @property
    def url(self) -> str:
        """The URL of the proxy, without a secret."""
        return f"http://{self._host}:{self._port}"

    def register(self, spec: SessionSpec) -> ProxyCredentials:
        """Start a session for a run and return its credentials."""
        return ProxyCredentials(self.url, self._sessions.add(spec), spec.key.namespace)

    async def revoke(self, spec: SessionSpec) -> None:
        """End the session of a run. When this returns, its secret is invalid and none of its requests is in flight."""
        await self._sessions.revoke(spec)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        caller = self._authenticate(request)
        if caller is None or self._listener is None or self._runner is None or self._runner.server is None:
            return error_responses.unauthorized()
        in_use = self._listener.in_use(request.transport)
        with in_use, caller.session.track_request(), bound_contextvars(**caller.session.spec.log_fields):
            if request.method == "CONNECT":
                return await self._tunnel.serve(request, caller, self._runner.server)
            return await self._respond(request, caller)

    def _authenticate(self, request: web.BaseRequest) -> Caller | None:
        """Return the caller of a request, from its headers or from the CONNECT tunnel it came through."""
        headers = (request.headers.get(name, "") for name in ("Authorization", "Proxy-Authorization"))
        found = next(filter(None, map(self._sessions.authenticate, filter(None, headers))), None)
        return found or self._tunnel.caller_of(request)

    async def _respond(self, request: web.BaseRequest, caller: Caller) -> web.StreamResponse:
        target = origin_form(request.raw_path)
        if not is_valid_target(target):
            return error_responses.bad_request(target)
        info = parse(request.method, target)
        observation = Observation(caller.session.spec.on_exchange, caller.origin, request, info)
        observation.context = TraceContext.of_request(request.headers, caller.session.spec.new_traceparent)
        response: web.StreamResponse | None = None
        try:
            session_request = SessionRequest(caller.session, caller.origin, target, info, observation)
            response = await self._answer(request, session_request)
        finally:
            observation.finish(target, response)
        return response

    async def _answer(self, request: web.BaseRequest, session_request: SessionRequest) -> web.StreamResponse:
        target = session_request.target
        try:
            body = await self._body(request, session_request)
            answer = await self._pass_gate(request, session_request, body)
            if answer is not None:
                return answer
            if is_upgrade(request) and session_request.info.may_upgrade:
                if not self._may_write():
                    return error_responses.not_leading()
                return await forward_upgrade(request, self._upstream, session_request.observation.context)
            return await self._forward(request, session_request, body)
        except Exception as error:
            response = error_responses.gateway_error(error, self._upstream.base_url)
            if response is None:
                logger.exception("Proxy request failed", method=request.method, target=target)
            return response or error_responses.internal_error(error)

    async def _body(self, request: web.BaseRequest, session_request: SessionRequest) -> bytes:
        """Return the body of a write; that of any other request is forwarded as it arrives."""
        if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if not session_request.info.is_write:
            return b""
        body = session_request.observation.body = await read_body(request)
        return body

    async def _pass_gate(
        self, request: web.BaseRequest, session_request: SessionRequest, body: bytes
    ) -> web.Response | None:
        if self._interceptor is None:
            return None
        path, _, query = session_request.target.partition("?")
        content_type = request.headers.get("Content-Type", "")
        spec, origin, info = session_request.session.spec, session_request.origin, session_request.info
        return await self._interceptor.before(ProxiedRequest(spec, origin, info, path, query, body, content_type))

    async def _forward(
        self, request: web.BaseRequest, session_request: SessionRequest, body: bytes
    ) -> web.StreamResponse:
        session, target, info = session_request.session, session_request.target, session_request.info
        observation = session_request.observation
        headers = upstream_headers(request.headers)
        observation.context.put_into(headers)
        if info.is_write:
            write = WriteRequest(request.method, info, target, headers.get("Content-Type", ""), body)
            _request_decodable_response(headers)
            write = replace(write, body=await self._owner_injector.inject(session, write))
            observation.sent = write.body
            return await session.shield_write(self._send_write(session, write, headers))
        pending = await self._reads.register(session.spec.reads, info, target)
        with tracked(pending) as answer:
            return await self._read(request, session_request, headers, answer)

    async def _read(
        self, request: web.BaseRequest, session_request: SessionRequest, headers: Headers, answer: Answer
    ) -> web.StreamResponse:
        """Forward a request that is no write."""
        session, target, info = session_request.session, session_request.target, session_request.info
        body_stream = request.content if request.body_exists else None
        async with await self._upstream.send(
            request.method, target, headers, body_stream, is_long_running=info.is_long_running
        ) as upstream_response:
            answer.status = upstream_response.status
            is_inspected = self._dependents.should_inspect(info, upstream_response)
            capture = BodyCapture(MAX_INSPECTED_BYTES) if is_inspected else None
            response = await relay(request, upstream_response, session_request.observation.capture(capture))
            found = await self._inspect(session, info, None if capture is None else capture.body, answer)
        await self._dependents.report(session, info, found)
        return response

    async def _inspect(self, session: Session, info: RequestInfo, body: bytes | None, answer: Answer) -> Inspection:
        if not body:
            return Inspection()
        is_tracked = session.spec.reads is not None

        def inspect() -> Inspection:
            return inspect_read(body, info, session.spec.owner, needs_content=is_tracked, needs_keys=answer.needs_keys)

        found = await self._worker.run(body, inspect)
        answer.content, answer.keys = found.content, found.keys
        return found

    async def _send_write(self, session: Session, write: WriteRequest, headers: Headers) -> web.StreamResponse:
        """Send a write, and record what it changed before the run gets the response."""
        if not self._may_write():
            return error_responses.not_leading()
        if session.spec.before_write is not None and not write.info.is_dry_run:
            session.spec.before_write(write.info.group)
        result = await self._conditional_writes.send(session, write, headers)
        for obj in result.changed:
            session.record_version(write.info, resource_version_of(obj), ObjectKey.of_object(obj).name)
            session.spec.on_write(obj)
        uid = await self._worker.run(result.body, lambda: removed_uid(write.info, result))
        if uid and session.spec.on_removal is not None:
            session.spec.on_removal(uid)
        return buffered_response(result.response, result.body)


def _request_decodable_response(headers: Headers) -> None:
    """Ask for a response to a write that can be decoded here: uncompressed, and in JSON if the client accepts it."""
    for name in ("Accept-Encoding", "Content-Length"):
        headers.popall(name, None)
    accepted = headers.get("Accept", "*/*")
    if "application/json" in accepted and "protobuf" in accepted:
        headers["Accept"] = "application/json"
