"""The asynchronous client, on top of the official client.

The official client provides the configuration, TLS, and credentials with renewal. Objects stay plain dictionaries,
because a controller holds many objects and reads few of their fields. Every failure is one of ``errors``. Lists are
read in pages and watches as a stream, so that a list of a large cluster is never in memory as a whole. A request waits
for the API server only: not for a free connection, and not for a thread.
"""

import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

import aiohttp
from kubernetes.aio.client import Configuration

from rolecall.kube.answers import decode, lines_of, read_event, read_object
from rolecall.kube.configuration import ConfigurationSource, source_of
from rolecall.kube.credentials import UNUSABLE, Credentials
from rolecall.kube.discovery import ApiResource, Discovery, contradicts_discovery
from rolecall.kube.errors import KubeError, NoAnswerInTimeError, UnreachableError, UnreadableError, from_status
from rolecall.kube.metadata import resource_version_of
from rolecall.kube.partial_metadata import (
    ACCEPT_PARTIAL_LIST,
    ACCEPT_PARTIAL_OBJECT,
    partial_object,
    without_managed_fields,
)
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.kube.transport import http_proxy_of, new_session
from rolecall.logs import get_logger

logger = get_logger("client")

REQUEST_SECONDS = 30.0
CONNECT_SECONDS = 5.0
PAGE_SIZE = 500
NO_ANSWER = "<error>"
MERGE_PATCH = "application/merge-patch+json"
_NETWORK_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request to the API server: method, path, query, body, timeout and the accepted format."""

    method: str
    path: str
    query: dict[str, str] | None = None
    body: object = None
    content_type: str = "application/json"
    timeout_seconds: float = REQUEST_SECONDS
    accept: str = "application/json"


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

        An object that cannot be read is logged and comes with its metadata alone, see ``partial_metadata``. Raise
        GoneError if the list must be restarted because its continue token has expired.
        """
        resource = await self.resource(gvk)
        query = {"limit": str(PAGE_SIZE)}
        while True:
            answer = await self._next_page(gvk, Request("GET", resource.path(namespace or ""), query=query))
            metadata = answer.get("metadata") or {}
            yield answer.get("items") or [], str(metadata.get("resourceVersion") or "")
            token = metadata.get("continue")
            if not token:
                return
            query["continue"] = token

    async def watch(
        self, gvk: GVK, namespace: str | None, resource_version: str, timeout_seconds: float
    ) -> AsyncIterator[tuple[str, RawObject]]:
        """Yield (type, object) for each change after a resourceVersion, including bookmarks, until the timeout.

        An object that cannot be read is logged and comes with its metadata alone, see ``partial_metadata``. Raise
        GoneError if the resourceVersion is too old, UnreachableError if the connection breaks.
        """
        resource = await self.resource(gvk)
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(int(timeout_seconds)),
        }
        request = Request("GET", resource.path(namespace or ""), query=query, timeout_seconds=timeout_seconds + 15)
        async with aclosing(self._lines(gvk, request)) as lines:
            async for line in lines:
                try:
                    event_type, obj = read_event(line)
                except UnreadableError as error:
                    event_type, obj = await self._next_event_without_content(gvk, request, str(error))
                query["resourceVersion"] = resource_version_of(obj) or query["resourceVersion"]
                yield event_type, obj

    async def _lines(self, gvk: GVK, request: Request) -> AsyncGenerator[bytes, None]:
        broke = f"the watch on {gvk} broke"
        with _translated_errors(broke):
            response = await self._open(request)
        try:
            async for line in lines_of(response.content):
                yield line
        except (*_NETWORK_ERRORS, ValueError) as error:  # ValueError: the stream ended within a line
            raise UnreachableError(f"{broke}: {error!r}") from error
        finally:
            response.close()

    async def _next_event_without_content(self, gvk: GVK, request: Request, reason: str) -> tuple[str, RawObject]:
        """Return the next event of a watch, of which only the metadata is read; a deleted object needs no more."""
        wanted = replace(request, accept=ACCEPT_PARTIAL_OBJECT, timeout_seconds=REQUEST_SECONDS)
        try:
            async with aclosing(self._lines(gvk, wanted)) as lines:
                async for line in lines:
                    event_type, obj = read_event(without_managed_fields(line, b"}}}"))
                    if event_type == "DELETED":
                        return event_type, obj | {"apiVersion": gvk.api_version, "kind": gvk.kind}
                    if event_type != "BOOKMARK":
                        _log_unreadable(gvk, obj, reason)
                        return event_type, partial_object(obj)
        except UnreadableError as error:
            reason = str(error)
        raise UnreachableError(f"the watch on {gvk} broke at an event that cannot be read: {reason}")

    async def _next_page(self, gvk: GVK, request: Request) -> RawObject:
        """Return the next page of a list, with as many objects as can be read at once; the limit grows again after it.

        If there is only one object left that cannot be read, return its metadata.
        """
        query = request.query or {}
        limit = int(query["limit"])
        try:
            answer = await self._send(request)
        except UnreadableError as error:
            if limit > 1:
                query["limit"] = str(limit // 2)
                return await self._next_page(gvk, request)
            wanted = replace(request, accept=ACCEPT_PARTIAL_LIST)
            body = without_managed_fields(await self._receive(wanted), b"}}]}")
            answer = read_object(body, f"GET {request.path}")
            for item in answer.get("items") or []:
                _log_unreadable(gvk, item, str(error))
            answer["items"] = [partial_object(item) for item in answer.get("items") or []]
        query["limit"] = str(min(2 * limit, PAGE_SIZE))
        return answer

    async def _get_json(self, path: str) -> RawObject:
        return await self._send(Request("GET", path))

    async def _send(self, request: Request) -> RawObject:
        return read_object(await self._receive(request), f"{request.method} {request.path}")

    async def _receive(self, request: Request) -> bytes:
        with _translated_errors(f"{request.method} {request.path} got no answer"):
            response = await self._open(request)
            return await response.read()

    async def _open(self, request: Request) -> aiohttp.ClientResponse:
        """Send a request and return the response with its body unread. Raise ApiError for an error status."""
        # Uncompressed: to decompress a page of megabytes holds up the event loop, and the API server, for longer than
        # to transfer it.
        headers = {"Accept": request.accept, "Accept-Encoding": "identity", "Content-Type": request.content_type}
        headers |= await self.auth_headers()
        url = self.base_url + request.path + (f"?{urlencode(request.query)}" if request.query else "")
        response = await self._call(request, url, headers)
        if response.status >= 400:  # noqa: PLR2004 - where HTTP's errors begin
            error = from_status(response.status, decode(await response.read()))
            if contradicts_discovery(error):
                self._discovery.expire(request.path)
            raise error
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


def _log_unreadable(gvk: GVK, obj: RawObject, reason: str) -> None:
    logger.error(
        "Skipping an object that cannot be read; make it smaller or less deeply nested, or delete it",
        gvk=str(gvk),
        object=str(ObjectKey.of_object(obj)),
        resource_version=resource_version_of(obj),
        reason=reason,
    )


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
