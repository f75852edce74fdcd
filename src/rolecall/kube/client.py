"""A client for the Kubernetes API on asyncio.

Objects stay plain dictionaries, because a controller holds many objects and reads few of their fields. Every failure is
one of ``errors``. Lists are read in pages and watches as a stream, so that a list of a large cluster is never in memory
as a whole.

Lists of a kind, page by page, whatever the size and the content of its objects.

A page has as many objects as fit into a few megabytes, see ``paging``. An object that cannot be read is logged and
comes with its metadata alone, see ``partial_metadata``, so that the objects behind it are read too.

How many objects a page of a list has: as many as fit into a few megabytes.

Objects differ by a factor of a thousand: 500 releases of helm in one page would be hundreds of megabytes. So the number
follows the size of the objects in the page before. A page that is much too large nevertheless, because small objects
are followed by large ones, is not read to its end but asked for again with fewer objects.

The events of a watch, whatever its objects contain.

An object that cannot be read is logged and comes with its metadata alone, see ``partial_metadata``. The watch goes on
behind it.

Lists and watches of a part of a collection: one object by its name, or the metadata of objects alone.

A list or watch of one name needs no more permission than a role with ``resourceNames`` gives, and metadata alone never
brings the content of a Secret into this process. An object whose content is not read, or cannot be, comes with the kind
that it has and with its version in place of its content: see ``UNREAD``.

Objects of which only the metadata can be read.

An object may be nested more deeply than Python's JSON parser can go, or be longer than we want to hold. The API server
then sends its metadata alone, as PartialObjectMetadata. So the object can be named and skipped, and everything after it
is read.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final, Protocol

from kubernetes.aio.client import Configuration

from rolecall.kube.connection import REQUEST_SECONDS, Connection, OnRequest, Reader, Request, read_event, read_object
from rolecall.kube.credentials import ConfigurationSource
from rolecall.kube.discovery import ApiResource, Discovery, contradicts_discovery
from rolecall.kube.errors import ApiError, UnreachableError, UnreadableError
from rolecall.kube.metadata import resource_version_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.system.logs import get_logger

FIRST_OBJECTS: Final = 100
MOST_OBJECTS: Final = 500
WANTED_BYTES: Final = 2 << 20
MOST_BYTES: Final = 8 << 20
_FEWER: Final = 8
_MORE: Final = 5
"""The next page may be the one that was too large, so their number grows step by step."""


@dataclass(slots=True)
class PageSize:
    """The size of the next page: ``objects`` to ask for, and ``most_bytes`` to read, None for any number."""

    objects: int = FIRST_OBJECTS

    @property
    def most_bytes(self) -> int | None:
        """A single object is read whatever its size, and so is a list from a server that knows no pages."""
        return MOST_BYTES if self.objects > 1 else None

    def fit(self, objects: int, size: int) -> None:
        """Choose the size of the next page after one with so many objects and bytes."""
        fitting = WANTED_BYTES * max(1, objects) // max(1, size)
        self.objects = max(1, min(MOST_OBJECTS, _MORE * self.objects, fitting))

    def reduce(self) -> None:
        """Ask for fewer objects after a page that was too large."""
        self.objects = max(1, self.objects // _FEWER)


logger = get_logger("client")

ACCEPT_PARTIAL_OBJECT: Final = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
ACCEPT_PARTIAL_LIST: Final = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
_KIND: Final = "PartialObjectMetadata"
# The last field of the metadata. In a JSON string the quotes would be escaped, and an annotation is no list.
_MANAGED_FIELDS: Final = b',"managedFields":['


def is_partial(obj: RawObject) -> bool:
    """Return whether an object has only its metadata, because the rest cannot be read."""
    return obj.get("kind") == _KIND


def partial_object(obj: RawObject) -> RawObject:
    """Return the metadata of an object, in a form that ``is_partial`` recognizes."""
    return {"apiVersion": "meta.k8s.io/v1", "kind": _KIND, "metadata": obj.get("metadata") or {}}


def without_managed_fields(text: bytes, closing: bytes) -> bytes:
    """Return the JSON of one object's metadata without its managed fields, which are nested like the object itself.

    ``closing`` are the brackets that follow the metadata's fields. The text of several objects is returned unchanged.
    """
    if text.count(_MANAGED_FIELDS) != 1:
        return text
    return text.partition(_MANAGED_FIELDS)[0] + closing


def log_unreadable(gvk: GVK, obj: RawObject, reason: str) -> None:
    """Log that an object is skipped, with its name and version."""
    logger.error(
        "Skipping an object that cannot be read; make it smaller or less deeply nested, or delete it",
        gvk=str(gvk),
        object=str(ObjectKey.of_object(obj)),
        resource_version=resource_version_of(obj),
        reason=reason,
    )


Page = tuple[list[RawObject], str]
"""Objects, and the resourceVersion of the list."""


async def pages_of(connection: Reader, gvk: GVK, path: str) -> AsyncIterator[Page]:
    """Yield the pages of the list at a path. Raise GoneError if it must be restarted: the continue token expired."""
    size = PageSize()
    query: dict[str, str] = {}
    while True:
        query["limit"] = str(size.objects)
        answer = await _page(connection, gvk, Request("GET", path, query=query), size)
        if answer is None:
            continue
        metadata = answer.get("metadata") or {}
        yield answer.get("items") or [], str(metadata.get("resourceVersion") or "")
        token = metadata.get("continue")
        if not token:
            return
        query["continue"] = token


async def _page(connection: Reader, gvk: GVK, request: Request, size: PageSize) -> RawObject | None:
    """Return a page, None if it has to be asked for again with fewer objects."""
    body = await connection.receive_up_to(request, size.most_bytes)
    if body is None:
        size.reduce()
        return None
    try:
        answer = read_object(body, f"GET {request.path}")
    except UnreadableError as error:
        if size.objects > 1:
            size.reduce()
            return None
        answer = await _page_without_content(connection, gvk, request, str(error))
    size.fit(len(answer.get("items") or []), len(body))
    return answer


async def _page_without_content(connection: Reader, gvk: GVK, request: Request, reason: str) -> RawObject:
    """Return a page of a single object, of which only the metadata is read."""
    wanted = replace(request, accept=ACCEPT_PARTIAL_LIST)
    answer = read_object(without_managed_fields(await connection.receive(wanted), b"}}]}"), f"GET {request.path}")
    items = answer.get("items") or []
    for item in items:
        log_unreadable(gvk, item, reason)
    return answer | {"items": [partial_object(item) for item in items]}


Event = tuple[str, RawObject]
"""The type and the object of an event."""

_LAG_SECONDS = 15.0
"""How much later than it was asked to the API server may end a watch."""


async def events_after(
    connection: Reader, gvk: GVK, path: str, resource_version: str, timeout_seconds: float
) -> AsyncGenerator[Event, None]:
    """Yield each event after a resourceVersion, including bookmarks, until the timeout.

    Raise GoneError if the resourceVersion is too old, UnreachableError if the connection breaks.
    """
    query = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": resource_version,
        "timeoutSeconds": str(int(timeout_seconds)),
    }
    request = Request("GET", path, query=query, timeout_seconds=timeout_seconds + _LAG_SECONDS)
    async with aclosing(connection.lines(request)) as lines:
        async for line in lines:
            try:
                event_type, obj = read_event(line)
            except UnreadableError as error:
                event_type, obj = await _next_event_without_content(connection, gvk, request, str(error))
            query["resourceVersion"] = resource_version_of(obj) or query["resourceVersion"]
            yield event_type, obj


async def _next_event_without_content(connection: Reader, gvk: GVK, request: Request, reason: str) -> Event:
    """Return the next event, of which only the metadata is read; a deleted object needs no more."""
    wanted = replace(request, accept=ACCEPT_PARTIAL_OBJECT, timeout_seconds=REQUEST_SECONDS)
    try:
        async with aclosing(connection.lines(wanted)) as lines:
            async for line in lines:
                event_type, obj = read_event(without_managed_fields(line, b"}}}"))
                if event_type == "DELETED":
                    return event_type, obj | {"apiVersion": gvk.api_version, "kind": gvk.kind}
                if event_type != "BOOKMARK":
                    log_unreadable(gvk, obj, reason)
                    return event_type, partial_object(obj)
    except UnreadableError as error:
        reason = str(error)
    raise UnreachableError(f"the watch on {gvk} broke at an event that cannot be read: {reason}")


MERGE_PATCH = "application/merge-patch+json"


class Client(Connection):
    """A connection to one API server, for requests in terms of kinds and objects."""

    def __init__(
        self,
        configuration: Configuration,
        on_request: OnRequest | None = None,
        source: ConfigurationSource | None = None,
    ) -> None:
        super().__init__(configuration, on_request, source)
        self._discovery = Discovery(self._get_json)

    def note_error(self, request: Request, error: ApiError) -> None:
        """Look again at what is served if an error contradicts what is known of it."""
        if contradicts_discovery(error):
            self._discovery.expire(request.path)

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

    async def list_pages(self, gvk: GVK, namespace: str | None = None) -> AsyncIterator[Page]:
        """Yield the objects of a kind page by page, each with the list's resourceVersion.

        An object that cannot be read is logged and comes with its metadata alone, see ``partial_metadata``. Raise
        GoneError if the list must be restarted because its continue token has expired.
        """
        resource = await self.resource(gvk)
        async for page in pages_of(self, gvk, resource.path(namespace or "")):
            yield page

    async def watch(
        self, gvk: GVK, namespace: str | None, resource_version: str, timeout_seconds: float
    ) -> AsyncIterator[Event]:
        """Yield (type, object) for each change after a resourceVersion, including bookmarks, until the timeout.

        An object that cannot be read is logged and comes with its metadata alone, see ``partial_metadata``. Raise
        GoneError if the resourceVersion is too old, UnreachableError if the connection breaks.
        """
        resource = await self.resource(gvk)
        path = resource.path(namespace or "")
        async with aclosing(events_after(self, gvk, path, resource_version, timeout_seconds)) as events:
            async for event in events:
                yield event

    async def _get_json(self, path: str) -> RawObject:
        return await self._send(Request("GET", path))

    async def _send(self, request: Request) -> RawObject:
        return read_object(await self.receive(request), f"{request.method} {request.path}")


UNREAD: Final = "unreadContentOfVersion"
"""The field that stands for all content of an object of which only the metadata was read."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a collection to read (an empty name: all), and whether their metadata is enough."""

    name: str = ""
    metadata_only: bool = False


class KindReader(Reader, Protocol):
    """What is needed of a client."""

    async def resource(self, gvk: GVK) -> ApiResource:
        """Return the API resource of a kind. Raise UnknownKindError."""


@dataclass(frozen=True, slots=True)
class SelectedReads:
    """Lists and watches what a selection says; implements ``rolecall.runner.controller.informer.ListerWatcher``."""

    connection: KindReader
    selection: Selection

    async def resource(self, gvk: GVK) -> ApiResource:
        """Return the API resource of a kind. Raise UnknownKindError."""
        return await self.connection.resource(gvk)

    async def list_pages(self, gvk: GVK, namespace: str | None = None) -> AsyncIterator[Page]:
        """Yield the objects page by page, each with the list's resourceVersion. Raise GoneError."""
        resource = await self.resource(gvk)
        async for items, version in pages_of(self, gvk, resource.path(namespace or "")):
            yield [self._shown(gvk, item) for item in items], version

    async def watch(
        self, gvk: GVK, namespace: str | None, resource_version: str, timeout_seconds: float
    ) -> AsyncIterator[Event]:
        """Yield (type, object) for each event and bookmark until the timeout. Raise GoneError."""
        resource = await self.resource(gvk)
        path = resource.path(namespace or "")
        async with aclosing(events_after(self, gvk, path, resource_version, timeout_seconds)) as events:
            async for event_type, obj in events:
                yield event_type, self._shown(gvk, obj)

    async def receive(self, request: Request) -> bytes:
        """Send a request for the selection and return the body of the answer."""
        return await self.connection.receive(self._selected(request, ACCEPT_PARTIAL_LIST))

    async def receive_up_to(self, request: Request, most_bytes: int | None) -> bytes | None:
        """Send a request for the selection and return the body of the answer, None if it is too long."""
        return await self.connection.receive_up_to(self._selected(request, ACCEPT_PARTIAL_LIST), most_bytes)

    def lines(self, request: Request) -> AsyncGenerator[bytes, None]:
        """Send a request for the selection and yield each line of the answer."""
        return self.connection.lines(self._selected(request, ACCEPT_PARTIAL_OBJECT))

    def _selected(self, request: Request, partial: str) -> Request:
        query = dict(request.query or {})
        if self.selection.name:
            query["fieldSelector"] = f"metadata.name={self.selection.name}"
        accept = partial if self.selection.metadata_only else request.accept
        return replace(request, query=query, accept=accept)

    def _shown(self, gvk: GVK, obj: RawObject) -> RawObject:
        if not (self.selection.metadata_only or is_partial(obj)):
            return obj
        return {
            "apiVersion": gvk.api_version,
            "kind": gvk.kind,
            "metadata": obj.get("metadata") or {},
            UNREAD: resource_version_of(obj),
        }
