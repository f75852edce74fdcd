"""Modules of kubernetes.core know the served kinds without requests and without a file.

With 300 more kinds in the groups that a role uses, this saves 6 ms of a run (3%); with few kinds, nothing that can be
measured. It stays because of the file: kubernetes.core keeps discovery in one of the directory for temporary files, for
each API server and user. A kind that was removed remains in it. Every module decodes the whole file, and a module that
misses something in it writes it again, while others may be reading it.

Here its class reads the discovery that the operator has given to the run, and decodes only the versions that a module
needs. It sends requests to the API server when nothing is found, as before; when the run has changed the served kinds;
and for kinds that the operator doesn't know. Clients of other API servers aren't changed.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rolecall.runner.runs.discovery_image import RunDiscovery
from rolecall.system.wrapping import wrap

_MODULE = "ansible_collections.kubernetes.core.plugins.module_utils.client.discovery"
_ADDED = ("prefix", "group", "api_version", "client", "preferred")
"""Arguments of a resource besides its fields in discovery."""

_LIST = "List"
"""The suffix that kubernetes.core appends to a kind for lists of it."""

_PREFIXES = {"api": True, "apis": False}
"""The first part of a discovery path, and whether it is that of the core group."""


def install(known: RunDiscovery, host: str) -> None:
    """Use the known discovery of the API server at ``host``, in this process and those that it forks.

    Does nothing if the server hasn't imported kubernetes.core: a module that imports it then works as before.
    """
    module = sys.modules.get(_MODULE)
    if module is None:
        return
    discoverer = module.Discoverer
    patch = _KnownDiscovery(known, host, module)
    wrap(discoverer, "_Discoverer__init_cache", patch.init_cache)
    wrap(discoverer, "_write_cache", patch.write_cache)
    wrap(discoverer, "get_resources_for_api_version", patch.get_resources)


class _KnownDiscovery:
    """The three wrappers; each receives the original first."""

    def __init__(self, known: RunDiscovery, host: str, module: Any) -> None:
        self._known, self._host = known, host
        self._resource = module.kubernetes.dynamic.Resource
        self._resource_list = module.ResourceList
        self._group = module.kubernetes.dynamic.discovery.ResourceGroup
        self._library_version = module.__version__

    def init_cache(self, original: Callable[..., None], discoverer: Any, refresh: bool = False) -> None:  # noqa: FBT001, FBT002 - as the original
        if not self._is_about(discoverer):
            original(discoverer, refresh)
            return
        discoverer.asks_directly = refresh or not self._known.is_current
        discoverer._cache = {"library_version": self._library_version}  # noqa: SLF001 - as the original
        discoverer._cache["version"] = {"kubernetes": dict(self._known.image.version)}  # noqa: SLF001 - as above
        if not discoverer.asks_directly:
            discoverer._cache["resources"] = self._groups(discoverer)  # noqa: SLF001 - as above
        discoverer._load_server_info()  # noqa: SLF001 - as above
        discoverer.discover()

    def write_cache(self, original: Callable[..., None], discoverer: Any) -> None:
        if not self._is_about(discoverer):
            original(discoverer)

    def get_resources(  # noqa: PLR0913, PLR0917 - the arguments of the original
        self, original: Callable[..., Any], discoverer: Any, prefix: str, group: str, version: str, preferred: Any
    ) -> Any:
        found = None
        if self._is_about(discoverer) and not discoverer.asks_directly and _PREFIXES.get(prefix) is (not group):
            found = self._known.image.resources(group, version)
        if found is None:
            return original(discoverer, prefix, group, version, preferred)
        place = {"prefix": prefix, "group": group, "api_version": version}
        return self._made(discoverer.client, place, found, is_preferred=preferred)

    def _is_about(self, discoverer: Any) -> bool:
        """Return whether a client is one of the API server of the run."""
        return bool(self._host) and discoverer.client.configuration.host == self._host

    def _groups(self, discoverer: Any) -> dict[str, Any]:
        """Return all groups and versions; their resources are looked up on first use."""
        known = self._known.image.groups

        def versions_of(name: str) -> dict[str, Any]:
            first = next(iter(known[name]), None)
            return {each: self._group(each == first, resources={}) for each in known[name]}

        found: dict[str, Any] = discoverer.default_groups()
        found["apis"] = _Lazy(filter(None, known), versions_of, found["apis"])
        return found

    def _made(
        self, client: Any, place: dict[str, str], found: list[dict[str, Any]], *, is_preferred: bool
    ) -> dict[str, list[Any]]:
        """Return the resources of a version by kind, and those of their lists, as the original makes them."""
        by_kind: dict[str, list[dict[str, Any]]] = defaultdict(list)
        subresources: dict[str, dict[str, Any]] = defaultdict(dict)
        for item in found:
            plural, slash, name = item["name"].partition("/")
            if slash:
                subresources[plural][name] = item
            else:
                by_kind[item["kind"]].append(item)

        def made(item: dict[str, Any]) -> Any:
            own = {name: value for name, value in item.items() if name not in _ADDED}
            return self._resource(
                **place, client=client, preferred=is_preferred, subresources=subresources.get(item["name"]), **own
            )

        def listed(item: dict[str, Any]) -> Any:
            group, version = place["group"], place["api_version"]
            lookup = {**place, "kind": item["kind"], "name": item["name"]}
            return self._resource_list(
                client, group=group, api_version=version, base_kind=item["kind"], base_resource_lookup=lookup
            )

        def resources_of(kind: str) -> list[Any]:
            lists = by_kind.get(kind.removesuffix(_LIST), []) if kind.endswith(_LIST) else []
            return [*map(made, by_kind.get(kind, ())), *map(listed, lists)]

        return _Lazy((name for kind in by_kind for name in (kind, f"{kind}{_LIST}")), resources_of)


class _Lazy(dict[str, Any]):
    """A mapping whose values are made on first use, next to values that are known."""

    def __init__(
        self, names: Iterable[str], make: Callable[[str], Any], known: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__({**dict.fromkeys(names), **(known or {})})
        self._make = make

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if value is None:
            value = self[name] = self._make(name)
        return value

    def get(self, name: str, default: Any = None) -> Any:
        """Return a value as ``[]`` does."""
        return self[name] if name in self else default  # noqa: SIM401 - that would be this method

    def items(self) -> Any:
        """Return all names and values, which are made now."""
        return [(name, self[name]) for name in self]

    def values(self) -> Any:
        """Return all values, which are made now."""
        return [self[name] for name in self]
