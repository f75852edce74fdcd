import io
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rolecall.cli.main import main
from rolecall.workbench.project.scaffold import FOLDER, NewKind, create_api, init_project
from tests.static.bundle import kustomized

IMAGE = "registry.example/web:1.2.3"
COMPONENT = """\
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
resources: [config.yaml]
patches:
  - target: {kind: Deployment}
    patch: |-
      - op: add
        path: /spec/template/spec/containers/0/args/-
        value: --shards=12
"""


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


def test_component_of_the_project_is_part_of_its_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    component = Path("deploy/extra")
    component.mkdir()
    (component / "kustomization.yaml").write_text(COMPONENT)
    (component / "config.yaml").write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: web-extra}}\n")
    with Path("deploy/kustomization.yaml").open("a") as file:
        file.write("components:\n  - extra\n")
    assert generate(kustomized(Path("deploy")), monkeypatch) == 0
    csv = Path("deploy/olm/bundle/manifests/web.clusterserviceversion.yaml").read_text()
    assert "- --shards=12\n" in csv
    assert Path("deploy/olm/bundle/manifests/web-extra.configmap.yaml").is_file()


COMPONENTS = sorted(path.name for path in (FOLDER / "project/deploy/components").iterdir())


@pytest.mark.parametrize("component", COMPONENTS)
def test_each_component_of_the_scaffold_has_a_bundle_unless_it_sets_the_namespaces(
    component: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path("deploy/kustomization.yaml").open("a") as file:
        file.write(f"components:\n  - components/{component}\n")
    if component == "namespaced":
        assert generate(kustomized(Path("deploy")), monkeypatch) == 1
        assert "WATCH_NAMESPACE, but in a bundle OLM sets it" in capsys.readouterr().err
    else:
        assert generate(kustomized(Path("deploy")), monkeypatch) == 0


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
