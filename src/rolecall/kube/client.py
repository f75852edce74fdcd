"""A client for the Kubernetes API on asyncio.

Objects stay plain dictionaries, because a controller holds many objects and reads few of their fields. Every failure is
one of ``errors``. Lists are read in pages and watches as a stream, so that a list of a large cluster is never in memory
as a whole.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing

from kubernetes.aio.client import Configuration

from rolecall.kube.answers import read_object
from rolecall.kube.configuration import ConfigurationSource
from rolecall.kube.connection import Connection, OnRequest, Request
from rolecall.kube.discovery import ApiResource, Discovery, contradicts_discovery
from rolecall.kube.errors import ApiError
from rolecall.kube.lists import Page, pages_of
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.kube.watch_events import Event, events_after

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
