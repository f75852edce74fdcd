import json
import shutil
from pathlib import Path

import pytest
import yaml

from rolecall.workbench.bundle.files import bundle_files, write_bundle
from rolecall.workbench.bundle.manifests import BundleError, Document
from rolecall.workbench.bundle.service_version import Release
from tests.static.bundle import kustomized
from tests.static.repository import ROOT

RELEASE = Release("1.2.3", "registry.example:5000/rolecall:1.2.3")
NAME = "bundle/manifests/rolecall.clusterserviceversion.yaml"


@pytest.fixture(name="deploy")
def copy_of_deploy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    return tmp_path / "deploy"


def files(deploy: Path) -> dict[str, str]:
    return bundle_files(deploy, kustomized(deploy), RELEASE)


def made(deploy: Path) -> Document:
    found: Document = yaml.safe_load(files(deploy)[NAME])
    return found


@pytest.mark.parametrize("version", ["0.1.0", "10.20.30", "1.0.0-rc.1", "1.0.0-alpha"])
def test_a_semantic_version_is_taken(version: str) -> None:
    assert Release(version, "rolecall:dev").version == version


@pytest.mark.parametrize("version", ["", "1.0", "v1.0.0", "01.0.0", "1.0.0-RC1", "1.0.0+build", "1.0.0-", "1.0.0\n"])
def test_another_version_is_refused(version: str) -> None:
    with pytest.raises(BundleError, match="VERSION"):
        Release(version, "rolecall:dev")


@pytest.mark.parametrize("image", ["", "two words", "Upper/rolecall:1", "rolecall:", "a@sha256:12"])
def test_invalid_image_is_rejected(image: str) -> None:
    with pytest.raises(BundleError, match="IMG"):
        Release("1.0.0", image)


def test_version_and_image_are_in_every_place(deploy: Path) -> None:
    csv = made(deploy)
    text = files(deploy)[NAME]
    assert (csv["metadata"]["name"], csv["spec"]["version"]) == ("rolecall.v1.2.3", "1.2.3")
    assert text.count(RELEASE.image) == 3
    assert "localhost/rolecall" not in text


def test_described_kind_without_crd_is_rejected(deploy: Path) -> None:
    path = deploy / "crds" / "foos.yaml"
    path.write_text(path.read_text().replace("foos.samplecontroller", "bars.samplecontroller"))
    with pytest.raises(BundleError, match=r"describes \['foos.samplecontroller.k8s.io'\], but the manifests have only"):
        made(deploy)


def test_kind_without_texts_has_a_name_for_readers(deploy: Path) -> None:
    base = yaml.safe_load((deploy / "olm/base.yaml").read_text())
    del base["spec"]["customresourcedefinitions"]
    (deploy / "olm/base.yaml").write_text(yaml.safe_dump(base))
    owned = made(deploy)["spec"]["customresourcedefinitions"]["owned"]
    assert {each["displayName"] for each in owned} == {"Pod scaler", "Hikawa", "Zundoko", "Kiyoshi", "Foo"}


def test_each_version_of_a_kind_is_owned(deploy: Path) -> None:
    path = deploy / "crds/foos.yaml"
    crd = yaml.safe_load(path.read_text())
    crd["spec"]["versions"].append({**crd["spec"]["versions"][0], "name": "v2", "storage": False})
    path.write_text(yaml.safe_dump(crd))
    owned = made(deploy)["spec"]["customresourcedefinitions"]["owned"]
    assert [each["version"] for each in owned if each["kind"] == "Foo"] == [crd["spec"]["versions"][0]["name"], "v2"]


def test_description_is_the_first_paragraph_of_the_readme_unless_the_base_has_one(deploy: Path) -> None:
    (deploy.parent / "README.md").write_text("# web\n\n![A picture](x.png)\n\nRuns websites\nand shops.\n\n## More\n")
    base = yaml.safe_load((deploy / "olm/base.yaml").read_text())
    assert made(deploy)["spec"]["description"] == base["spec"]["description"]
    del base["spec"]["description"]
    (deploy / "olm/base.yaml").write_text(yaml.safe_dump(base))
    assert made(deploy)["spec"]["description"] == "Runs websites and shops."


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (None, "base.yaml: file not found"),
        ("kind: ClusterServiceVersion", "expected one ClusterServiceVersion"),
        ("a: [", "base.yaml: while parsing"),
    ],
)
def test_invalid_base_is_rejected(text: str | None, error: str, deploy: Path) -> None:
    path = deploy / "olm/base.yaml"
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(BundleError, match=error):
        made(deploy)


def test_second_bundle_replaces_generated_files_and_keeps_others(deploy: Path) -> None:
    own = deploy / "olm/bundle/metadata/dependencies.yaml"
    own.write_text("---\ndependencies: []\n")
    written = files(deploy)
    fewer = {name: text for name, text in written.items() if "service.yaml" not in name}
    write_bundle(deploy / "olm", fewer)
    found = {path.relative_to(deploy / "olm").as_posix() for path in (deploy / "olm/bundle").rglob("*.yaml")}
    assert found == {name for name in fewer if name.startswith("bundle/")} | {"bundle/metadata/dependencies.yaml"}


def test_operator_without_a_namespace_object_suggests_only_the_name(deploy: Path) -> None:
    path = deploy / "rbac/kustomization.yaml"
    path.write_text(path.read_text().replace("  - namespace.yaml\n", ""))
    annotations = made(deploy)["metadata"]["annotations"]
    found = {name: text for name, text in annotations.items() if "suggested" in name}
    assert found == {"operatorframework.io/suggested-namespace": "rolecall-system"}


def test_deployment_with_its_own_namespaces_is_rejected(deploy: Path) -> None:
    path = deploy / "operator" / "deployment.yaml"
    path.write_text(path.read_text().replace("ANSIBLE_GATHERING", "WATCH_NAMESPACE"))
    with pytest.raises(BundleError, match="WATCH_NAMESPACE"):
        made(deploy)


def test_operator_with_a_cluster_scoped_kind_is_installed_only_for_all_namespaces(deploy: Path) -> None:
    base = yaml.safe_load((deploy / "olm/base.yaml").read_text())
    base["spec"].pop("installModes", None)
    (deploy / "olm/base.yaml").write_text(yaml.safe_dump(base))
    before = made(deploy)["spec"]["installModes"]
    assert all(each["supported"] for each in before)
    path = deploy / "crds" / "foos.yaml"
    path.write_text(path.read_text().replace("scope: Namespaced", "scope: Cluster"))
    after = made(deploy)["spec"]["installModes"]
    assert [each["type"] for each in after if each["supported"]] == ["AllNamespaces"]
    assert [each["type"] for each in after] == [each["type"] for each in before]


def test_example_of_a_cluster_scoped_kind_is_its_sample(deploy: Path) -> None:
    path = deploy / "samples" / "foo.yaml"
    documents = [each for each in yaml.safe_load_all(path.read_text()) if each["kind"] == "Foo"]
    del documents[0]["metadata"]["namespace"]
    path.write_text(yaml.safe_dump_all(documents))
    (found,) = [
        each for each in json.loads(made(deploy)["metadata"]["annotations"]["alm-examples"]) if each["kind"] == "Foo"
    ]
    assert found["metadata"] == {"name": documents[0]["metadata"]["name"]}
