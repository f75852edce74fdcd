"""A connection to one API server: requests, and their responses as bytes or JSON.

Every request is sent by ``Connection.send``, which adds the operator's credentials, TLS and the HTTP proxy. A request
waits for the API server only: not for a free connection, and not for a thread. All other functions raise only the
errors of ``errors``, regardless of what a response contains. JSON that is too long or too deeply nested for the parser
is an UnreadableError: the request succeeded, and other responses can be read.
"""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from ssl import SSLContext
from typing import Any, Final, Self
from urllib.parse import urlencode, urlsplit

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from rolecall.kube.credentials import UNUSABLE, ConfigurationSource, Credentials, source_of
from rolecall.kube.errors import (
    MESSAGE_LIMIT,
    KubeError,
    ResponseTimeoutError,
    UnreachableError,
    UnreadableError,
    from_status,
)
from rolecall.kube.official_client import Configuration
from rolecall.kube.references import RawObject
from rolecall.kube.transport import http_proxy_of, new_session, text_of
from rolecall.system.clock import SYSTEM_CLOCK, Clock

LINE_BYTES: Final = 16 << 20
"""The maximum length of a watch event: JSON can be six times as long as the 1.5 MiB object that etcd accepts."""

REQUEST_SECONDS: Final = 30.0
CONNECT_SECONDS: Final = 5.0
NO_RESPONSE: Final = "<error>"
_NETWORK_ERRORS: Final = (aiohttp.ClientError, TimeoutError, OSError)


@dataclass(frozen=True, slots=True)
class Request:
    """A request of the operator to the API server: method, path, query, JSON body, timeout and accepted format.

    With ``known_etag``, the API server omits the body of a response that still has this ETag.
    """

    method: str
    path: str
    query: Mapping[str, str] | None = None
    body: object = None
    content_type: str = "application/json"
    timeout_seconds: float = REQUEST_SECONDS
    accept: str = "application/json"
    known_etag: str = ""


@dataclass(frozen=True, slots=True)
class ETagResponse:
    """The body of a response and its ETag, which is empty if the response has none."""

    body: bytes
    etag: str = ""


OnRequest = Callable[[str, str, str], None]


class Connection:
    """A connection to one API server. Close it with ``close`` or use it as an asynchronous context manager.

    ``on_request`` is called for each request with the status (``<error>`` without a response), the method and the host.
    Credentials are renewed from ``source``, at times of ``clock``. Raise KubeError if the configuration cannot be used.
    """

    def __init__(
        self,
        configuration: Configuration,
        on_request: OnRequest | None = None,
        source: ConfigurationSource | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._configuration = configuration
        try:
            self._http_proxy = http_proxy_of(self.base_url, configuration.proxy)
            self._credentials = Credentials(configuration, source, clock.monotonic)
        except UNUSABLE as error:
            raise KubeError(f"cannot reach the API server at {self.base_url}: {error}") from error
        self._host = urlsplit(self.base_url).netloc
        self._on_request = on_request
        self.origin = {} if source is None else source.origin
        """What chose this cluster, see ``ConfigurationSource``."""

    @classmethod
    async def connect(
        cls, kubeconfig: str | None = None, on_request: OnRequest | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> Self:
        """Return a connection for a kubeconfig file, or for $KUBECONFIG, the pod's service account or ~/.kube/config.

        Raise KubeError if none of them can be used.
        """
        try:
            source = source_of(kubeconfig)
            configuration = await source.load()
        except UNUSABLE as error:
            raise KubeError(f"no usable configuration for the API server: {error}") from error
        return cls(configuration, on_request, source, clock)

    async def __aenter__(self) -> Self:
        """Return the connection itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        await self.close()

    async def close(self) -> None:
        """Close all connections, including watches."""
        await self._credentials.close()
        if "_session" in vars(self):
            await self._session.close()

    @cached_property
    def _session(self) -> aiohttp.ClientSession:
        # Created by the first request, because a session belongs to the running loop.
        return new_session()

    @property
    def base_url(self) -> str:
        """The URL of the API server, without a trailing slash."""
        return str(self._configuration.host).rstrip("/")

    @property
    def ssl_context(self) -> SSLContext:
        """The TLS context with the cluster's certificate authority and the client certificate, if there is one."""
        return self._credentials.ssl_context

    @property
    def tls_server_name(self) -> str | None:
        """The name in the API server's certificate, if it differs from the host in its URL."""
        name: str | None = self._configuration.tls_server_name
        return name

    async def auth_headers(self) -> dict[str, str]:
        """Return the headers that authenticate the operator; tokens that are about to expire are renewed first."""
        return await self._credentials.headers()

    async def send(self, method: str, url: URL, headers: Mapping[str, str], **options: Any) -> aiohttp.ClientResponse:
        """Send an HTTP request with the operator's credentials and return the response with its body unread.

        ``options`` are those of ``aiohttp.ClientSession.request``. Raise aiohttp.ClientError or OSError.
        """
        sent = CIMultiDict(headers)
        sent.update(await self.auth_headers())
        tls: dict[str, Any] = {"ssl": self.ssl_context, "server_hostname": self.tls_server_name}
        try:
            response = await self._session.request(method, url, headers=sent, proxy=self._http_proxy, **tls, **options)
        except aiohttp.ClientSSLError:
            # The certificates may have been replaced: the next request reads their files instead of the next check.
            self._credentials.reject()
            raise
        if response.status == HTTPStatus.UNAUTHORIZED:
            self._credentials.reject()
        return response

    async def open(self, request: Request) -> aiohttp.ClientResponse:
        """Send a request and return the response with its body unread. Raise ApiError for an error status."""
        # Uncompressed: decompressing pages of megabytes blocks the event loop, and compressing them the API server, for
        # longer than their transfer takes.
        headers = {"Accept": request.accept, "Accept-Encoding": "identity", "Content-Type": request.content_type}
        if request.known_etag:
            headers["If-None-Match"] = request.known_etag
        url = self.base_url + request.path + (f"?{urlencode(request.query)}" if request.query else "")
        body = None if request.body is None else json.dumps(request.body)
        seconds = request.timeout_seconds
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=min(seconds, CONNECT_SECONDS))
        status = NO_RESPONSE
        try:
            response = await self.send(request.method, URL(url, encoded=True), headers, data=body, timeout=timeout)
            status = str(response.status)
        finally:
            if self._on_request is not None:
                self._on_request(status, request.method, self._host)
        if response.status >= HTTPStatus.BAD_REQUEST:
            raise from_status(response.status, _decode(await response.read()))
        return response

    async def receive(self, request: Request) -> bytes:
        """Send a request and return the body of the response. Raise ApiError for an error status."""
        return await self.receive_up_to(request, None) or b""

    async def receive_up_to(self, request: Request, max_bytes: int | None) -> bytes | None:
        """Send a request and return the body of the response, None if it is longer than ``max_bytes``."""
        body = bytearray()
        with _translated_errors(f"{request.method} {request.path} got no response"):
            response = await self.open(request)
            async for chunk in response.content.iter_any():
                body += chunk
                if max_bytes is not None and len(body) > max_bytes:
                    response.close()
                    return None
        return bytes(body)

    async def receive_changed(self, request: Request) -> ETagResponse | None:
        """Send a request and return the response, None if it still has ``known_etag``. Raise ApiError."""
        with _translated_errors(f"{request.method} {request.path} got no response"):
            response = await self.open(request)
            body = await response.read()
        if response.status == HTTPStatus.NOT_MODIFIED:
            return None
        return ETagResponse(body, response.headers.get("ETag", ""))

    async def lines(self, request: Request) -> AsyncGenerator[bytes, None]:
        """Send a request and yield each line of the response. Raise ApiError, or UnreachableError if it breaks off.

        The API server responds to a watch immediately, with a head. So a lost response is noticed much earlier than the
        end of the watch.
        """
        failure = f"{request.method} {request.path} broke"
        with _translated_errors(failure):
            async with asyncio.timeout(min(request.timeout_seconds, REQUEST_SECONDS)):
                response = await self.open(request)
        try:
            async for line in _lines_of(response.content):
                yield line
        except (*_NETWORK_ERRORS, ValueError) as error:  # ValueError: the stream ended within a line
            raise UnreachableError(f"{failure}: {text_of(error)}") from error
        finally:
            response.close()


@contextmanager
def _translated_errors(failure: str) -> Iterator[None]:
    """Raise UnreachableError for a network error, which may pass, and KubeError for an invalid request."""
    try:
        yield
    except aiohttp.InvalidURL as error:
        raise KubeError(f"{failure}: {text_of(error)}") from error
    except _NETWORK_ERRORS as error:
        is_late = isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ConnectionTimeoutError)
        raise (ResponseTimeoutError if is_late else UnreachableError)(f"{failure}: {text_of(error)}") from error
    except (ValueError, RecursionError) as error:
        raise KubeError(f"{failure}: the request cannot be sent: {text_of(error)}") from error


async def _lines_of(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield each line; of a line longer than ``LINE_BYTES`` only a beginning of more than ``LINE_BYTES``.

    Raise ValueError if the stream ends within a line.
    """
    line = bytearray()
    async for chunk in content.iter_any():
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            yield bytes(line + end)
            line.clear()
        line += rest[: max(0, LINE_BYTES + 1 - len(line))]
    if line:
        raise ValueError(f"the stream ended within the line {bytes(line[:MESSAGE_LIMIT])!r}")


def _decode(body: bytes) -> object:
    """Return the JSON of a response, or its text. Raise UnreadableError for JSON that is too deeply nested."""
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")
    except RecursionError as error:
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise UnreadableError(f"nested more deeply than the JSON parser of Python {python} supports") from error


def read_object(body: bytes, request: str) -> RawObject:
    """Return the object in a response. Raise UnreadableError, or KubeError if the response isn't an object."""
    try:
        decoded = _decode(body)
    except UnreadableError as error:
        raise UnreadableError(f"{request}: the response is {error}") from error
    if not isinstance(decoded, dict):
        raise KubeError(f"{request}: expected an object, found {repr(decoded)[:MESSAGE_LIMIT]}")
    return decoded


def read_event(line: bytes) -> tuple[str, RawObject]:
    """Return (type, object) of one line of a watch.

    Raise UnreadableError for an event that can't be read here, the error of an ERROR event, and UnreachableError for a
    line that is no event: the stream is broken, and the next line may belong to any object.
    """
    if len(line) > LINE_BYTES:
        raise UnreadableError(f"longer than {LINE_BYTES} bytes")
    event = _decode(line)
    if not isinstance(event, dict) or "type" not in event or not isinstance(event.get("object"), dict):
        raise UnreachableError(f"the watch broke: expected a type and an object, found {line[:MESSAGE_LIMIT]!r}")
    if event["type"] == "ERROR":
        status = event["object"]
        raise from_status(int(status.get("code") or 500), status)
    return event["type"], event["object"]
