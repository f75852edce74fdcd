"""Discovery of API resources: kinds, their plural names, their scope and their verbs.

``Discovery`` looks up single kinds. Resource lists are cached for each group and version, because every request needs
one. If a cached list lacks a kind or plural, it is fetched again, so that a CRD that is installed later is found
immediately. Missing kinds are not cached. A list is also fetched again after some seconds, and after a response that
contradicts it, because a CRD may get a subresource or another scope at any time. If that fetch fails, the cached list
is used.

``AggregatedDiscovery`` fetches everything that an API server serves, in two requests. Responses are cached with their
ETags, so that unchanged ones are short. A version that the API server marks as stale, because the server behind it did
not respond, and each version of an API server without aggregated discovery has no resources here: a client that needs
them requests them directly.

Paths are made only here, and each of their segments is quoted: a name never changes which object, or which kind, a path
leads to. Names that no quoting protects, because URLs are normalized, are rejected.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from rolecall.kube.connection import Connection, ETagResponse, Request, read_object
from rolecall.kube.errors import ApiError, InvalidNameError, KubeError, NotServedError, UnknownKindError
from rolecall.kube.references import GVK, ObjectKey, RawObject
from rolecall.system.clock import SYSTEM_CLOCK

MAX_AGE_SECONDS: Final = 30.0
"""How long a resource list is used before it is fetched again."""

_NOT_SERVED: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED})
_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
ACCEPT: Final = f"{_AGGREGATED.format('v2')},{_AGGREGATED.format('v2beta1')},application/json"
AGGREGATED: Final = "APIGroupDiscoveryList"
_CORE, _GROUPS, _VERSION = "/api", "/apis", "/version"
_SECONDS: Final = 5.0


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
        """Whether objects of this kind are not stored (such as reviews), so that they cannot be read or watched."""
        return not {"get", "list", "watch"} <= self.verbs

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of the collection, of an object, or of a subresource. Raise InvalidNameError."""
        scope = f"/namespaces/{path_segment(namespace)}" if self.namespaced and namespace else ""
        collection = f"{group_version_path(self.gvk.group, self.gvk.version)}{scope}"
        return "/".join((collection, *(path_segment(part) for part in (self.plural, name, subresource) if part)))

    def path_of(self, key: ObjectKey, subresource: str = "") -> str:
        """Return the URL path of an object. Raise InvalidNameError, also without a name: that path is a collection."""
        if not key.name:
            raise InvalidNameError(f"expected the name of an object of {self.gvk}, found none")
        return self.path(key.namespace, key.name, subresource)


def group_version_path(group: str, version: str) -> str:
    """Return the URL path of a group and version. Raise InvalidNameError."""
    parts = ("apis", group, version) if group else ("api", version)
    return "/" + "/".join(map(path_segment, parts))


def path_segment(text: str) -> str:
    """Return a segment of a URL path. Raise InvalidNameError for a text that no segment can have.

    No object has such a name: ``IsValidPathSegmentName`` in k8s.io/apimachinery rejects it for every kind. Quoting a
    ``/`` wouldn't help, because the API server splits paths after it has decoded them.
    """
    if text in ("", ".", "..") or "/" in text or "%" in text:
        raise InvalidNameError(f"{text!r} can't be a segment of a URL path")
    try:
        return quote(text, safe="")
    except UnicodeEncodeError as error:
        raise InvalidNameError(f"{text!r} can't be a segment of a URL path: {error.reason}") from error


@dataclass(slots=True)
class Discovery:
    """Fetch and cache the resource list of each group and version.

    ``fetch`` takes a URL path and returns the decoded response. It raises NotServedError for an unknown version.
    """

    fetch: Callable[[str], Awaitable[dict[str, Any]]]
    now: Callable[[], float] = SYSTEM_CLOCK.monotonic
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
        self._expiries[(group, version)] = self.now() + MAX_AGE_SECONDS  # concurrent calls use the cached list
        try:
            response = await self.fetch(group_version_path(group, version))
        except NotServedError:
            self._cache.pop((group, version), None)
            return None
        except KubeError:
            if found is None:
                raise
            return found
        self._cache[(group, version)] = resources = read_resource_list(group, version, response)
        return next(filter(wanted, resources), None)

    def expire(self, path: str) -> None:
        """Fetch the resource list of a URL path again before its next use, because a response has contradicted it."""
        for group, version in self._cache:
            if path.startswith(f"{group_version_path(group, version)}/"):
                self._expiries.pop((group, version), None)


def contradicts_discovery(error: ApiError) -> bool:
    """Return whether a path or method is not served, according to an error; that of a missing object has its name."""
    return error.status in _NOT_SERVED and not error.details.get("name")


def read_resource_list(group: str, version: str, response: dict[str, Any]) -> tuple[ApiResource, ...]:
    """Return the resources of an APIResourceList, with the names of their subresources."""
    items = response.get("resources") or ()
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


Resources = list[dict[str, Any]]
"""The resources of a version and their subresources, as in an APIResourceList."""


@dataclass(frozen=True, slots=True)
class Served:
    """What an API server serves.

    ``groups`` has the versions of each group, the preferred one first, and the resources of each version, None if they
    have to be requested. The core group has the name "". ``version`` is the response of ``/version``.
    """

    groups: Mapping[str, Mapping[str, Resources | None]]
    version: RawObject


@dataclass(slots=True)
class AggregatedDiscovery:
    """Everything that one API server serves."""

    connection: Connection
    _cache: dict[str, ETagResponse] = field(default_factory=dict)
    _returned: tuple[bytes, bytes] | None = None

    async def changed(self) -> Served | None:
        """Return everything that is served, None if it has not changed since the last call. Raise KubeError."""
        core, groups = await asyncio.gather(self._fetch(_CORE), self._fetch(_GROUPS))
        if (core, groups) == self._returned:
            return None
        request = Request("GET", _VERSION, timeout_seconds=_SECONDS)
        version = read_object(await self.connection.receive(request), _VERSION)
        responses = read_object(core, _CORE), read_object(groups, _GROUPS)
        try:
            found = {name: versions for each in responses for name, versions in _groups_of(each).items()}
        except (AttributeError, LookupError, TypeError) as error:
            raise KubeError(f"GET {_GROUPS}: the response doesn't describe groups: {error!r}") from error
        self._returned = (core, groups)
        return Served(found, version)

    async def _fetch(self, path: str) -> bytes:
        """Return the body of a response, from the cache if it has not changed."""
        cached = self._cache.get(path)
        etag = "" if cached is None else cached.etag
        request = Request("GET", path, timeout_seconds=_SECONDS, accept=ACCEPT, known_etag=etag)
        found = await self.connection.receive_changed(request) or cached
        if found is None:
            raise KubeError(f"GET {path}: the response is 304 Not Modified, but there is no earlier response")
        self._cache[path] = found
        return found.body


def _groups_of(response: RawObject) -> dict[str, dict[str, Resources | None]]:
    """Return the groups of a response to ``/api`` or ``/apis``, aggregated or not."""
    if response.get("kind") == AGGREGATED:
        return {
            str(group["metadata"].get("name") or ""): {
                each["version"]: None if each.get("freshness") == "Stale" else resources_of(each)
                for each in group.get("versions") or ()
            }
            for group in response.get("items") or ()
        }
    if "versions" in response:  # APIVersions, the response to /api
        return {"": dict.fromkeys(response["versions"])}
    groups: dict[str, dict[str, Resources | None]] = {}
    for group in response.get("groups") or ():  # APIGroupList
        versions = [each["version"] for each in group.get("versions") or ()]
        preferred = (group.get("preferredVersion") or {}).get("version")
        groups[group["name"]] = dict.fromkeys(sorted(versions, key=lambda version: version != preferred))
    return groups


def resources_of(version: RawObject) -> Resources:
    """Return the resources of a version in aggregated discovery."""
    items: Resources = []
    for resource in version.get("resources") or ():
        if resource.get("responseKind"):  # otherwise only its subresources are served
            optional = {name: resource[name] for name in ("shortNames", "categories") if resource.get(name)}
            names = {"name": resource["resource"], "singularName": resource.get("singularResource", "")}
            items.append(_item(resource, resource, names | optional))
        for each in resource.get("subresources") or ():
            names = {"name": f"{resource['resource']}/{each['subresource']}", "singularName": ""}
            items.append(_item(resource, each, names))
    return items


def _item(resource: RawObject, served: RawObject, names: dict[str, Any]) -> dict[str, Any]:
    """Return the APIResource of a resource, or of a subresource: its names, kind, scope and verbs."""
    kind = served.get("responseKind") or {}
    group_version = {name: str(kind[name]) for name in ("group", "version") if kind.get(name)}
    is_namespaced = resource.get("scope") == "Namespaced"
    verbs = served.get("verbs") or []
    return {"kind": str(kind.get("kind") or ""), **group_version, **names, "namespaced": is_namespaced, "verbs": verbs}
