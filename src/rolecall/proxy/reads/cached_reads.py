"""Reads answered from the operator's cache, if that is enabled.

The cache answers only reads for which the API server would give the same response: complete objects and lists of them
in JSON, selected by equality of labels. All other reads go to the API server. So do reads for which the cache has
nothing, or only state that is older than what the primary's runs have seen.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl

from aiohttp import web

from rolecall.kube.client import Client
from rolecall.kube.discovery import ApiResource
from rolecall.kube.errors import KubeError
from rolecall.kube.references import GVK, ObjectKey
from rolecall.kube.stored_object import StoredObject
from rolecall.logs import get_logger
from rolecall.proxy.reads.read_watermark import ReadWatermark
from rolecall.proxy.request_info import RequestInfo
from rolecall.proxy.sessions import SessionSpec
from rolecall.proxy.writes.bodies import encode

logger = get_logger("proxy")

_IGNORED_PARAMETERS: Final = frozenset({"labelSelector", "limit", "pretty", "timeout", "timeoutSeconds"})
_DISABLED_VALUES: Final = {
    "watch": {"", "0", "false"},
    "resourceVersion": {"", "0"},
    "allowWatchBookmarks": {"0", "false"},
}
_JSON: Final = frozenset({"", "*/*", "application/*", "application/json"})
_EQUALITY: Final = re.compile(r"\s*([\w./-]+)\s*==?\s*([\w.-]*)\s*", re.ASCII)


class CachedKind(Protocol):
    """The objects of one kind in one namespace, or in all namespaces, at a resourceVersion."""

    @property
    def resource_version(self) -> str:
        """The resourceVersion that the cache has reached."""

    def get(self, key: ObjectKey) -> StoredObject | None:
        """Return an object, None if the cache does not have it."""

    def __iter__(self) -> Iterator[StoredObject]:
        """Iterate over the objects in the API server's order."""


class Cache(Protocol):
    """A cache of objects, kept up to date elsewhere."""

    def view(self, resource: ApiResource, namespace: str) -> CachedKind | None:
        """Return the objects of a kind in a namespace (empty: in all), None if they are not cached."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A read: its target, the parsed target, and the headers, which select the format of the response."""

    target: str
    info: RequestInfo
    headers: Mapping[str, str] = field(repr=False)

    @property
    def is_plain(self) -> bool:
        """Return whether the response is a complete object or list in JSON, without impersonation."""
        info = self.info
        if not (info.is_resource and info.verb in {"get", "list"} and info.subresource in {"", "status"}):
            return False
        if any(name.lower().startswith("impersonate-") for name in self.headers):
            return False
        accepted = [part.partition(";") for part in self.headers.get("Accept", "").split(",")]
        return any(kind.strip() in _JSON for kind, _, _ in accepted) and not any("as=" in rest for *_, rest in accepted)

    @property
    def query(self) -> dict[str, str] | None:
        """The query parameters, None if there is one that the cache does not support."""
        query = dict(parse_qsl(self.target.partition("?")[2], keep_blank_values=True))
        is_supported = all(
            name in _IGNORED_PARAMETERS or value in _DISABLED_VALUES.get(name, ()) for name, value in query.items()
        )
        return query if is_supported else None


@dataclass(frozen=True, slots=True)
class CachedReads:
    """Answers reads from a cache that has reached the read watermark."""

    client: Client
    cache: Cache

    async def respond(self, spec: SessionSpec, request: ReadRequest) -> web.Response | None:
        """Return the response to a read, None if the read has to go to the API server."""
        if spec.watermark is None:
            return None
        resource = await self._resource(spec, request)
        body = None if resource is None else self._response_body(resource, request, spec.watermark)
        if body is None:
            return None
        logger.debug("Read object from cache", resource=_log_fields(request))
        return web.Response(body=body, content_type="application/json", headers={"X-Cache": "HIT"})

    async def _resource(self, spec: SessionSpec, request: ReadRequest) -> ApiResource | None:
        """Return the requested kind if the run may read it from the cache."""
        if request.is_plain and request.query is not None:
            resource = await self._discovered(request.info)
            if resource is None:
                logger.debug("Cache miss, can not find in rest mapper", resource=_log_fields(request))
                return None
            if resource.gvk in spec.uncached:
                logger.debug("Skipping, because gvk is blacklisted", gvk=str(resource.gvk))
            elif not resource.is_virtual:
                return resource
        logger.debug("Skipping cache lookup", resource=_log_fields(request))
        return None

    async def _discovered(self, info: RequestInfo) -> ApiResource | None:
        try:
            return await self.client.resource_for_path(info.group, info.version, info.resource)
        except KubeError:
            return None

    def _response_body(self, resource: ApiResource, request: ReadRequest, watermark: ReadWatermark) -> bytes | None:
        """Return the body of the response, None if the cache does not have it or may be too old."""
        info = request.info
        view = self.cache.view(resource, info.namespace if resource.namespaced else "")
        if view is None:
            logger.debug("Skipping cache lookup", resource=_log_fields(request))
            return None
        group_resource = info.group_resource
        has_deleted = any(view.get(key) for key in watermark.absent_keys(group_resource))
        if has_deleted or not watermark.is_reached_by(group_resource, view.resource_version):
            logger.debug("Cache is behind", gvk=str(resource.gvk), resource_version=view.resource_version)
            return None
        if info.verb == "get":
            return _object_body(resource, view, info.key, watermark)
        body = _list_body(resource.gvk, view, request.query or {})
        if body is not None:
            watermark.record_version(group_resource, view.resource_version)
        return body


def _object_body(resource: ApiResource, view: CachedKind, key: ObjectKey, watermark: ReadWatermark) -> bytes | None:
    stored = view.get(key)
    if stored is None:
        logger.debug("Cache miss", gvk=str(resource.gvk), key=str(key))
        return None
    watermark.record_version((resource.gvk.group, resource.plural), stored.resource_version)
    return stored.body


def _list_body(gvk: GVK, view: CachedKind, query: Mapping[str, str]) -> bytes | None:
    """Return a list, None if the selector is not equality-based or the list would have more than one page."""
    labels = equality_labels(query.get("labelSelector", ""))
    if labels is None:
        return None
    bodies = [stored.body for stored in view if labels.items() <= stored.labels.items()]
    limit = query.get("limit", "0") or "0"
    if not limit.isdigit() or 0 < int(limit) < len(bodies):
        return None
    metadata = {"resourceVersion": view.resource_version}
    head = encode({"apiVersion": gvk.api_version, "kind": f"{gvk.kind}List", "metadata": metadata})
    return head[:-1] + b',"items":[' + b",".join(bodies) + b"]}"


def equality_labels(selector: str) -> dict[str, str] | None:
    """Return the labels of an equality-based selector, None for any other selector."""
    labels: dict[str, str] = {}
    for requirement in filter(None, selector.split(",")):
        match = _EQUALITY.fullmatch(requirement)
        if match is None or labels.setdefault(match[1], match[2]) != match[2]:
            return None
    return labels


def _log_fields(request: ReadRequest) -> dict[str, Any]:
    """Return a request with the keys and in the order of the Go runner's log, because log queries depend on them."""
    info = request.info
    return {
        "IsResourceRequest": info.is_resource,
        "Path": request.target.partition("?")[0],
        "Verb": info.verb,
        "APIPrefix": request.target.split("/", 2)[1],
        "APIGroup": info.group,
        "APIVersion": info.version,
        "Namespace": info.namespace,
        "Resource": info.resource,
        "Subresource": info.subresource,
        "Name": info.name,
        "Parts": [part for part in (info.resource, info.name, info.subresource) if part],
    }
