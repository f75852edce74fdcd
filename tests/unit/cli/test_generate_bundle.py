import io
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rolecall.cli.main import main
from rolecall.workbench.project.scaffold import NewKind, create_api, init_project
from tests.static.bundle import kustomized

IMAGE = "registry.example/web:1.2.3"


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    init_project(tmp_path, "web", "example.com").write()
    create_api(tmp_path, NewKind("shop", "v1", "Website")).write()
    monkeypatch.chdir(tmp_path)


def generate(manifests: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(manifests))
    return main(["generate", "bundle", "--release", "1.2.3", "--image", IMAGE, *arguments])


def test_new_project_has_a_bundle_that_its_linter_accepts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate(kustomized(Path("deploy")), monkeypatch, "--channel", "stable") == 0
    assert capsys.readouterr().out.startswith("deploy/olm/bundle: ")
    subprocess.run([sys.executable, "-m", "yamllint", "--strict", "."], check=True)
    csv = yaml.safe_load(Path("deploy/olm/bundle/manifests/web.clusterserviceversion.yaml").read_text())
    assert csv["metadata"]["name"] == "web.v1.2.3"
    assert [each["name"] for each in csv["spec"]["customresourcedefinitions"]["owned"]] == ["websites.shop.example.com"]
    assert "channels.v1=stable\n" in Path("deploy/olm/bundle.Dockerfile").read_text()


@pytest.mark.parametrize(
    ("manifests", "arguments", "error"),
    [
        ("", (), "the manifests are empty: pass the output of 'kubectl kustomize deploy'"),
        ("kind: A", (), "the manifests have an entry without kind and name"),
        ("", ("--release", "1"), "VERSION '1' is not a semantic version"),
        ("kind: A\nmetadata: {name: a}", ("--deploy", "elsewhere"), "elsewhere/olm/base.yaml: file not found"),
    ],
)
def test_impossible_bundle_is_one_error_and_writes_nothing(
    manifests: str,
    arguments: tuple[str, ...],
    error: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert generate(manifests, monkeypatch, *arguments) == 1
    assert capsys.readouterr().err.startswith(f"rolecall generate bundle: {error}")
    assert not Path("deploy/olm/bundle").exists()
