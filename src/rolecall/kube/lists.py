"""Lists of a kind, page by page, whatever the size and the content of its objects.

A page has as many objects as fit into a few megabytes, see ``paging``. An object that cannot be read is logged and
comes with its metadata alone, see ``partial_metadata``, so that the objects behind it are read too.
"""

from collections.abc import AsyncIterator
from dataclasses import replace

from rolecall.kube.answers import read_object
from rolecall.kube.connection import Reader, Request
from rolecall.kube.errors import UnreadableError
from rolecall.kube.paging import PageSize
from rolecall.kube.partial_metadata import (
    ACCEPT_PARTIAL_LIST,
    log_unreadable,
    partial_object,
    without_managed_fields,
)
from rolecall.kube.references import GVK, RawObject

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
