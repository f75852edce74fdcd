"""The endpoint that runs talk to: an API server on loopback that knows which run is asking.

Each request goes the same way: who asks; does it leave HTTP; what does it write; on to the API server; what did it
change or show. Without the secret of a live run nothing goes through. What the API server answers passes unchanged;
what the proxy itself has to say are Status objects. Neighbours: the modules of this package, one for each step.
"""

from http import HTTPStatus

import aiohttp
from aiohttp import web

from rolecall.jobs.proxy import refusals
from rolecall.jobs.proxy.bodies import decode, objects_in
from rolecall.jobs.proxy.credentials import Credentials
from rolecall.jobs.proxy.forward import (
    Body,
    Copy,
    Headers,
    Upstream,
    end_to_end,
    relay,
    whole_answer,
    without_run_credentials,
)
from rolecall.jobs.proxy.reads import LOOKED_THROUGH_BYTES, Reads
from rolecall.jobs.proxy.request_info import RequestInfo, origin_form, parse
from rolecall.jobs.proxy.runs import LiveRun, ProxyRun, Runs
from rolecall.jobs.proxy.upgrade import is_upgrade, tunnel
from rolecall.jobs.proxy.within import Within
from rolecall.jobs.proxy.writes import Write, Writes
from rolecall.kube.client import Client
from rolecall.kube.errors import KubeError, UnreachableError
from rolecall.kube.metadata import resource_version_of, uid_of
from rolecall.logs import get_logger

logger = get_logger("proxy")

HEADER_BYTES = 1 << 20
SHUTDOWN_SECONDS = 1.0


class Proxy:
    """Serves the API server to runs. Call ``start`` before ``register``, and ``stop`` at the end.

    ``port`` 0 takes a free one.
    """

    def __init__(self, client: Client, port: int = 0, host: str = "127.0.0.1") -> None:
        self._client = client
        self._host, self._port = host, port
        self._runs = Runs()
        self._within = Within()
        self._runner: web.ServerRunner | None = None
        self._upstream: Upstream | None = None

    async def start(self) -> None:
        """Listen. Raises OSError when the port is taken."""
        self._upstream = Upstream(self._client)
        self._writes, self._reads = Writes(self._client, self._upstream), Reads(self._client)
        server = self._within.server = web.Server(
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
        await self._runs.revoke_all()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._upstream is not None:
            await self._upstream.close()

    @property
    def url(self) -> str:
        """The URL to reach the proxy by, without any secret."""
        return f"http://{self._host}:{self._port}"

    def register(self, run: ProxyRun) -> Credentials:
        """Let a run in and return what it needs to know."""
        return Credentials(self.url, self._runs.add(run), run.key.namespace)

    async def revoke(self, run: ProxyRun) -> None:
        """Shut a run out. When this returns none of its requests is under way and its secret is worth nothing."""
        await self._runs.revoke(run)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        live = self._who_asks(request)
        if live is None or self._upstream is None:
            return refusals.unauthorized()
        with live.request_under_way():
            if request.method == "CONNECT":
                return await self._within.serve(request, live)
            return await self._answer(request, live.run, self._upstream)

    def _who_asks(self, request: web.BaseRequest) -> LiveRun | None:
        """Return the run that a request comes from, by its own word or by that of its connection."""
        headers = (request.headers.get(name, "") for name in ("Authorization", "Proxy-Authorization"))
        found = next(filter(None, map(self._runs.authenticate, filter(None, headers))), None)
        return found or self._within.run_of(request)

    async def _answer(self, request: web.BaseRequest, run: ProxyRun, upstream: Upstream) -> web.StreamResponse:
        try:
            if is_upgrade(request):
                return await tunnel(request, upstream)
            return await self._forward(request, run, upstream)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, UnreachableError) as error:
            return refusals.unreachable(upstream.base_url, error)
        except (aiohttp.ClientError, EOFError, OSError, KubeError) as error:
            return refusals.broken(upstream.base_url, error)
        except Exception as error:
            logger.exception("Proxy request failed", method=request.method, target=request.raw_path)
            return refusals.failed(error)

    async def _forward(self, request: web.BaseRequest, run: ProxyRun, upstream: Upstream) -> web.StreamResponse:
        target = origin_form(request.raw_path)
        info = parse(request.method, target)
        headers = without_run_credentials(end_to_end(request.headers))
        if info.is_write:
            _ask_for_plain_json(headers)
        body = await self._body(request, run, info, headers)
        async with await upstream.send(request.method, target, headers, body) as answer:
            if info.is_write:
                return await _relay_write(run, info, answer)
            copy = Copy(LOOKED_THROUGH_BYTES) if self._reads.may_show_dependents(run, info, answer) else None
            response = await relay(request, answer, copy)
        if copy is not None and copy.body:
            await self._reads.look_through(run, info, copy.body)
        return response

    async def _body(self, request: web.BaseRequest, run: ProxyRun, info: RequestInfo, headers: Headers) -> Body:
        """Return the body to send, and fit the headers to it."""
        if not request.body_exists:
            return None
        if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if not info.is_write:
            return request.content
        headers.popall("Content-Length", None)
        body = await request.content.read()
        write = Write(info, origin_form(request.raw_path), headers.get("Content-Type", ""), body)
        return body if "Content-Encoding" in headers else await self._writes.body_for(run, write)


def _ask_for_plain_json(headers: Headers) -> None:
    """Narrow down what the answer to a write may be to what can be read here, where the client allows it."""
    headers.popall("Accept-Encoding", None)
    accepted = headers.get("Accept", "*/*")
    if "application/json" in accepted and "protobuf" in accepted:
        headers["Accept"] = "application/json"


async def _relay_write(run: ProxyRun, info: RequestInfo, answer: aiohttp.ClientResponse) -> web.Response:
    """Pass the answer to a write on, after the run's objects in it have been noted."""
    body = await answer.read()
    is_success = HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES
    if is_success and not info.is_dry_run:
        for obj in objects_in(decode(body, answer.headers.get("Content-Type", ""))):
            if uid_of(obj) and resource_version_of(obj):
                run.on_write(obj)
    return whole_answer(answer, body)
