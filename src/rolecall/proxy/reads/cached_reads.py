"""Reads answered from the operator's cache, for those who switch that on.

Only what the API server would answer in the same way is taken from there: whole objects and lists of them in JSON, by
equality of labels. Everything else goes to the API server, and so does every read that a cache could only answer with
something older than what the primary's runs have seen, or with "not found".
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
from rolecall.proxy.reads.read_watermark import ReadWatermark, key_of, resource_of
from rolecall.proxy.request_info import RequestInfo
from rolecall.proxy.sessions import SessionSpec
from rolecall.proxy.writes.bodies import encode

logger = get_logger("proxy")

_WITHOUT_EFFECT: Final = frozenset({"labelSelector", "limit", "pretty", "timeout", "timeoutSeconds"})
_OFF: Final = {"watch": {"", "0", "false"}, "resourceVersion": {"", "0"}, "allowWatchBookmarks": {"0", "false"}}
_JSON: Final = frozenset({"", "*/*", "application/*", "application/json"})
_EQUALITY: Final = re.compile(r"\s*([\w./-]+)\s*==?\s*([\w.-]*)\s*", re.ASCII)


class CachedKind(Protocol):
    """The objects of one kind in one namespace or in all, as of a resourceVersion."""

    @property
    def position(self) -> str:
        """How far the cache has come."""

    def get(self, key: ObjectKey) -> StoredObject | None:
        """Return an object, None when the cache does not have it."""

    def __iter__(self) -> Iterator[StoredObject]:
        """Iterate over the objects in the API server's order."""


class Cache(Protocol):
    """Objects that are kept up to date by somebody else."""

    def view(self, resource: ApiResource, namespace: str) -> CachedKind | None:
        """Return the objects of a kind in a namespace (empty: in all), None when they are not known."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A read: its target, how it reads, and the headers that say what the answer may be."""

    target: str
    info: RequestInfo
    headers: Mapping[str, str] = field(repr=False)

    @property
    def is_plain(self) -> bool:
        """Tell whether the answer is a whole object or a list of them, in JSON, for the operator itself."""
        info = self.info
        if not (info.is_resource and info.verb in {"get", "list"} and info.subresource in {"", "status"}):
            return False
        if any(name.lower().startswith("impersonate-") for name in self.headers):
            return False
        accepted = [part.partition(";") for part in self.headers.get("Accept", "").split(",")]
        return any(kind.strip() in _JSON for kind, _, _ in accepted) and not any("as=" in rest for *_, rest in accepted)

    @property
    def query(self) -> dict[str, str] | None:
        """The parameters that count, None when there is one that a cache cannot honour."""
        query = dict(parse_qsl(self.target.partition("?")[2], keep_blank_values=True))
        strange = [name for name in query if name not in _WITHOUT_EFFECT and query[name] not in _OFF.get(name, ())]
        return None if strange else query


@dataclass(frozen=True, slots=True)
class CachedReads:
    """Answers reads from a cache where that does no harm."""

    client: Client
    cache: Cache

    async def answer(self, run: SessionSpec, question: ReadRequest) -> web.Response | None:
        """Return the answer to a read, None when the API server has to give it."""
        if run.seen is None:
            return None
        resource = await self._resource(run, question)
        body = None if resource is None else self._body(resource, question, run.seen)
        if body is None:
            return None
        logger.debug("Read object from cache", resource=_described(question))
        return web.Response(body=body, content_type="application/json", headers={"X-Cache": "HIT"})

    async def _resource(self, run: SessionSpec, question: ReadRequest) -> ApiResource | None:
        """Return the kind that is asked for if it may be cached for this run."""
        if question.is_plain and question.query is not None:
            resource = await self._discovered(question.info)
            if resource is None:
                logger.debug("Cache miss, can not find in rest mapper", resource=_described(question))
                return None
            if resource.gvk in run.uncached:
                logger.debug("Skipping, because gvk is blacklisted", gvk=str(resource.gvk))
            elif not resource.is_virtual:
                return resource
        logger.debug("Skipping cache lookup", resource=_described(question))
        return None

    async def _discovered(self, info: RequestInfo) -> ApiResource | None:
        try:
            return await self.client.resource_for_path(info.group, info.version, info.resource)
        except KubeError:
            return None

    def _body(self, resource: ApiResource, question: ReadRequest, seen: ReadWatermark) -> bytes | None:
        """Return the body of the answer, None when the cache does not have it or may be too old."""
        info = question.info
        view = self.cache.view(resource, info.namespace if resource.namespaced else "")
        if view is None:
            logger.debug("Skipping cache lookup", resource=_described(question))
            return None
        id_ = resource_of(info)
        if not seen.covers(id_, view.position) or any(view.get(key) for key in seen.missing(id_)):
            logger.debug("Cache is behind", gvk=str(resource.gvk), position=view.position)
            return None
        if info.verb == "get":
            return _one(resource, view, key_of(info), seen)
        body = _list(resource.gvk, view, question.query or {})
        if body is not None:
            seen.version(id_, view.position)
        return body


def _one(resource: ApiResource, view: CachedKind, key: ObjectKey, seen: ReadWatermark) -> bytes | None:
    stored = view.get(key)
    if stored is None:
        logger.debug("Cache miss", gvk=str(resource.gvk), key=str(key))
        return None
    seen.version((resource.gvk.group, resource.plural), stored.resource_version)
    return stored.body


def _list(gvk: GVK, view: CachedKind, query: Mapping[str, str]) -> bytes | None:
    """Return a list without pages, None when its selector is not one of equality or it would have several pages."""
    labels = equalities(query.get("labelSelector", ""))
    if labels is None:
        return None
    bodies = [stored.body for stored in view if labels.items() <= stored.labels.items()]
    limit = query.get("limit", "0") or "0"
    if not limit.isdigit() or 0 < int(limit) < len(bodies):
        return None
    metadata = {"resourceVersion": view.position}
    head = encode({"apiVersion": gvk.api_version, "kind": f"{gvk.kind}List", "metadata": metadata})
    return head[:-1] + b',"items":[' + b",".join(bodies) + b"]}"


def equalities(selector: str) -> dict[str, str] | None:
    """Return the labels of a selector that only says what is equal to what, None for any other."""
    labels: dict[str, str] = {}
    for requirement in filter(None, selector.split(",")):
        match = _EQUALITY.fullmatch(requirement)
        if match is None or labels.setdefault(match[1], match[2]) != match[2]:
            return None
    return labels


def _described(question: ReadRequest) -> dict[str, Any]:
    """Return a request in the words and the order of the Go runner's log, which people's tools search."""
    info = question.info
    return {
        "IsResourceRequest": info.is_resource,
        "Path": question.target.partition("?")[0],
        "Verb": info.verb,
        "APIPrefix": question.target.split("/", 2)[1],
        "APIGroup": info.group,
        "APIVersion": info.version,
        "Namespace": info.namespace,
        "Resource": info.resource,
        "Subresource": info.subresource,
        "Name": info.name,
        "Parts": [part for part in (info.resource, info.name, info.subresource) if part],
    }
