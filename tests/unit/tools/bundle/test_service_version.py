import shutil
from pathlib import Path

import pytest
import yaml
from tools.bundle.deployed import BundleError, Document
from tools.bundle.files import bundle_files
from tools.bundle.service_version import Release

from tests.static.repository import ROOT

RELEASE = Release("1.2.3", "registry.example:5000/rolecall:1.2.3")
NAME = "bundle/manifests/rolecall.clusterserviceversion.yaml"


@pytest.fixture(name="deploy")
def copy_of_deploy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    return tmp_path / "deploy"


def made(deploy: Path) -> Document:
    found: Document = yaml.safe_load(bundle_files(deploy, RELEASE)[NAME])
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
    text = bundle_files(deploy, RELEASE)[NAME]
    assert (csv["metadata"]["name"], csv["spec"]["version"]) == ("rolecall.v1.2.3", "1.2.3")
    assert text.count(RELEASE.image) == 3
    assert "localhost/rolecall" not in text


def test_a_kind_that_nobody_described_is_refused(deploy: Path) -> None:
    path = deploy / "crds" / "foos.yaml"
    path.write_text(path.read_text().replace("foos.samplecontroller", "bars.samplecontroller"))
    with pytest.raises(BundleError, match=r"only one has .*bars.*foos"):
        made(deploy)


def test_a_deployment_that_says_itself_what_to_watch_is_refused(deploy: Path) -> None:
    path = deploy / "operator" / "deployment.yaml"
    path.write_text(path.read_text().replace("ANSIBLE_GATHERING", "WATCH_NAMESPACE"))
    with pytest.raises(BundleError, match="WATCH_NAMESPACE"):
        made(deploy)
