"""Everything that an API server serves, in two requests: aggregated discovery.

The answers are kept with their ETags, so that a look at what has not changed costs two short answers. A version that
the API server marks as stale, because the server behind it did not answer, and each version of an API server without
aggregated discovery, has no resources here: whoever needs it asks for it directly.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rolecall.kube.answers import read_object
from rolecall.kube.connection import Connection, Request, Tagged
from rolecall.kube.errors import KubeError
from rolecall.kube.references import RawObject

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
    _known: dict[str, Tagged] = field(default_factory=dict)
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
