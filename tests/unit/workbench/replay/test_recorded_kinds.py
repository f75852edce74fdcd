"""Kinds and their definitions come from the project, else from the recorded discovery."""

import json
from pathlib import Path

from rolecall.kube.references import GVK, RawObject
from rolecall.workbench.replay.recorded_kinds import RecordedKinds, project_definitions
from tests.unit.runner.proxy.conftest import DEMO
from tests.unit.workbench.replay.runs import ask, record_of

GROUPS = {
    "kind": "APIGroupList",
    "apiVersion": "v1",
    "groups": [
        {"name": name, "versions": [{"groupVersion": f"{name}/v1", "version": "v1"}]}
        for name in ("apps", "demo.example.com", "other.k8s.io")
    ],
}
OTHERS = {
    "kind": "APIResourceList",
    "groupVersion": "other.k8s.io/v1",
    "resources": [
        {"name": "mice", "kind": "Mouse", "namespaced": False, "verbs": ["get", "list", "watch"]},
        {"name": "mice/status", "kind": "Mouse", "namespaced": False, "verbs": ["get"]},
        {"name": "mice/scale", "kind": "Scale", "namespaced": False, "verbs": ["get"]},
    ],
}


def definition(version: str = "v1") -> RawObject:
    versions = [{"name": version, "served": True, "storage": True, "subresources": {"status": {}}}]
    spec = {"group": DEMO.group, "names": {"kind": DEMO.kind, "plural": "demos"}, "scope": "Namespaced"}
    return {"kind": "CustomResourceDefinition", "spec": spec | {"versions": versions}}


def kinds(tmp_path: Path, *definitions: RawObject) -> RecordedKinds:
    record = record_of(tmp_path, ask("GET", "/apis", None, GROUPS), ask("GET", "/apis/other.k8s.io/v1", None, OTHERS))
    return RecordedKinds(record, definitions)


def test_groups_are_those_of_the_recorded_cluster(tmp_path: Path) -> None:
    assert [each["name"] for each in kinds(tmp_path).groups()["groups"]] == ["apps", "demo.example.com", "other.k8s.io"]


def test_definition_of_the_project_is_used_if_it_has_the_version(tmp_path: Path) -> None:
    assert kinds(tmp_path, definition()).definitions_of(DEMO.group) == [definition()]
    (made,) = kinds(tmp_path, definition("v2")).definitions_of(DEMO.group)
    assert [each["name"] for each in made["spec"]["versions"]] == [DEMO.version]


def test_kinds_of_the_project_are_known_without_requests(tmp_path: Path) -> None:
    other = definition()
    other["spec"] |= {"group": "new.example.com", "names": {"kind": "New", "plural": "news"}}
    found = kinds(tmp_path, other)
    assert "new.example.com" in [each["name"] for each in found.groups()["groups"]]
    assert found.definitions_of("new.example.com") == [other]


def test_created_definition_accepts_every_field(tmp_path: Path) -> None:
    (made,) = kinds(tmp_path).definitions_of("other.k8s.io")
    spec = made["spec"]
    assert made["metadata"]["name"] == "mice.other.k8s.io"
    assert "api-approved.kubernetes.io" in made["metadata"]["annotations"]
    assert (spec["scope"], spec["names"]["kind"], spec["names"]["plural"]) == ("Cluster", "Mouse", "mice")
    (version,) = spec["versions"]
    assert version["schema"]["openAPIV3Schema"]["x-kubernetes-preserve-unknown-fields"] is True
    assert version["subresources"].keys() == {"status", "scale"}


def test_built_in_groups_have_no_definition(tmp_path: Path) -> None:
    assert [kinds(tmp_path).definitions_of(group) for group in ("", "apps", "rbac.authorization.k8s.io")] == [[]] * 3


def test_head_has_kinds_without_files_of_discovery(tmp_path: Path) -> None:
    record = record_of(tmp_path, ask("GET", "/apis/other.k8s.io/v1", None, OTHERS))
    for path in (tmp_path / "discovery").iterdir():
        path.unlink()
    found = RecordedKinds(record)
    assert found.by_kind(DEMO) is not None
    assert found.definitions_of("other.k8s.io") == []


def test_aggregated_discovery_has_kinds(tmp_path: Path) -> None:
    resources = [
        {
            "resource": "mice",
            "responseKind": {"kind": "Mouse"},
            "scope": "Namespaced",
            "verbs": ["get"],
            "subresources": [{"subresource": "status"}],
        },
        {"resource": "cats", "scope": "Namespaced", "subresources": [{"subresource": "status"}]},
    ]
    versions = [{"version": "v1", "resources": resources}]
    answer = {"kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": "other.io"}, "versions": versions}]}
    found = RecordedKinds(record_of(tmp_path, ask("GET", "/apis", None, answer))).by_kind(
        GVK("other.io", "v1", "Mouse")
    )
    assert found is not None
    assert (found.plural, found.namespaced, found.subresources) == ("mice", True, frozenset({"status"}))


def test_definitions_of_a_project_are_found(tmp_path: Path) -> None:
    (tmp_path / "deploy/crds").mkdir(parents=True)
    (tmp_path / "deploy/crds/one.yaml").write_text(json.dumps(definition()))
    assert project_definitions(tmp_path) == (definition(),)
    assert project_definitions(tmp_path / "nothing") == ()
