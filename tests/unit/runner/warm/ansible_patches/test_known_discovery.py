"""With and without the patch, kubernetes.core finds the same kinds; with it, it asks for what is not known alone."""

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
POD = {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": ["get"], "shortNames": ["po"]}
POD_LOG = {"name": "pods/log", "singularName": "", "namespaced": True, "kind": "Pod", "verbs": ["get"]}
NODE = {"name": "nodes", "singularName": "node", "namespaced": False, "kind": "Node", "verbs": ["get"]}
WEB = {"name": "deployments", "singularName": "deployment", "namespaced": True, "kind": "Deployment", "verbs": ["get"]}
SCALE = {**POD_LOG, "name": "deployments/scale", "group": "autoscaling", "version": "v1", "kind": "Scale"}
JOB = {"name": "jobs", "singularName": "job", "namespaced": True, "kind": "Job", "verbs": ["get"]}
SERVED: dict[str, dict[str, list[dict[str, Any]] | None]] = {
    "": {"v1": [POD, POD_LOG, NODE]},
    "apps": {"v1": [WEB, SCALE], "v1beta1": [WEB]},
    "batch": {"v1": [JOB]},
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
    """Stands for a client of the API server at ``host``, which serves ``served``; remembers what was asked."""

    def __init__(self, host: str, served: dict[str, dict[str, list[dict[str, Any]] | None]]) -> None:
        self.configuration = SimpleNamespace(host=host)
        self.served = served
        self.asked: list[str] = []
        self.resources: Any = None

    def request(self, _method: str, path: str, **_: object) -> Any:
        """Answer discovery."""
        self.asked.append(path)
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
    """Undo what is installed."""
    own = discovery.Discoverer
    names = ("_Discoverer__init_cache", "get_resources_for_api_version")
    before = {name: vars(own)[name] for name in names}
    yield
    for name, value in before.items():
        setattr(own, name, value)
    if "_write_cache" in vars(own):
        del own._write_cache


@pytest.fixture
def changed() -> Iterator[int]:
    descriptor = os.memfd_create("changed")
    yield descriptor
    os.close(descriptor)


def install(changed: int, host: str = HOST) -> None:
    """Install the patch for what ``SERVED`` says."""
    image = DiscoveryImage.decode(encode(SERVED, {"gitVersion": "v1.37.1"}))
    known_discovery.install(RunDiscovery(image, changed), host)


def discoverer_of(client: ApiClient, folder: Path) -> Any:
    """Return what a module makes of a client."""
    client.resources = discovery.LazyDiscoverer(client, str(folder / "cache.json"))
    return client.resources


def found_by(discoverer: Any, search: dict[str, Any]) -> Any:
    """Return what a search finds, or why it finds nothing."""
    try:
        return discoverer.get(**search).to_dict()
    except Exception as error:  # noqa: BLE001 - both ways must fail alike
        return type(error).__name__


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_every_search_finds_the_same(search: dict[str, Any], changed: int, tmp_path: Path) -> None:
    expected = found_by(discoverer_of(ApiClient(HOST, SERVED), tmp_path), search)
    install(changed)
    assert found_by(discoverer_of(ApiClient(HOST, SERVED), tmp_path), search) == expected


def test_the_version_and_the_groups_are_the_same(changed: int, tmp_path: Path) -> None:
    before = discoverer_of(ApiClient(HOST, SERVED), tmp_path)
    expected = (before.version, [type(each) for each in before.default_groups()], sorted(before.api_groups))
    install(changed)
    after = discoverer_of(ApiClient(HOST, SERVED), tmp_path)
    assert (after.version, [type(each) for each in after.default_groups()], sorted(after.api_groups)) == expected


def test_what_is_known_is_not_asked_for_and_no_file_is_written(changed: int, tmp_path: Path) -> None:
    install(changed)
    client = ApiClient(HOST, SERVED)
    assert discoverer_of(client, tmp_path).get(kind="Deployment", api_version="apps/v1").name == "deployments"
    assert client.asked == []
    assert list(tmp_path.iterdir()) == []


def test_a_kind_that_is_not_known_is_asked_for(changed: int, tmp_path: Path) -> None:
    install(changed)
    client = ApiClient(HOST, {**SERVED, "new.example.com": {"v1": [JOB]}})
    assert discoverer_of(client, tmp_path).get(kind="Job", api_version="new.example.com/v1").name == "jobs"
    assert client.asked == ["/apis", "apis/new.example.com/v1"]


def test_after_a_change_of_what_is_served_nothing_known_is_used(changed: int, tmp_path: Path) -> None:
    install(changed)
    mark_changed(changed)
    client = ApiClient(HOST, {"": {"v1": [POD]}})
    with pytest.raises(ResourceNotFoundError):
        discoverer_of(client, tmp_path).get(kind="Deployment", api_version="apps/v1")
    assert "/apis" in client.asked


def test_another_api_server_is_asked_as_before(changed: int, tmp_path: Path) -> None:
    install(changed)
    client = ApiClient("https://other.example.com", {"": {"v1": [POD]}, "batch": {"v1": [JOB]}})
    assert discoverer_of(client, tmp_path).get(kind="Job", api_version="batch/v1").name == "jobs"
    assert "apis/batch/v1" in client.asked
    assert [path.name for path in tmp_path.iterdir()] == ["cache.json"]


def test_a_version_that_the_operator_could_not_ask_for_is_asked_for(changed: int, tmp_path: Path) -> None:
    image = DiscoveryImage.decode(encode({**SERVED, "batch": {"v1": None}}, {}))
    known_discovery.install(RunDiscovery(image, changed), HOST)
    client = ApiClient(HOST, SERVED)
    assert discoverer_of(client, tmp_path).get(kind="Job", api_version="batch/v1").name == "jobs"
    assert client.asked == ["apis/batch/v1"]
