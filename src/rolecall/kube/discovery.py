"""Discovery of API resources: kinds, their plural names, their scope and their verbs.

Resource lists are cached for each group and version, because every request needs one. If a cached list lacks a kind or
plural, it is fetched again, so that a CRD that is installed later is found at once. Missing kinds are not cached. A
list is fetched again after some seconds too, and after an answer that contradicts it, because a CRD may get a
subresource or another scope at any time. If that fetch fails, the list that is known is used.

Everything that an API server serves, in two requests: aggregated discovery.

The answers are kept with their ETags, so that a look at what has not changed costs two short answers. A version that
the API server marks as stale, because the server behind it did not answer, and each version of an API server without
aggregated discovery, has no resources here: whoever needs it asks for it directly.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Final

from rolecall.kube.connection import Connection, ETagResponse, Request, read_object
from rolecall.kube.errors import ApiError, KubeError, NotFoundError, UnknownKindError
from rolecall.kube.references import GVK, ObjectKey, RawObject

MAX_AGE_SECONDS: Final = 30.0
"""How long a resource list is used without another look."""

_NOT_SERVED: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED})


@dataclass(frozen=True, slots=True)
class ApiResource:
    """A kind as the API server serves it."""

    gvk: GVK
    plural: str
    namespaced: bool
    verbs: frozenset[str]
    subresources: frozenset[str]

    @property
    def is_virtual(self) -> bool:
        """Whether objects of this kind are not stored (such as reviews): they cannot be read, listed and watched."""
        return not {"get", "list", "watch"} <= self.verbs

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of the collection, of an object, or of a subresource."""
        return "/".join(part for part in (self._collection(namespace), name, subresource) if part)

    def path_of(self, key: ObjectKey, subresource: str = "") -> str:
        """Return the URL path of an object."""
        return self.path(key.namespace, key.name, subresource)

    def _collection(self, namespace: str) -> str:
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{group_version_path(self.gvk.group, self.gvk.version)}{scope}/{self.plural}"


def group_version_path(group: str, version: str) -> str:
    """Return the URL path of a group and version."""
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


@dataclass(slots=True)
class Discovery:
    """Fetch and cache the resource list of each group and version.

    ``fetch`` takes a URL path and returns the decoded answer; it raises NotFoundError for an unknown group or version.
    """

    fetch: Callable[[str], Awaitable[dict[str, Any]]]
    now: Callable[[], float] = time.monotonic
    _cache: dict[tuple[str, str], tuple[ApiResource, ...]] = field(default_factory=dict)
    _expiries: dict[tuple[str, str], float] = field(default_factory=dict)

    async def by_kind(self, gvk: GVK) -> ApiResource:
        """Return the resource of a kind. Raise UnknownKindError."""
        found = await self._find(gvk.group, gvk.version, lambda resource: resource.gvk.kind == gvk.kind)
        if found is None:
            raise UnknownKindError(gvk)
        return found

    async def by_plural(self, group: str, version: str, plural: str) -> ApiResource | None:
        """Return the resource of a plural name, None if it is not served."""
        return await self._find(group, version, lambda resource: resource.plural == plural)

    async def _find(self, group: str, version: str, wanted: Callable[[ApiResource], bool]) -> ApiResource | None:
        found = next(filter(wanted, self._cache.get((group, version), ())), None)
        if found is not None and self.now() < self._expiries.get((group, version), 0.0):
            return found
        self._expiries[(group, version)] = self.now() + MAX_AGE_SECONDS  # meanwhile others use what is known
        try:
            answer = await self.fetch(group_version_path(group, version))
        except NotFoundError:
            self._cache.pop((group, version), None)
            return None
        except KubeError:
            if found is None:
                raise
            return found
        self._cache[(group, version)] = resources = read_resource_list(group, version, answer)
        return next(filter(wanted, resources), None)

    def expire(self, path: str) -> None:
        """Fetch the resource list of a URL path again before it is used, because an answer has contradicted it."""
        for group, version in self._cache:
            if path.startswith(f"{group_version_path(group, version)}/"):
                self._expiries.pop((group, version), None)


def contradicts_discovery(error: ApiError) -> bool:
    """Return whether an error says that a path or method is not served; a missing object has its name in the error."""
    return error.status in _NOT_SERVED and not error.details.get("name")


def read_resource_list(group: str, version: str, answer: dict[str, Any]) -> tuple[ApiResource, ...]:
    """Return the resources of an APIResourceList, with the names of their subresources."""
    items = answer.get("resources") or ()
    subresources: dict[str, set[str]] = {}
    for item in items:
        plural, slash, rest = str(item["name"]).partition("/")
        if slash:
            subresources.setdefault(plural, set()).add(rest)
    return tuple(
        ApiResource(
            GVK(group, version, item["kind"]),
            item["name"],
            bool(item.get("namespaced")),
            frozenset(item.get("verbs") or ()),
            frozenset(subresources.get(item["name"], ())),
        )
        for item in items
        if "/" not in item["name"]
    )


_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
ACCEPT: Final = f"{_AGGREGATED.format('v2')},{_AGGREGATED.format('v2beta1')},application/json"
AGGREGATED: Final = "APIGroupDiscoveryList"
_CORE, _GROUPS, _VERSION = "/api", "/apis", "/version"
_SECONDS: Final = 5.0
_STALE: Final = "Stale"

Resources = list[dict[str, Any]]
"""The resources of a version and their subresources, as in an APIResourceList."""


@dataclass(frozen=True, slots=True)
class Served:
    """What an API server serves.

    ``groups`` has the versions of each group, the preferred one first, and the resources of each version; None if the
    API server has to be asked for them. The core group has the name "". ``version`` is the answer of ``/version``.
    """

    groups: Mapping[str, Mapping[str, Resources | None]]
    version: RawObject


@dataclass(slots=True)
class AggregatedDiscovery:
    """Asks one API server what it serves."""

    connection: Connection
    _known: dict[str, ETagResponse] = field(default_factory=dict)
    _told: tuple[bytes, bytes] | None = None

    async def changed(self) -> Served | None:
        """Return what is served; None if that has not changed since it was returned last. Raise KubeError."""
        core, groups = await asyncio.gather(self._look(_CORE), self._look(_GROUPS))
        if (core, groups) == self._told:
            return None
        version = read_object(await self.connection.receive(self._request(_VERSION)), _VERSION)
        served = Served({**_groups_of(read_object(core, _CORE)), **_groups_of(read_object(groups, _GROUPS))}, version)
        self._told = (core, groups)
        return served

    async def _look(self, path: str) -> bytes:
        """Return an answer, which is fetched unless it is the one that is known."""
        known = self._known.get(path)
        request = replace(self._request(path), accept=ACCEPT, known_etag=known.etag if known else "")
        found = await self.connection.receive_changed(request) or known
        if found is None:
            raise KubeError(f"GET {path}: the answer is 304 Not Modified, but nothing is known that it could mean")
        self._known[path] = found
        return found.body

    def _request(self, path: str) -> Request:
        return Request("GET", path, timeout_seconds=_SECONDS)


def _groups_of(answer: RawObject) -> dict[str, dict[str, Resources | None]]:
    """Return the groups of an answer to ``/api`` or ``/apis``, aggregated or not."""
    if answer.get("kind") == AGGREGATED:
        return {
            str(group["metadata"].get("name") or ""): {
                each["version"]: _resources_of(each) for each in group.get("versions") or ()
            }
            for group in answer.get("items") or ()
        }
    if "versions" in answer:  # APIVersions, the answer to /api
        return {"": dict.fromkeys(answer["versions"])}
    return {group["name"]: dict.fromkeys(_versions_of(group)) for group in answer.get("groups") or ()}


def _versions_of(group: RawObject) -> list[str]:
    """Return the versions of a group of an APIGroupList, the preferred one first."""
    versions = [each["version"] for each in group.get("versions") or ()]
    preferred = (group.get("preferredVersion") or {}).get("version")
    return sorted(versions, key=lambda version: version != preferred)


def _resources_of(version: RawObject) -> Resources | None:
    if version.get("freshness") == _STALE:
        return None
    return [item for resource in version.get("resources") or () for item in _items_of(resource)]


def _items_of(resource: RawObject) -> Iterator[dict[str, Any]]:
    """Yield a resource and its subresources; one that has subresources alone is not served itself."""
    is_namespaced = resource.get("scope") == "Namespaced"
    plural = resource["resource"]
    if kind := resource.get("responseKind"):
        yield {
            **_kind_of(kind),
            "name": plural,
            "singularName": resource.get("singularResource", ""),
            "namespaced": is_namespaced,
            "verbs": resource.get("verbs") or [],
            **_present(resource, ("shortNames", "categories")),
        }
    for each in resource.get("subresources") or ():
        yield {
            **_kind_of(each.get("responseKind") or {}),
            "name": f"{plural}/{each['subresource']}",
            "singularName": "",
            "namespaced": is_namespaced,
            "verbs": each.get("verbs") or [],
        }


def _kind_of(response_kind: RawObject) -> dict[str, str]:
    named = {name: str(response_kind[name]) for name in ("group", "version") if response_kind.get(name)}
    return {"kind": str(response_kind.get("kind") or ""), **named}


def _present(values: RawObject, names: Iterable[str]) -> dict[str, Any]:
    return {name: values[name] for name in names if values.get(name)}
