"""A client for the Kubernetes API on asyncio, in terms of kinds and objects.

Objects stay plain dictionaries, because a controller stores many objects and reads few of their fields. Every failure
is one of ``errors``. Lists are read in pages and watches as a stream, so that a list in a large cluster is never in
memory as a whole.

A page has as many objects as fit into a few megabytes. Sizes of objects differ by a factor of a thousand: 500 releases
of helm in one page would be hundreds of megabytes. So the number of objects follows the size of those in the previous
page, and a page that is still much too large, because large objects follow small ones, is requested again with fewer.

An object may be too long, or too deeply nested for Python's JSON parser. It must not hide other objects, so it is
logged and requested again as PartialObjectMetadata: its metadata without its content.

**An object in a response has the name, the namespace, and the kind that were asked for.** Any other one raises
OtherObjectError, so that nothing follows from an object that a gateway has substituted.

**A 404 to a request for a subresource says nothing about the object**, although it names the object: its kind may not
have the subresource. So it raises NotServedError.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import aiohttp

from rolecall.kube.connection import REQUEST_SECONDS, Connection, OnRequest, Request, read_event, read_object
from rolecall.kube.credentials import ConfigurationSource
from rolecall.kube.discovery import ApiResource, Discovery, contradicts_discovery
from rolecall.kube.errors import (
    ApiError,
    KubeError,
    NotFoundError,
    NotServedError,
    OtherObjectError,
    UnreachableError,
    UnreadableError,
)
from rolecall.kube.metadata import resource_version_of
from rolecall.kube.official_client import Configuration
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.kube.selectors import field_requirement
from rolecall.system.blocking_work import run_in_thread
from rolecall.system.clock import SYSTEM_CLOCK, Clock
from rolecall.system.logs import get_logger

logger = get_logger("client")

Page = tuple[list[RawObject], str]
"""Objects, and the resourceVersion of the list."""

Event = tuple[str, RawObject]
"""The type and the object of a watch event."""

MERGE_PATCH: Final = "application/merge-patch+json"
ACCEPT_PARTIAL_OBJECT: Final = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
ACCEPT_PARTIAL_LIST: Final = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"

UNREAD: Final = "unreadContentOfVersion"
"""The field that replaces the content of an object whose metadata alone was read; its value is the resourceVersion."""

FIRST_OBJECTS: Final = 100
MAX_OBJECTS: Final = 500
PREFERRED_BYTES: Final = 2 << 20
MAX_PAGE_BYTES: Final = 8 << 20
_GROWTH: Final = 5
_REDUCTION: Final = 8
"""A page grows more slowly than it shrinks: the next page may be the one that was too large."""

_LAG_SECONDS: Final = 15.0
"""How much later than requested the API server may end a watch."""

_PARTIAL_KIND: Final = "PartialObjectMetadata"
# The last field of the metadata. In a JSON string the quotes would be escaped, and an annotation is no list.
_MANAGED_FIELDS: Final = b',"managedFields":['


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects of a collection to read (an empty name: all), and whether their metadata suffices.

    A list or watch of one name needs no more permission than a role with ``resourceNames`` grants. With
    ``metadata_only`` the content of a Secret never reaches this process.

    An object without its content has the kind that it has, and ``UNREAD`` instead of the content.
    """

    name: str = ""
    metadata_only: bool = False


class Client(Connection):
    """A connection to one API server, for requests in terms of kinds and objects."""

    def __init__(
        self,
        configuration: Configuration,
        on_request: OnRequest | None = None,
        source: ConfigurationSource | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(configuration, on_request, source, clock)
        self._discovery = Discovery(lambda path: self._send(Request("GET", path)), clock.monotonic)

    async def open(self, request: Request) -> aiohttp.ClientResponse:
        """Send a request; an error that contradicts discovery makes the next request discover again."""
        try:
            return await super().open(request)
        except ApiError as error:
            if contradicts_discovery(error):
                self._discovery.expire(request.path)
            raise

    async def resource(self, gvk: GVK) -> ApiResource:
        """Return the API resource of a kind. Raise UnknownKindError."""
        return await self._discovery.by_kind(gvk)

    async def resource_for_path(self, group: str, version: str, plural: str) -> ApiResource | None:
        """Return the API resource of a URL's group, version and plural, None if it is not served."""
        return await self._discovery.by_plural(group, version, plural)

    async def get(self, gvk: GVK, key: ObjectKey) -> RawObject:
        """Return the current object. Raise NotFoundError."""
        resource = await self.resource(gvk)
        return await self._send_object(Request("GET", resource.path_of(key)), resource, key)

    async def read(
        self, gvk: GVK, namespace: str, name: str = "", *, max_bytes: int, metadata_only: bool = False, **query: str
    ) -> RawObject:
        """Return an object or, without a name, the list for a query as one response. Raise KubeError if it is too long.

        The response is decoded in a thread.
        """
        accept = ACCEPT_PARTIAL_OBJECT if metadata_only else "application/json"
        resource = await self.resource(gvk)
        request = Request("GET", resource.path(namespace, name), query, accept=accept)
        body = await self.receive_up_to(request, max_bytes)
        if body is None:
            raise KubeError(f"GET {request.path}: the response is longer than {max_bytes} bytes")
        obj = await run_in_thread(partial(read_object, body, f"GET {request.path}"))
        return _requested(obj, request, resource, ObjectKey(namespace, name)) if name else obj

    async def create(self, obj: RawObject) -> RawObject:
        """Create an object and return it as the API server stored it."""
        resource = await self.resource(GVK.of_object(obj))
        key = ObjectKey.of_object(obj)
        return await self._send_object(Request("POST", resource.path(key.namespace), body=obj), resource, key)

    async def replace(self, obj: RawObject, subresource: str = "") -> RawObject:
        """Replace an object or its subresource; its resourceVersion guards against concurrent changes."""
        resource = await self.resource(GVK.of_object(obj))
        key = ObjectKey.of_object(obj)
        request = Request("PUT", resource.path_of(key, subresource), body=obj)
        return await self._send_object(request, resource, key, subresource)

    async def patch(self, gvk: GVK, key: ObjectKey, patch: object, subresource: str = "") -> RawObject:
        """Change an object with a JSON merge patch."""
        resource = await self.resource(gvk)
        request = Request("PATCH", resource.path_of(key, subresource), body=patch, content_type=MERGE_PATCH)
        return await self._send_object(request, resource, key, subresource)

    async def delete(self, gvk: GVK, key: ObjectKey, preconditions: Mapping[str, str] | None = None) -> None:
        """Delete an object, with background propagation to its dependents. Raise NotFoundError.

        Raise ConflictError if it doesn't have the uid and resourceVersion of the preconditions.
        """
        resource = await self.resource(gvk)
        body = {"propagationPolicy": "Background"} | ({"preconditions": dict(preconditions)} if preconditions else {})
        await self._send(Request("DELETE", resource.path_of(key), body=body))

    async def list_pages(
        self, gvk: GVK, namespace: str | None = None, selection: Selection | None = None
    ) -> AsyncIterator[Page]:
        """Yield the objects of a kind page by page, each with the list's resourceVersion.

        An unreadable object is logged and has its metadata only, see ``is_partial``. Raise GoneError if the list must
        be restarted because its continue token has expired.
        """
        path = (await self.resource(gvk)).path(namespace or "")
        request = _selected(Request("GET", path, query={}), selection, ACCEPT_PARTIAL_LIST)
        limit, token = FIRST_OBJECTS, ""
        while True:
            query = {**(request.query or {}), "limit": str(limit)} | ({"continue": token} if token else {})
            # A single object is read regardless of its size, and so is a list of a server without pagination.
            page_request = replace(request, query=query)
            body = await self.receive_up_to(page_request, MAX_PAGE_BYTES if limit > 1 else None)
            response = None if body is None else await self._read_page(gvk, page_request, body, limit)
            if body is None or response is None:
                limit = max(1, limit // _REDUCTION)
                continue
            items: list[RawObject] = response.get("items") or []
            metadata = response.get("metadata") or {}
            yield [_shown(gvk, item, selection) for item in items], str(metadata.get("resourceVersion") or "")
            token = str(metadata.get("continue") or "")
            if not token:
                return
            fitting = PREFERRED_BYTES * max(1, len(items)) // max(1, len(body))
            limit = max(1, min(MAX_OBJECTS, _GROWTH * limit, fitting))

    async def _read_page(self, gvk: GVK, request: Request, body: bytes, limit: int) -> RawObject | None:
        """Return a page; if it is unreadable, None or, for a page of one object, only that object's metadata."""
        try:
            return read_object(body, f"GET {request.path}")
        except UnreadableError as error:
            if limit > 1:
                return None
            reason = str(error)
        body = await self.receive(replace(request, accept=ACCEPT_PARTIAL_LIST))
        response = read_object(without_managed_fields(body, b"}}]}"), f"GET {request.path}")
        items = response.get("items") or []
        for item in items:
            _log_unreadable(gvk, item, reason)
        return response | {"items": [partial_object(item) for item in items]}

    async def watch(
        self,
        gvk: GVK,
        namespace: str | None,
        resource_version: str,
        timeout_seconds: float,
        selection: Selection | None = None,
    ) -> AsyncIterator[Event]:
        """Yield (type, object) for each change after a resourceVersion, including bookmarks, until the timeout.

        An unreadable object is logged and has its metadata only, see ``is_partial``. Raise GoneError if the
        resourceVersion is too old, UnreachableError if the connection breaks.
        """
        path = (await self.resource(gvk)).path(namespace or "")
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(int(timeout_seconds)),
        }
        request = Request("GET", path, query=query, timeout_seconds=timeout_seconds + _LAG_SECONDS)
        request = _selected(request, selection, ACCEPT_PARTIAL_OBJECT)
        async with aclosing(self.lines(request)) as lines:
            async for line in lines:
                try:
                    event_type, obj = read_event(line)
                except UnreadableError as error:
                    after = replace(request, query={**(request.query or {}), "resourceVersion": resource_version})
                    event_type, obj = await self._next_event_without_content(gvk, after, str(error))
                resource_version = resource_version_of(obj) or resource_version
                yield event_type, _shown(gvk, obj, selection)

    async def _next_event_without_content(self, gvk: GVK, request: Request, reason: str) -> Event:
        """Return the next event with the metadata of its object; for a deleted object that is sufficient."""
        partial = replace(request, accept=ACCEPT_PARTIAL_OBJECT, timeout_seconds=REQUEST_SECONDS)
        try:
            async with aclosing(self.lines(partial)) as lines:
                async for line in lines:
                    event_type, obj = read_event(without_managed_fields(line, b"}}}"))
                    if event_type == "DELETED":
                        return event_type, obj | {"apiVersion": gvk.api_version, "kind": gvk.kind}
                    if event_type != "BOOKMARK":
                        _log_unreadable(gvk, obj, reason)
                        return event_type, partial_object(obj)
        except UnreadableError as error:
            reason = str(error)
        raise UnreachableError(f"the watch on {gvk} broke at an unreadable event: {reason}")

    async def _send_object(
        self, request: Request, resource: ApiResource, key: ObjectKey, subresource: str = ""
    ) -> RawObject:
        try:
            found = await self._send(request)
        except NotFoundError as error:
            if not subresource:
                raise
            self._discovery.expire(request.path)
            raise NotServedError(error.status, error.reason, error.message, error.details) from error
        return _requested(found, request, resource, key, subresource)

    async def _send(self, request: Request) -> RawObject:
        return read_object(await self.receive(request), f"{request.method} {request.path}")


def _requested(
    obj: RawObject, request: Request, resource: ApiResource, key: ObjectKey, subresource: str = ""
) -> RawObject:
    """Return the object in a response. Raise OtherObjectError if it isn't the requested one."""
    if not key.name:  # the API server generates it, or a review has none
        return obj
    expected = ObjectKey(key.namespace if resource.namespaced else "", key.name)
    gvk, found = GVK.of_object(obj), ObjectKey.of_object(obj)
    # Only the status has the object's kind: a scale is of kind Scale, and discovery doesn't tell the others' kinds.
    is_kind = is_partial(obj) or subresource not in ("", "status") or gvk == resource.gvk
    if is_kind and found == expected:
        return obj
    request_line = f"{request.method} {request.path}"
    raise OtherObjectError(f"{request_line}: expected {resource.gvk.kind} {expected}, found {gvk.kind} {found}")


def _selected(request: Request, selection: Selection | None, partial: str) -> Request:
    """Return a request for the selected objects, in the ``partial`` format if their metadata suffices."""
    if selection is None:
        return request
    query = dict(request.query or {})
    if selection.name:
        query["fieldSelector"] = field_requirement("metadata.name", selection.name)
    return replace(request, query=query, accept=partial if selection.metadata_only else request.accept)


def _shown(gvk: GVK, obj: RawObject, selection: Selection | None) -> RawObject:
    """Return an object as its reader expects it: with a selection, ``UNREAD`` replaces content that was not read."""
    if selection is None or not (selection.metadata_only or is_partial(obj)):
        return obj
    return {
        "apiVersion": gvk.api_version,
        "kind": gvk.kind,
        "metadata": obj.get("metadata") or {},
        UNREAD: resource_version_of(obj),
    }


def is_partial(obj: RawObject) -> bool:
    """Return whether an object has only its metadata, because its content is unreadable."""
    return obj.get("kind") == _PARTIAL_KIND


def partial_object(obj: RawObject) -> RawObject:
    """Return the metadata of an object, in a form that ``is_partial`` recognizes."""
    return {"apiVersion": "meta.k8s.io/v1", "kind": _PARTIAL_KIND, "metadata": obj.get("metadata") or {}}


def without_managed_fields(text: bytes, closing: bytes) -> bytes:
    """Return the JSON of one object's metadata without its managed fields, which are nested like the object itself.

    ``closing`` are the brackets that follow the metadata's fields. The text of several objects is returned unchanged.
    """
    if text.count(_MANAGED_FIELDS) != 1:
        return text
    return text.partition(_MANAGED_FIELDS)[0] + closing


def _log_unreadable(gvk: GVK, obj: RawObject, reason: str) -> None:
    """Log that an object is skipped, with its name and version."""
    logger.error(
        "Skipping an object that cannot be read; make it smaller or less deeply nested, or delete it",
        gvk=str(gvk),
        object=str(ObjectKey.of_object(obj)),
        resource_version=resource_version_of(obj),
        reason=reason,
    )
