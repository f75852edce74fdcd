"""With and without the patch, kubernetes.core finds the same kinds; with it, it requests only unknown ones."""

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.kubernetes.core.plugins.module_utils.client import discovery
from kubernetes.dynamic.exceptions import ResourceNotFoundError
from kubernetes.dynamic.resource import ResourceInstance

from rolecall.runner.runs.discovery_image import DiscoveryImage, RunDiscovery, encode, mark_changed
from rolecall.runner.warm.ansible_patches import known_discovery

HOST = "http://127.0.0.1:1234"
UNKNOWN = "unknown.example.com"
POD = {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": ["get"], "shortNames": ["po"]}
POD_LOG = {"name": "pods/log", "singularName": "", "namespaced": True, "kind": "Pod", "verbs": ["get"]}
NODE = {"name": "nodes", "singularName": "node", "namespaced": False, "kind": "Node", "verbs": ["get"]}
WEB = {"name": "deployments", "singularName": "deployment", "namespaced": True, "kind": "Deployment", "verbs": ["get"]}
SCALE = {**POD_LOG, "name": "deployments/scale", "group": "autoscaling", "version": "v1", "kind": "Scale"}
JOB = {"name": "jobs", "singularName": "job", "namespaced": True, "kind": "Job", "verbs": ["get"]}
CRON = {"name": "crons", "singularName": "cron", "namespaced": True, "kind": "Cron", "verbs": ["get"]}
Served = dict[str, dict[str, list[dict[str, Any]] | None]]
SERVED: Served = {
    "": {"v1": [POD, POD_LOG, NODE]},
    "apps": {"v1": [WEB, SCALE], "v1beta1": [WEB]},
    "batch": {"v1": [JOB]},
    UNKNOWN: {"v1": [CRON]},
}
SEARCHES = [
    {"kind": "Pod", "api_version": "v1", "prefix": "api"},
    {"kind": "Pod", "api_version": "v1"},
    {"kind": "PodList", "api_version": "v1"},
    {"kind": "Deployment", "api_version": "apps/v1"},
    {"kind": "Deployment"},
    {"name": "nodes", "api_version": "v1"},
    {"short_names": ["po"], "api_version": "v1"},
    {"kind": "Nothing", "api_version": "apps/v1"},
    {"kind": "Job", "api_version": "batch/v2"},
    {"singular_name": "job"},
]


class ApiClient:
    """Stands for a client of the API server at ``host``, which serves ``served``; records the requested paths."""

    def __init__(self, host: str, served: Served) -> None:
        self.configuration = SimpleNamespace(host=host)
        self.served = served
        self.requested: list[str] = []
        self.resources: Any = None

    def request(self, _method: str, path: str, **_: object) -> Any:
        """Respond to a request for discovery."""
        self.requested.append(path)
        match path.strip("/").split("/"):
            case ["version"]:
                return {"gitVersion": "v1.37.1"}
            case ["apis"]:
                return ResourceInstance(None, {"kind": "APIGroupList", "groups": self._groups()})
            case ["api", version]:
                group = ""
            case _:
                group, version = path.strip("/").split("/")[1:]
        return ResourceInstance(None, {"kind": "APIResourceList", "resources": self.served[group][version]})

    def _groups(self) -> list[dict[str, Any]]:
        named = {name: [{"version": each} for each in versions] for name, versions in self.served.items() if name}
        return [{"name": name, "versions": each, "preferredVersion": each[0]} for name, each in named.items()]


@pytest.fixture(autouse=True)
def unpatched() -> Iterator[None]:
    """Restore the replaced functions."""
    own = discovery.Discoverer
    before = {name: vars(own)[name] for name in ("_Discoverer__init_cache", "get_resources_for_api_version")}
    yield
    for name, value in before.items():
        setattr(own, name, value)
    if "_write_cache" in vars(own):
        del own._write_cache


@pytest.fixture
def known() -> Iterator[RunDiscovery]:
    """Yield the discovery of ``SERVED``; the versions of ``unknown.example.com`` could not be requested."""
    descriptor = os.memfd_create("changed")
    image = DiscoveryImage.decode(encode({**SERVED, UNKNOWN: {"v1": None}}, {"gitVersion": "v1.37.1"}))
    yield RunDiscovery(image, descriptor)
    os.close(descriptor)


def discoverer_of(client: ApiClient, directory: Path) -> Any:
    """Return the discoverer that a module makes of a client."""
    client.resources = discovery.LazyDiscoverer(client, str(directory / "cache.json"))
    return client.resources


def result_of(discoverer: Any, search: dict[str, Any]) -> Any:
    """Return the result of a search, or the type of its error."""
    try:
        return discoverer.get(**search).to_dict()
    except Exception as error:  # noqa: BLE001 - both must fail alike
        return type(error).__name__


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_search_has_the_same_result(search: dict[str, Any], known: RunDiscovery, tmp_path: Path) -> None:
    expected = result_of(discoverer_of(ApiClient(HOST, SERVED), tmp_path), search)
    known_discovery.install(known, HOST)
    assert result_of(discoverer_of(ApiClient(HOST, SERVED), tmp_path), search) == expected


def test_version_and_groups_are_the_same(known: RunDiscovery, tmp_path: Path) -> None:
    before = discoverer_of(ApiClient(HOST, SERVED), tmp_path)
    expected = (before.version, [type(each) for each in before.default_groups()], sorted(before.api_groups))
    known_discovery.install(known, HOST)
    after = discoverer_of(ApiClient(HOST, SERVED), tmp_path)
    assert (after.version, [type(each) for each in after.default_groups()], sorted(after.api_groups)) == expected


@pytest.mark.parametrize(
    ("kind", "group", "requested"),
    [
        ("Job", "batch", []),
        ("Cron", UNKNOWN, [f"apis/{UNKNOWN}/v1"]),
        ("Cron", "new.example.com", ["/apis", "apis/new.example.com/v1"]),
    ],
)
def test_only_unknown_versions_are_requested(
    kind: str, group: str, requested: list[str], known: RunDiscovery, tmp_path: Path
) -> None:
    known_discovery.install(known, HOST)
    client = ApiClient(HOST, {**SERVED, "new.example.com": {"v1": [CRON]}})
    assert discoverer_of(client, tmp_path).get(kind=kind, api_version=f"{group}/v1").kind == kind
    assert client.requested == requested
    assert list(tmp_path.iterdir()) == []


def test_known_discovery_is_not_used_after_a_change(known: RunDiscovery, tmp_path: Path) -> None:
    known_discovery.install(known, HOST)
    mark_changed(known.descriptor)
    client = ApiClient(HOST, {"": {"v1": [POD]}})
    with pytest.raises(ResourceNotFoundError):
        discoverer_of(client, tmp_path).get(kind="Deployment", api_version="apps/v1")
    assert "/apis" in client.requested


def test_client_of_another_api_server_is_not_changed(known: RunDiscovery, tmp_path: Path) -> None:
    known_discovery.install(known, HOST)
    client = ApiClient("https://other.example.com", {"": {"v1": [POD]}, "batch": {"v1": [JOB]}})
    assert discoverer_of(client, tmp_path).get(kind="Job", api_version="batch/v1").name == "jobs"
    assert "apis/batch/v1" in client.requested
    assert [path.name for path in tmp_path.iterdir()] == ["cache.json"]
