from pathlib import Path

import pytest
from tools.bundle.deployed import BundleError, read_deployed


def directory(path: Path, kustomization: str, **files: str) -> Path:
    path.mkdir(exist_ok=True)
    (path / "kustomization.yaml").write_text(kustomization)
    for name, text in files.items():
        (path / f"{name}.yaml").write_text(text)
    return path


def test_resources_are_read_through_directories(tmp_path: Path) -> None:
    directory(tmp_path / "kinds", "resources: [one.yaml]", one="{kind: Namespace, metadata: {name: a}}")
    top = directory(tmp_path, "resources: [kinds, two.yaml]", two="{kind: Deployment, metadata: {name: b}}")
    deployed = read_deployed(top)
    assert [document["metadata"]["name"] for _, document in deployed.objects] == ["a", "b"]
    assert deployed.only("Deployment")["metadata"]["name"] == "b"


def test_a_kustomization_that_changes_its_resources_is_refused(tmp_path: Path) -> None:
    top = directory(tmp_path, "{resources: [], patches: [], images: []}")
    with pytest.raises(BundleError, match=r"kustomization.yaml: \['images', 'patches'\] would be lost"):
        read_deployed(top)


def test_a_kind_that_a_bundle_has_no_place_for_is_refused(tmp_path: Path) -> None:
    top = directory(tmp_path, "resources: [one.yaml]", one="{kind: Secret, metadata: {name: a}}")
    with pytest.raises(BundleError, match=r"one.yaml: .* 'Secret'"):
        read_deployed(top)


def test_two_deployments_are_refused(tmp_path: Path) -> None:
    text = "{kind: Deployment, metadata: {name: a}}\n---\n{kind: Deployment, metadata: {name: b}}"
    top = directory(tmp_path, "resources: [one.yaml]", one=text)
    with pytest.raises(BundleError, match="2 objects of kind 'Deployment'"):
        read_deployed(top).only("Deployment")


def test_an_account_has_the_rules_of_all_its_bindings(tmp_path: Path) -> None:
    documents = [
        f"{{kind: Role, metadata: {{name: {name}}}, rules: [{{verbs: [{verb}]}}]}}\n---\n"
        f"{{kind: RoleBinding, metadata: {{name: {name}}}, roleRef: {{name: {name}}}, subjects: [{{name: runner}}]}}"
        for name, verb in (("reader", "get"), ("writer", "update"))
    ]
    top = directory(tmp_path, "resources: [one.yaml]", one="\n---\n".join(documents))
    assert read_deployed(top).rules("RoleBinding") == {"runner": [{"verbs": ["get"]}, {"verbs": ["update"]}]}
