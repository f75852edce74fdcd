"""The asynchronous client, on top of the official client.

The official client provides the configuration, TLS, and credentials with renewal. Objects stay plain dictionaries,
because a controller holds many objects and reads few of their fields. Every failure is one of ``errors``. Lists are
read in pages and watches as a stream, so that a list of a large cluster is never in memory as a whole. A request waits
for the API server only: not for a free connection, and not for a thread.
"""

import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

import aiohttp
from kubernetes.aio.client import Configuration

from rolecall.kube.configuration import ConfigurationSource, source_of
from rolecall.kube.credentials import UNUSABLE, Credentials
from rolecall.kube.discovery import ApiResource, Discovery
from rolecall.kube.errors import MESSAGE_LIMIT, KubeError, UnreachableError, from_status
from rolecall.kube.paging import PageSize
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.kube.transport import http_proxy_of, new_session

REQUEST_SECONDS = 30.0
CONNECT_SECONDS = 5.0
NO_ANSWER = "<error>"
MERGE_PATCH = "application/merge-patch+json"
_LONGEST_LINE_BYTES = 2 << 20
_NETWORK_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)
# A line longer than the read buffer is a ValueError of aiohttp, an incomplete line is a ValueError of json.
# A line that is nested too deeply for the interpreter is a RecursionError.
_BROKEN_WATCH = (*_NETWORK_ERRORS, ValueError, RecursionError)


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request to the API server: method, path, query, body and timeout."""

    method: str
    path: str
    query: dict[str, str] | None = None
    body: object = None
    content_type: str = "application/json"
    timeout_seconds: float = REQUEST_SECONDS


OnRequest = Callable[[str, str, str], None]


class Client:
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
        self._discovery = Discovery(self._get_json)
        self._host = urlsplit(self.base_url).netloc
        self._on_request = on_request

    @classmethod
    async def connect(cls, kubeconfig: str | None = None, on_request: OnRequest | None = None) -> Self:
        """Return a client for a kubeconfig file, or for $KUBECONFIG, the pod's service account or ~/.kube/config.

        Raise KubeError if none of them can be used.
        """
        try:
            source = source_of(kubeconfig)
            configuration = await source.load()
        except UNUSABLE as error:
            raise KubeError(f"no usable configuration for the API server: {error}") from error
        return cls(configuration, on_request, source)

    async def __aenter__(self) -> Self:
        """Return the client itself."""
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
        return new_session(read_bufsize=_LONGEST_LINE_BYTES)

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

    async def resource(self, gvk: GVK) -> ApiResource:
        """Return the API resource of a kind. Raise UnknownKindError."""
        return await self._discovery.by_kind(gvk)

    async def resource_for_path(self, group: str, version: str, plural: str) -> ApiResource | None:
        """Return the API resource of a URL's group, version and plural, None if it is not served."""
        return await self._discovery.by_plural(group, version, plural)

    async def get(self, gvk: GVK, key: ObjectKey) -> RawObject:
        """Return the current object. Raise NotFoundError."""
        resource = await self.resource(gvk)
        return await self._get_json(resource.path_of(key))

    async def create(self, obj: RawObject) -> RawObject:
        """Create an object and return it as the API server stored it."""
        resource = await self.resource(GVK.of_object(obj))
        path = resource.path(ObjectKey.of_object(obj).namespace)
        return await self._send(Request("POST", path, body=obj))

    async def replace(self, obj: RawObject, subresource: str = "") -> RawObject:
        """Replace an object or its subresource; its resourceVersion guards against concurrent changes."""
        resource = await self.resource(GVK.of_object(obj))
        path = resource.path_of(ObjectKey.of_object(obj), subresource)
        return await self._send(Request("PUT", path, body=obj))

    async def patch(self, gvk: GVK, key: ObjectKey, patch: object, subresource: str = "") -> RawObject:
        """Change an object with a JSON merge patch."""
        resource = await self.resource(gvk)
        path = resource.path_of(key, subresource)
        return await self._send(Request("PATCH", path, body=patch, content_type=MERGE_PATCH))

    async def delete(self, gvk: GVK, key: ObjectKey) -> None:
        """Delete an object, with background propagation to its dependents. Raise NotFoundError."""
        resource = await self.resource(gvk)
        await self._send(Request("DELETE", resource.path_of(key), body={"propagationPolicy": "Background"}))

    async def list_pages(self, gvk: GVK, namespace: str | None = None) -> AsyncIterator[tuple[list[RawObject], str]]:
        """Yield the objects of a kind page by page, each with the list's resourceVersion.

        Raise GoneError if the list must be restarted because its continue token has expired.
        """
        resource = await self.resource(gvk)
        size = PageSize()
        query: dict[str, str] = {}
        while True:
            query["limit"] = str(size.objects)
            request = Request("GET", resource.path(namespace or ""), query=query)
            body = await self._receive(request, size.most_bytes)
            if body is None:
                size.reduce()
                continue
            answer = _decoded_object(request, body)
            metadata, items = answer.get("metadata") or {}, answer.get("items") or []
            size.fit(len(items), len(body))
            yield items, str(metadata.get("resourceVersion") or "")
            token = metadata.get("continue")
            if not token:
                return
            query["continue"] = token

    async def watch(
        self, gvk: GVK, namespace: str | None, resource_version: str, timeout_seconds: float
    ) -> AsyncIterator[tuple[str, RawObject]]:
        """Yield (type, object) for each change after a resourceVersion, including bookmarks, until the timeout.

        Raise GoneError if the resourceVersion is too old, UnreachableError if the connection breaks.
        """
        resource = await self.resource(gvk)
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(int(timeout_seconds)),
        }
        request = Request("GET", resource.path(namespace or ""), query=query, timeout_seconds=timeout_seconds + 15)
        broke = f"the watch on {gvk} broke"
        with _translated_errors(broke):
            response = await self._open(request)
        try:
            async for line in response.content:
                yield _read_event(line)
        except _BROKEN_WATCH as error:
            raise UnreachableError(f"{broke}: {error!r}") from error
        finally:
            response.close()

    async def _get_json(self, path: str) -> RawObject:
        return await self._send(Request("GET", path))

    async def _send(self, request: Request) -> RawObject:
        body = await self._receive(request, None)
        return _decoded_object(request, body or b"")

    async def _receive(self, request: Request, most_bytes: int | None) -> bytes | None:
        """Send a request and return the body of the answer, None if it is longer than ``most_bytes``."""
        with _translated_errors(f"{request.method} {request.path} got no answer"):
            response = await self._open(request)
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if most_bytes is not None and len(body) > most_bytes:
                    response.close()
                    return None
        return bytes(body)

    async def _open(self, request: Request) -> aiohttp.ClientResponse:
        """Send a request and return the response with its body unread. Raise ApiError for an error status."""
        headers = {"Accept": "application/json", "Content-Type": request.content_type, **await self.auth_headers()}
        url = self.base_url + request.path + (f"?{urlencode(request.query)}" if request.query else "")
        response = await self._call(request, url, headers)
        if response.status >= 400:  # noqa: PLR2004 - where HTTP's errors begin
            raise from_status(response.status, _decode(await response.read()))
        return response

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
        kind = KubeError if isinstance(error, aiohttp.InvalidURL) else UnreachableError
        raise kind(f"{failure}: {error!r}") from error
    except (ValueError, RecursionError) as error:
        raise KubeError(f"{failure}: the request cannot be sent: {error!r}") from error


def _decoded_object(request: Request, body: bytes) -> RawObject:
    decoded = _decode(body)
    if not isinstance(decoded, dict):
        found = repr(decoded)[:MESSAGE_LIMIT]
        raise KubeError(f"{request.method} {request.path}: expected an object, found {found}")
    return decoded


def _decode(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body.decode(errors="replace")


def _read_event(line: bytes) -> tuple[str, RawObject]:
    """Return (type, object) of one line of a watch. Raise the error of an ERROR event."""
    event = json.loads(line)
    if not isinstance(event, dict) or "type" not in event or "object" not in event:
        raise ValueError(f"expected a type and an object, found {line[:MESSAGE_LIMIT]!r}")
    if event["type"] == "ERROR":
        status = event["object"] or {}
        raise from_status(int(status.get("code") or 500), status)
    return event["type"], event["object"]
