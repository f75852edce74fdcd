"""Forwarding of requests to the API server, and of its responses to the run, byte for byte.

Bodies are streamed unless the proxy must inspect them. Nothing is decompressed and no redirect is followed. Watches and
followed logs have no time limit; for all other requests the read timeout applies. The run's credentials are removed
from the request and replaced with the operator's. A ``traceparent`` of the request itself is kept; any other request of
a run with a trace gets one, so that the API server continues the trace.

Errors of the proxy itself are Status objects, as every Kubernetes client expects. kubernetes.core and kubectl show
their message to users, so it names the failure and its place. Programs evaluate the code and the reason, which are
those that an API server would use.
"""

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Self

import aiohttp
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from rolecall.kube.client import ACCEPT_PARTIAL_OBJECT, Client, without_managed_fields
from rolecall.kube.connection import read_object
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import ApiError, ForbiddenError, KubeError, UnreachableError, UnreadableError
from rolecall.kube.references import RawObject
from rolecall.kube.transport import text_of
from rolecall.runner.proxy.request_info import RequestInfo

CONNECT_TIMEOUT_SECONDS: Final = 10.0
READ_TIMEOUT_SECONDS: Final = 120.0
"""The read timeout for requests that are not long-running; the API server's own default limit for them is 60 s."""

DISCOVERY_RETRY_SECONDS: Final = (0.1, 0.5, 2.0)
"""How long to wait before each further attempt to discover a kind."""

MAX_BUFFERED_BYTES: Final = 1 << 20
_HOP_BY_HOP_HEADERS: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
LONG_RUNNING_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_SECONDS)
REQUEST_TIMEOUT: Final = aiohttp.ClientTimeout(
    total=None, sock_connect=CONNECT_TIMEOUT_SECONDS, sock_read=READ_TIMEOUT_SECONDS
)
_REPLACED_HEADERS: Final = frozenset({"authorization", "expect", "host"})
_ACCEPT_PARTIAL_OBJECT: Final = f"{ACCEPT_PARTIAL_OBJECT},application/json"
_AUTO_HEADERS: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")

Headers = CIMultiDict[str]


_TRACEPARENT: Final = "traceparent"
_VALID: Final = re.compile(r"(?!ff|00.{53}-)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")

NewTraceparent = Callable[[], str]
"""Returns the ``traceparent`` for the next request of a run."""


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The ``traceparent`` that a request had (``carried``), or that the proxy has added (``given``)."""

    given: str = ""
    carried: str = ""

    @classmethod
    def of_request(cls, headers: CIMultiDictProxy[str] | Headers, new_traceparent: NewTraceparent | None) -> Self:
        """Return the context of a request; it is empty if its run has no trace."""
        if new_traceparent is None:
            return cls()
        found = headers.getall(_TRACEPARENT, [])
        if len(found) == 1 and _VALID.fullmatch(found[0]):
            return cls(carried=found[0])
        return cls(given=new_traceparent())

    def add_to(self, headers: Headers) -> None:
        """Replace a ``traceparent`` with the given one; a ``tracestate`` belongs to the replaced one."""
        if self.given:
            headers.popall("tracestate", None)
            headers[_TRACEPARENT] = self.given


NO_CONTEXT: Final = TraceContext()


def end_to_end_headers(headers: CIMultiDictProxy[str] | Headers) -> Headers:
    """Return the headers without the hop-by-hop ones: the standard ones, and those that ``Connection`` names.

    Names are written as Go does. Of a name in two spellings, aiohttp would send only the last value.
    """
    named = {token.strip().lower() for value in headers.getall("Connection", []) for token in value.split(",")}
    return CIMultiDict(
        (name.title(), value) for name, value in headers.items() if name.lower() not in _HOP_BY_HOP_HEADERS | named
    )


def upstream_headers(headers: CIMultiDictProxy[str] | Headers, context: TraceContext = NO_CONTEXT) -> Headers:
    """Return the headers to forward: the end-to-end ones of a request, with its trace but not the run's credentials."""
    forwarded = end_to_end_headers(headers)
    for name in _REPLACED_HEADERS:
        forwarded.popall(name, None)
    context.add_to(forwarded)
    return forwarded


@dataclass(slots=True)
class BodyCapture:
    """A copy of a response body that is being forwarded; dropped (``body`` is None) beyond the limit in bytes."""

    limit: int
    _chunks: list[bytes] = field(default_factory=list)
    _length: int = 0

    def add(self, chunk: bytes) -> None:
        """Add the next chunk."""
        self._length += len(chunk)
        if self._length > self.limit:
            self._chunks.clear()
        else:
            self._chunks.append(chunk)

    @property
    def body(self) -> bytes | None:
        """The body so far, None if it is too long."""
        return b"".join(self._chunks) if self._length <= self.limit else None


async def send(
    client: Client, method: str, target: str, headers: Mapping[str, str], **options: Any
) -> aiohttp.ClientResponse:
    """Send a request as the operator and return the response with its body unread; the caller releases it.

    ``target`` is the path and query as in the request line; ``options`` are those of ``Client.send``. Raises
    aiohttp.ClientError and OSError, and aiohttp.SocketTimeoutError if the read timeout expires.
    """
    unchanged = {"allow_redirects": False, "auto_decompress": False, "skip_auto_headers": _AUTO_HEADERS}
    url = URL(client.base_url + target, encoded=True)
    return await client.send(method, url, headers, **({"timeout": REQUEST_TIMEOUT} | unchanged | options))


async def read_metadata(client: Client, path: str) -> tuple[int, RawObject]:
    """Read the metadata of an object; return the status, and for 200 the object with its metadata only.

    Managed fields that are too deeply nested are left out.
    """
    async with await send(client, "GET", path, {"Accept": _ACCEPT_PARTIAL_OBJECT}) as response:
        body = await response.read()
    if response.status != HTTPStatus.OK:
        return response.status, {}
    try:
        return response.status, read_object(body, f"GET {path}")
    except UnreadableError:
        return response.status, read_object(without_managed_fields(body, b"}}"), f"GET {path}")


async def discovered(client: Client, info: RequestInfo) -> ApiResource | None:
    """Return the kind of a request; None if the API server doesn't serve it.

    Raise KubeError if discovery fails for now. A gateway, too, may say for a moment that a kind isn't served, and then
    an object would stay without its owner, or a read unfollowed, indefinitely. So only the last answer counts.
    """
    for seconds in DISCOVERY_RETRY_SECONDS:
        try:
            found = await client.resource_for_path(info.group, info.version, info.resource)
        except ForbiddenError:
            raise
        except KubeError:
            found = None
        if found is not None:
            return found
        await asyncio.sleep(seconds)
    return await client.resource_for_path(info.group, info.version, info.resource)


def buffered_response(upstream_response: aiohttp.ClientResponse, body: bytes) -> web.Response:
    """Return the response to a run from the API server's response, whose body has been read."""
    headers = end_to_end_headers(upstream_response.headers)
    headers.popall("Content-Length", None)
    return web.Response(status=upstream_response.status, reason=upstream_response.reason, headers=headers, body=body)


async def relay(
    request: web.BaseRequest, upstream_response: aiohttp.ClientResponse, capture: BodyCapture | None
) -> web.StreamResponse:
    """Forward a response as it arrives, and add its body to ``capture``.

    If the API server closes the connection before the end, the run's connection is aborted too: an incomplete response
    must not look complete.
    """
    length = upstream_response.content_length
    if length is not None and length <= MAX_BUFFERED_BYTES and request.method != "HEAD":
        body = await upstream_response.read()
        if capture is not None:
            capture.add(body)
        return buffered_response(upstream_response, body)
    headers = end_to_end_headers(upstream_response.headers)
    response = web.StreamResponse(status=upstream_response.status, reason=upstream_response.reason, headers=headers)
    await response.prepare(request)
    try:
        async for chunk in upstream_response.content.iter_any():
            if capture is not None:
                capture.add(chunk)
            await response.write(chunk)
    except (aiohttp.ClientError, OSError):
        if request.transport is not None:
            request.transport.abort()
    return response


def error_response(status: int, reason: str, message: str) -> web.Response:
    """Return a response with a Status object; ``reason`` is its machine-readable reason."""
    content = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": int(status),
    }
    return web.Response(status=status, text=json.dumps(content), content_type="application/json")


def unauthorized() -> web.Response:
    """Return the response to a request without the secret of an active run."""
    message = "the request has no valid credentials of a run: the run has ended, or its credentials were not sent"
    return error_response(HTTPStatus.UNAUTHORIZED, "Unauthorized", message)


def bad_request(target: str) -> web.Response:
    """Return the response to a request whose target is not a path."""
    message = f"found the request target {target!r}, expected a path and an optional query"
    return error_response(HTTPStatus.BAD_REQUEST, "BadRequest", message)


def other_server(target: str) -> web.Response:
    """Return the response to a request for another server, which must not happen in this cluster instead.

    A kubeconfig with a ``proxy-url`` sends all requests here, even those for a server that a flag or variable names.
    The text is plain: for ``/version``, client-go shows only the message of such a response.
    """
    message = (
        f"found a request for {target}, but this kubeconfig reaches only the operator's own cluster; for another "
        "cluster, use a kubeconfig that names its server"
    )
    return web.Response(status=HTTPStatus.FORBIDDEN, text=message)


def not_leading() -> web.Response:
    """Return the response to a write that was not sent because this replica may no longer be the leader."""
    message = "the write was not sent: this operator has not renewed its Lease in time, so another replica may lead"
    return error_response(HTTPStatus.SERVICE_UNAVAILABLE, "ServiceUnavailable", message)


def internal_error(error: BaseException) -> web.Response:
    """Return the response if the proxy itself failed."""
    message = f"internal error of the operator's proxy: {error!r}"
    return error_response(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalError", message)


def gateway_error(error: BaseException, url: str) -> web.Response | None:
    """Return the response if the API server at this URL failed, None for an error of another origin.

    503: the request was not sent. 504: it was sent, but there was no response. 502: the response was incomplete. An
    error in a lookup that the proxy needs first, such as discovery for an unavailable API group, is returned unchanged.
    """
    match error:
        case ApiError():
            return error_response(error.status, error.reason or "InternalError", error.message)
        case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError() | UnreachableError():
            reason = str(error) if isinstance(error, UnreachableError) else text_of(error)
            message = f"the API server at {url} is unreachable: {reason}"
            return error_response(HTTPStatus.SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
        case aiohttp.SocketTimeoutError():
            message = f"the API server at {url} accepted the request but sent nothing for {READ_TIMEOUT_SECONDS:g} s"
            return error_response(HTTPStatus.GATEWAY_TIMEOUT, "Timeout", message)
        case aiohttp.ClientError() | EOFError() | OSError() | KubeError():
            message = f"the response of the API server at {url} is incomplete: {text_of(error)}"
            return error_response(HTTPStatus.BAD_GATEWAY, "BadGateway", message)
    return None
