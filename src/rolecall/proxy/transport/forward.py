"""Requests on to the API server, and its answers back, byte for byte.

Everything passes as a stream unless somebody has to look at it: nothing is decompressed, no redirect is followed, and
watches and followed logs run as long as both sides want; only where an answer should end by itself the API server may
not be silent for ever. The run's own credentials stop here; the operator's are put in their place.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import aiohttp
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from rolecall.kube.client import Client

CONNECT_SECONDS: Final = 10.0
SILENCE_SECONDS: Final = 120.0
"""How long the API server may be silent on a request that ends by itself; it gives up after 60 s as it is set up."""

SMALL_ANSWER_BYTES: Final = 1 << 20
_HOP_BY_HOP: Final = frozenset(
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
_NO_LIMIT: Final = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
_LIMITED: Final = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS)
_OURS: Final = frozenset({"authorization", "expect", "host"})

Body = bytes | aiohttp.StreamReader | None
Headers = CIMultiDict[str]


def end_to_end(headers: CIMultiDictProxy[str] | Headers) -> Headers:
    """Return the headers that go through a proxy: without those for one connection, named or well known."""
    named = {token.strip().lower() for value in headers.getall("Connection", []) for token in value.split(",")}
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in _HOP_BY_HOP | named)


def without_run_credentials(headers: CIMultiDictProxy[str] | Headers) -> Headers:
    """Return a request's headers without what is between the run and the proxy alone."""
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in _OURS)


@dataclass(slots=True)
class Copy:
    """A copy of an answer that passes by; given up (``body`` is None) once it is longer than the limit in bytes."""

    limit: int
    _chunks: list[bytes] = field(default_factory=list)
    _length: int = 0

    def add(self, chunk: bytes) -> None:
        """Take the next part."""
        self._length += len(chunk)
        if self._length > self.limit:
            self._chunks.clear()
        else:
            self._chunks.append(chunk)

    @property
    def body(self) -> bytes | None:
        """What has passed so far, None when it is too much."""
        return b"".join(self._chunks) if self._length <= self.limit else None


class Upstream:
    """The connections to the API server that the requests of all runs share."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @cached_property
    def _session(self) -> aiohttp.ClientSession:
        # Made at the first request, because a session belongs to the loop that runs then.
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._client.ssl_context, limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
            auto_decompress=False,
            trust_env=True,
        )

    @property
    def base_url(self) -> str:
        """The API server's URL."""
        return self._client.base_url

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """The TLS context for connections to the API server."""
        return self._client.ssl_context

    async def close(self) -> None:
        """Close the connections, if any request has opened one."""
        if "_session" in vars(self):
            await self._session.close()

    async def auth_headers(self) -> dict[str, str]:
        """Return the headers that carry the operator's own credentials."""
        return await self._client.auth_headers()

    async def send(
        self, method: str, target: str, headers: Mapping[str, str], body: Body = None, *, is_long_running: bool = False
    ) -> aiohttp.ClientResponse:
        """Send a request as the operator and return the answer, its body unread; the caller releases it.

        ``target`` is path and query as they stand in the request line. Raises aiohttp.ClientError and OSError,
        aiohttp.SocketTimeoutError when the API server is silent on a request that is not long-running.
        """
        sent = CIMultiDict(headers)
        sent.update(await self.auth_headers())
        url = URL(self.base_url + target, encoded=True)
        timeout = _NO_LIMIT if is_long_running else _LIMITED
        return await self._session.request(method, url, headers=sent, data=body, allow_redirects=False, timeout=timeout)


def whole_answer(answer: aiohttp.ClientResponse, body: bytes) -> web.Response:
    """Make the answer to a run from the API server's, whose body has been read."""
    headers = end_to_end(answer.headers)
    headers.popall("Content-Length", None)
    return web.Response(status=answer.status, reason=answer.reason, headers=headers, body=body)


async def relay(request: web.BaseRequest, answer: aiohttp.ClientResponse, copy: Copy | None) -> web.StreamResponse:
    """Pass an answer on as it comes, and into the copy.

    An answer that breaks off breaks off for the run too: it never looks like a complete one.
    """
    length = answer.content_length
    if length is not None and length <= SMALL_ANSWER_BYTES and request.method != "HEAD":
        body = await answer.read()
        if copy is not None:
            copy.add(body)
        return whole_answer(answer, body)
    response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=end_to_end(answer.headers))
    await response.prepare(request)
    try:
        await _pass_on(answer, response, copy)
    except (aiohttp.ClientError, OSError):
        if request.transport is not None:
            request.transport.abort()
    return response


async def _pass_on(answer: aiohttp.ClientResponse, response: web.StreamResponse, copy: Copy | None) -> None:
    async for chunk in answer.content.iter_any():
        if copy is not None:
            copy.add(chunk)
        await response.write(chunk)
