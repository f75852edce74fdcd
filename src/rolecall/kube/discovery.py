"""Discovery of API resources: kinds, their plural names, their scope and their verbs.

Resource lists are cached for each group and version, because every request needs one. If a cached list lacks a kind or
plural, it is fetched again, so that a CRD that is installed later is found at once. Missing kinds are not cached. A
list is fetched again after some seconds too, and after an answer that contradicts it, because a CRD may get a
subresource or another scope at any time. If that fetch fails, the list that is known is used.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from rolecall.kube.errors import ApiError, KubeError, NotFoundError, UnknownKindError
from rolecall.kube.references import GVK, ObjectKey

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
