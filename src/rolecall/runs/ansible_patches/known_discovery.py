"""Modules of kubernetes.core know what the API server serves, without asking and without a file. Saves @@ ms of a run.

kubernetes.core keeps discovery in a file of the directory for temporary files, one for each API server and user. Every
module decodes the whole file, and whoever finds something missing writes it again, while others may be reading it. Here
its class reads what the operator has handed to the run, and decodes the versions that it is asked for. The API server
is asked directly when nothing is found, as before; when the run has changed what is served; and for what is not known.
Clients of other API servers, and versions of kubernetes.core that are not supported, do as before.
"""

import sys
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from rolecall.runs.ansible_patches.supported_versions import is_supported_collection
from rolecall.runs.discovery_image import RunDiscovery

_MODULE = "ansible_collections.kubernetes.core.plugins.module_utils.client.discovery"
_ADDED = ("prefix", "group", "api_version", "client", "preferred")
"""What a resource is given beside what discovery says of it."""

_PREFIXES = {"api": True, "apis": False}
"""The first part of a path of discovery, and whether it is that of the core group."""


def install(known: RunDiscovery, host: str) -> None:
    """Use what is known of the API server at ``host`` from now on, in this process and those that it forks.

    Does nothing if the server has not imported kubernetes.core: a module that imports it then does as before.
    """
    module = sys.modules.get(_MODULE)
    if module is None or not is_supported_collection(str(module.__file__)):
        return
    discoverer = module.Discoverer
    patch = _KnownDiscovery(known, host, module)
    discoverer._Discoverer__init_cache = patch.around_init(discoverer._Discoverer__init_cache)  # noqa: SLF001 - the patch
    discoverer._write_cache = patch.around_write(discoverer._write_cache)  # noqa: SLF001 - the patch
    discoverer.get_resources_for_api_version = patch.around_resources(discoverer.get_resources_for_api_version)


class _KnownDiscovery:
    """The three wrappers."""

    def __init__(self, known: RunDiscovery, host: str, module: Any) -> None:
        self._known, self._host = known, host
        self._resource = module.kubernetes.dynamic.Resource
        self._resource_list = module.ResourceList
        self._group = module.kubernetes.dynamic.discovery.ResourceGroup
        self._library_version = module.__version__

    def around_init(self, original: Callable[..., None]) -> Callable[..., None]:
        def init_cache(discoverer: Any, refresh: bool = False) -> None:  # noqa: FBT001, FBT002 - as the original
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

        return init_cache

    def around_write(self, original: Callable[..., None]) -> Callable[..., None]:
        def write_cache(discoverer: Any) -> None:
            if not self._is_about(discoverer):
                original(discoverer)

        return write_cache

    def around_resources(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def get_resources(discoverer: Any, prefix: str, group: str, version: str, preferred: bool) -> Any:  # noqa: FBT001
            found = None
            if self._is_about(discoverer) and not discoverer.asks_directly and _PREFIXES.get(prefix) is (not group):
                found = self._known.image.resources(group, version)
            if found is None:
                return original(discoverer, prefix, group, version, preferred)
            place = {"prefix": prefix, "group": group, "api_version": version}
            return self._made(discoverer.client, place, found, is_preferred=preferred)

        return get_resources

    def _is_about(self, discoverer: Any) -> bool:
        """Return whether a client asks the API server of the run."""
        return bool(self._host) and discoverer.client.configuration.host == self._host

    def _groups(self, discoverer: Any) -> dict[str, Any]:
        """Return all groups and versions; their resources are looked up when somebody asks for them."""
        found: dict[str, Any] = discoverer.default_groups()
        for name, versions in self._known.image.groups.items():
            if name:
                first = next(iter(versions), None)
                found["apis"][name] = {each: self._group(each == first, resources={}) for each in versions}
        return found

    def _made(
        self, client: Any, place: dict[str, str], found: list[dict[str, Any]], *, is_preferred: bool
    ) -> dict[str, list[Any]]:
        """Return the resources of a version by kind, and those of their lists, as the original makes them."""
        resources: dict[str, list[Any]] = defaultdict(list)
        subresources: dict[str, dict[str, Any]] = defaultdict(dict)
        for item in found:
            plural, slash, name = item["name"].partition("/")
            if slash:
                subresources[plural][name] = item
        for item in found:
            if "/" in item["name"]:
                continue
            own = {name: value for name, value in item.items() if name not in _ADDED}
            made = self._resource(
                **place, client=client, preferred=is_preferred, subresources=subresources.get(item["name"]), **own
            )
            resources[made.kind].append(made)
            lists = self._resource_list(
                client,
                group=place["group"],
                api_version=place["api_version"],
                base_kind=made.kind,
                base_resource_lookup={**place, "kind": made.kind, "name": made.name},
            )
            resources[lists.kind].append(lists)
        return resources
