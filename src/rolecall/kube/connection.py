"""Requests to the API server, and the answers to them as bytes.

The official client provides the configuration, TLS, and credentials with renewal. Every failure is one of ``errors``. A
request waits for the API server only: not for a free connection, and not for a thread.

Reading of the API server's answers: objects, and the lines of a watch.

Whatever an answer contains, only errors of ``errors`` are raised. JSON that is nested too deeply for the parser, or too
long, is an UnreadableError: the request succeeded, and other answers can be read.
"""

import json
import ssl
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import Any, Final, Protocol, Self
from urllib.parse import urlencode, urlsplit

import aiohttp
from kubernetes.aio.client import Configuration

from rolecall.kube.credentials import UNUSABLE, ConfigurationSource, Credentials, source_of
from rolecall.kube.errors import (
    MESSAGE_LIMIT,
    ApiError,
    KubeError,
    NoAnswerInTimeError,
    UnreachableError,
    UnreadableError,
    from_status,
)
from rolecall.kube.references import RawObject
from rolecall.kube.transport import http_proxy_of, new_session

LINE_BYTES: Final = 16 << 20
"""The longest line of a watch: JSON can be six times as long as an object of the 1.5 MiB that etcd takes."""

_PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"


def decode(body: bytes) -> object:
    """Return the JSON of an answer, or its text. Raise UnreadableError for JSON that is nested too deeply."""
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")
    except RecursionError as error:
        raise UnreadableError(f"nested more deeply than the JSON parser of Python {_PYTHON} can go") from error


def read_object(body: bytes, request: str) -> RawObject:
    """Return the object in an answer. Raise UnreadableError, or KubeError if the answer is no object."""
    try:
        decoded = decode(body)
    except UnreadableError as error:
        raise UnreadableError(f"{request}: the answer is {error}") from error
    if not isinstance(decoded, dict):
        raise KubeError(f"{request}: expected an object, found {repr(decoded)[:MESSAGE_LIMIT]}")
    return decoded


async def lines_of(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield each line; of one that is longer than ``LINE_BYTES`` only the beginning, which is still longer.

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


def read_event(line: bytes) -> tuple[str, RawObject]:
    """Return (type, object) of one line of a watch. Raise UnreadableError, or the error of an ERROR event."""
    if len(line) > LINE_BYTES:
        raise UnreadableError(f"longer than {LINE_BYTES} bytes")
    event = decode(line)
    if not isinstance(event, dict) or "type" not in event or "object" not in event:
        raise UnreadableError(f"expected a type and an object, found {line[:MESSAGE_LIMIT]!r}")
    if event["type"] == "ERROR":
        status = event["object"] or {}
        raise from_status(int(status.get("code") or 500), status)
    return event["type"], event["object"]


REQUEST_SECONDS = 30.0
CONNECT_SECONDS = 5.0
NO_ANSWER = "<error>"
_NETWORK_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request to the API server: method, path, query, body, timeout and the accepted format.

    With ``known_etag``, the API server need not repeat an answer that has this ETag.
    """

    method: str
    path: str
    query: dict[str, str] | None = None
    body: object = None
    content_type: str = "application/json"
    timeout_seconds: float = REQUEST_SECONDS
    accept: str = "application/json"
    known_etag: str = ""


@dataclass(frozen=True, slots=True)
class ETagResponse:
    """The body of an answer and its ETag, which is empty if it has none."""

    body: bytes
    etag: str = ""


OnRequest = Callable[[str, str, str], None]


class Reader(Protocol):
    """What lists and watches are read with: a connection, or one that adds to each request."""

    async def receive(self, request: Request) -> bytes:
        """Send a request and return the body of the answer. Raise ApiError for an error status."""

    async def receive_up_to(self, request: Request, most_bytes: int | None) -> bytes | None:
        """Send a request and return the body of the answer, None if it is longer than ``most_bytes``."""

    def lines(self, request: Request) -> AsyncGenerator[bytes, None]:
        """Send a request and yield each line of the answer."""


class Connection:
    """A connection to one API server. Close it with ``close`` or use it as an asynchronous context manager.

    ``on_request`` is called for each request with the status (``<error>`` without an answer), the method and the host.
    Credentials are renewed from ``source``. Raise KubeError if the configuration cannot be used.
    """

    def __init__(
        self,
        configuration: Configuration,
        on_request: OnRequest | None = None,
        source: ConfigurationSource | None = None,
    ) -> None:
        self._configuration = configuration
        try:
            self._http_proxy = http_proxy_of(self.base_url, configuration.proxy)
            self._credentials = Credentials(configuration, source)
        except UNUSABLE as error:
            raise KubeError(f"cannot reach the API server at {self.base_url}: {error}") from error
        self._host = urlsplit(self.base_url).netloc
        self._on_request = on_request

    @classmethod
    async def connect(cls, kubeconfig: str | None = None, on_request: OnRequest | None = None) -> Self:
        """Return a connection for a kubeconfig file, or for $KUBECONFIG, the pod's service account or ~/.kube/config.

        Raise KubeError if none of them can be used.
        """
        try:
            source = source_of(kubeconfig)
            configuration = await source.load()
        except UNUSABLE as error:
            raise KubeError(f"no usable configuration for the API server: {error}") from error
        return cls(configuration, on_request, source)

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
        # Made at the first request, because a session belongs to the loop that runs then.
        return new_session()

    @property
    def base_url(self) -> str:
        """The URL of the API server, without a trailing slash."""
        return str(self._configuration.host).rstrip("/")

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """The TLS context with the cluster's certificate authority and the client certificate, if there is one."""
        return self._credentials.ssl_context

    @property
    def tls_server_name(self) -> str | None:
        """The name in the API server's certificate, if it is not the host in its URL."""
        name: str | None = self._configuration.tls_server_name
        return name

    @property
    def route(self) -> dict[str, Any]:
        """How a request reaches the API server: the options for ``aiohttp.ClientSession.request``."""
        return {"ssl": self.ssl_context, "server_hostname": self.tls_server_name, "proxy": self._http_proxy}

    async def auth_headers(self) -> dict[str, str]:
        """Return the headers that authenticate the operator; tokens that are about to expire are renewed first."""
        return await self._credentials.headers()

    def note_status(self, status: int) -> None:
        """Take note of the status of an answer, because credentials that are refused (401) must be renewed."""
        if status == HTTPStatus.UNAUTHORIZED:
            self._credentials.refused()

    async def receive(self, request: Request) -> bytes:
        """Send a request and return the body of the answer. Raise ApiError for an error status."""
        body = await self.receive_up_to(request, None)
        return body or b""

    async def receive_up_to(self, request: Request, most_bytes: int | None) -> bytes | None:
        """Send a request and return the body of the answer, None if it is longer than ``most_bytes``."""
        body = bytearray()
        with _translated_errors(f"{request.method} {request.path} got no answer"):
            response = await self.open(request)
            async for chunk in response.content.iter_any():
                body += chunk
                if most_bytes is not None and len(body) > most_bytes:
                    response.close()
                    return None
        return bytes(body)

    async def receive_changed(self, request: Request) -> ETagResponse | None:
        """Send a request and return the answer; None if it is the one with ``known_etag``. Raise ApiError."""
        with _translated_errors(f"{request.method} {request.path} got no answer"):
            response = await self.open(request)
            body = await response.read()
        if response.status == HTTPStatus.NOT_MODIFIED:
            return None
        return ETagResponse(body, response.headers.get("ETag", ""))

    async def lines(self, request: Request) -> AsyncGenerator[bytes, None]:
        """Send a request and yield each line of the answer. Raise ApiError, or UnreachableError if it breaks off."""
        broke = f"{request.method} {request.path} broke"
        with _translated_errors(broke):
            response = await self.open(request)
        try:
            async for line in lines_of(response.content):
                yield line
        except (*_NETWORK_ERRORS, ValueError) as error:  # ValueError: the stream ended within a line
            raise UnreachableError(f"{broke}: {error!r}") from error
        finally:
            response.close()

    async def open(self, request: Request) -> aiohttp.ClientResponse:
        """Send a request and return the response with its body unread. Raise ApiError for an error status."""
        # Uncompressed: to decompress a page of megabytes holds up the event loop, and the API server, for longer than
        # to transfer it.
        headers = {"Accept": request.accept, "Accept-Encoding": "identity", "Content-Type": request.content_type}
        if request.known_etag:
            headers["If-None-Match"] = request.known_etag
        headers |= await self.auth_headers()
        url = self.base_url + request.path + (f"?{urlencode(request.query)}" if request.query else "")
        response = await self._call(request, url, headers)
        if response.status >= 400:  # noqa: PLR2004 - where HTTP's errors begin
            error = from_status(response.status, decode(await response.read()))
            self.note_error(request, error)
            raise error
        return response

    def note_error(self, request: Request, error: ApiError) -> None:
        """Take note of an error status, before it is raised."""

    async def _call(self, request: Request, url: str, headers: dict[str, str]) -> aiohttp.ClientResponse:
        code = NO_ANSWER
        body = None if request.body is None else json.dumps(request.body)
        timeout = aiohttp.ClientTimeout(
            total=request.timeout_seconds, sock_connect=min(request.timeout_seconds, CONNECT_SECONDS)
        )
        try:
            response = await self._session.request(
                request.method, url, headers=headers, data=body, timeout=timeout, **self.route
            )
            code = str(response.status)
            self.note_status(response.status)
        finally:
            if self._on_request is not None:
                self._on_request(code, request.method, self._host)
        return response


@contextmanager
def _translated_errors(failure: str) -> Iterator[None]:
    """Raise UnreachableError for an error of the network, which may pass, and KubeError for a request of no use."""
    try:
        yield
    except _NETWORK_ERRORS as error:
        raise _network_error(error)(f"{failure}: {error!r}") from error
    except (ValueError, RecursionError) as error:
        raise KubeError(f"{failure}: the request cannot be sent: {error!r}") from error


def _network_error(error: Exception) -> type[KubeError]:
    if isinstance(error, aiohttp.InvalidURL):
        return KubeError
    is_late = isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ConnectionTimeoutError)
    return NoAnswerInTimeError if is_late else UnreachableError
