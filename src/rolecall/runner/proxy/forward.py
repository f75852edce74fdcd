"""Forwarding of requests to the API server, and of its responses to the run, byte for byte.

Bodies are streamed unless the proxy must inspect them. Nothing is decompressed and no redirect is followed. Watches and
followed logs have no time limit; for all other requests the read timeout applies. The run's credentials are removed
from the request and replaced with the operator's.

Error responses of the proxy itself: Status objects, as every Kubernetes client expects.

kubernetes.core and kubectl show the message of a Status to users, so it says what failed and where. Programs evaluate
the code and the reason, which are the ones that an API server would use.

The W3C trace context of proxied requests: which span of which trace the API server continues.

A request that has a ``traceparent`` of its own keeps it: the role has its reasons, and what it began goes on in the API
server. Any other gets that of the run's trace, if the run has one. Without a trace nothing is read or changed.
"""

import json
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from typing import Final

import aiohttp
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from rolecall.kube.client import Client
from rolecall.kube.errors import ApiError, KubeError, UnreachableError
from rolecall.kube.transport import new_session

CONNECT_TIMEOUT_SECONDS: Final = 10.0
READ_TIMEOUT_SECONDS: Final = 120.0
"""The read timeout for requests that are not long-running; the API server's own default limit for them is 60 s."""

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
_LONG_RUNNING_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_SECONDS)
_REQUEST_TIMEOUT: Final = aiohttp.ClientTimeout(
    total=None, sock_connect=CONNECT_TIMEOUT_SECONDS, sock_read=READ_TIMEOUT_SECONDS
)
_REPLACED_HEADERS: Final = frozenset({"authorization", "expect", "host"})

Body = bytes | aiohttp.StreamReader | None
Headers = CIMultiDict[str]


def end_to_end_headers(headers: CIMultiDictProxy[str] | Headers) -> Headers:
    """Return the headers without the hop-by-hop ones: the standard ones, and those that ``Connection`` names."""
    named = {token.strip().lower() for value in headers.getall("Connection", []) for token in value.split(",")}
    return CIMultiDict(
        (name, value) for name, value in headers.items() if name.lower() not in _HOP_BY_HOP_HEADERS | named
    )


def upstream_headers(headers: CIMultiDictProxy[str] | Headers) -> Headers:
    """Return a run's request headers that are forwarded: end-to-end, and without the run's credentials."""
    forwarded = end_to_end_headers(headers)
    return CIMultiDict((name, value) for name, value in forwarded.items() if name.lower() not in _REPLACED_HEADERS)


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


class Upstream:
    """The HTTP client for the API server, shared by the requests of all runs."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @cached_property
    def _session(self) -> aiohttp.ClientSession:
        # Made at the first request, because a session belongs to the loop that runs then.
        return new_session(
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
            auto_decompress=False,
        )

    @property
    def base_url(self) -> str:
        """The API server's URL."""
        return self._client.base_url

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """The TLS context for connections to the API server."""
        return self._client.ssl_context

    @property
    def tls_server_name(self) -> str | None:
        """The name in the API server's certificate, if it is not the host in its URL."""
        return self._client.tls_server_name

    async def close(self) -> None:
        """Close the connections, if any request has opened one."""
        if "_session" in vars(self):
            await self._session.close()

    async def auth_headers(self) -> dict[str, str]:
        """Return the headers with the operator's credentials."""
        return await self._client.auth_headers()

    async def send(
        self, method: str, target: str, headers: Mapping[str, str], body: Body = None, *, is_long_running: bool = False
    ) -> aiohttp.ClientResponse:
        """Send a request as the operator and return the response with its body unread; the caller releases it.

        ``target`` is the path and query as in the request line. Raises aiohttp.ClientError and OSError, and
        aiohttp.SocketTimeoutError if the read timeout of a request that is not long-running expires.
        """
        sent = CIMultiDict(headers)
        sent.update(await self.auth_headers())
        url = URL(self.base_url + target, encoded=True)
        timeout = _LONG_RUNNING_TIMEOUT if is_long_running else _REQUEST_TIMEOUT
        response = await self._session.request(
            method, url, headers=sent, data=body, allow_redirects=False, timeout=timeout, **self._client.route
        )
        self._client.note_status(response.status)
        return response


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
    response = web.StreamResponse(
        status=upstream_response.status,
        reason=upstream_response.reason,
        headers=end_to_end_headers(upstream_response.headers),
    )
    await response.prepare(request)
    try:
        await _stream(upstream_response, response, capture)
    except (aiohttp.ClientError, OSError):
        if request.transport is not None:
            request.transport.abort()
    return response


async def _stream(
    upstream_response: aiohttp.ClientResponse, response: web.StreamResponse, capture: BodyCapture | None
) -> None:
    async for chunk in upstream_response.content.iter_any():
        if capture is not None:
            capture.add(chunk)
        await response.write(chunk)


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


def not_leading() -> web.Response:
    """Return the response to a write that was not sent because this replica may not be the leader any more."""
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
            message = f"the API server at {url} is unreachable: {error!s}"
            return error_response(HTTPStatus.SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
        case aiohttp.SocketTimeoutError():
            message = f"the API server at {url} accepted the request but sent nothing for {READ_TIMEOUT_SECONDS:g} s"
            return error_response(HTTPStatus.GATEWAY_TIMEOUT, "Timeout", message)
        case aiohttp.ClientError() | EOFError() | OSError() | KubeError():
            message = f"the response of the API server at {url} is incomplete: {error!r}"
            return error_response(HTTPStatus.BAD_GATEWAY, "BadGateway", message)
    return None


TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
_VALID: Final = re.compile(r"(?!ff|00.{53}-)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")

NewTraceparent = Callable[[], str]
"""Returns the ``traceparent`` for one more request of a run."""


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The ``traceparent`` that a request had when it came (``carried``), or that it was given (``given``)."""

    given: str = ""
    carried: str = ""

    @classmethod
    def of_request(
        cls, headers: CIMultiDictProxy[str] | CIMultiDict[str], new_traceparent: NewTraceparent | None
    ) -> "TraceContext":
        """Return the context of a request; it is empty if its run has no trace."""
        if new_traceparent is None:
            return NO_CONTEXT
        found = headers.getall(TRACEPARENT, [])
        if len(found) == 1 and _VALID.fullmatch(found[0]):
            return cls(carried=found[0])
        return cls(given=new_traceparent())

    def put_into(self, headers: CIMultiDict[str]) -> None:
        """Put what was given in place of what came; a ``tracestate`` belongs to the ``traceparent`` beside it."""
        if self.given:
            headers.popall(TRACESTATE, None)
            headers[TRACEPARENT] = self.given


NO_CONTEXT: Final = TraceContext()
