"""Lists and watches of a part of a collection: one object by its name, or the metadata of objects alone.

A list or watch of one name needs no more permission than a role with ``resourceNames`` gives, and metadata alone never
brings the content of a Secret into this process. An object whose content is not read, or cannot be, comes with the kind
that it has and with its version in place of its content: see ``UNREAD``.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final, Protocol

from rolecall.kube.connection import Reader, Request
from rolecall.kube.discovery import ApiResource
from rolecall.kube.lists import Page, pages_of
from rolecall.kube.metadata import resource_version_of
from rolecall.kube.partial_metadata import ACCEPT_PARTIAL_LIST, ACCEPT_PARTIAL_OBJECT, is_partial
from rolecall.kube.references import GVK, RawObject
from rolecall.kube.watch_events import Event, events_after

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
    """Lists and watches what a selection says; implements ``rolecall.runner.controller.reflector.ListerWatcher``."""

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
