"""The events of a watch, whatever its objects contain.

An object that cannot be read is logged and comes with its metadata alone, see ``partial_metadata``. The watch goes on
behind it.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from rolecall.kube.answers import read_event
from rolecall.kube.connection import REQUEST_SECONDS, Reader, Request
from rolecall.kube.errors import UnreachableError, UnreadableError
from rolecall.kube.metadata import resource_version_of
from rolecall.kube.partial_metadata import (
    ACCEPT_PARTIAL_OBJECT,
    log_unreadable,
    partial_object,
    without_managed_fields,
)
from rolecall.kube.references import GVK, RawObject

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
