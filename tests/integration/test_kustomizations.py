"""The manifests that ``rolecall validate`` checks are those that kubectl builds."""

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from rolecall.workbench.controlplane.binaries import find_binaries
from rolecall.workbench.project.kustomizations import manifest_sets
from rolecall.workbench.project.scaffold import init_project
from rolecall.workbench.yaml_files import below
from tests.static.repository import ROOT

KINDS = ("Deployment", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")


def checked_parts(objects: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the fields of these objects that the check reads, in a form that can be compared."""
    parts = [
        {
            "kind": each["kind"],
            "rules": each.get("rules"),
            "role": each.get("roleRef"),
            "pod": below(each, "spec", "template", "spec"),
        }
        for each in objects
        if each["kind"] in KINDS
    ]
    return sorted(json.dumps(each, sort_keys=True) for each in parts)


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("web")
    init_project(directory, "web", "example.com").write()
    return directory


@pytest.mark.parametrize("is_generated", [True, False], ids=["generated project", "this repository"])
def test_kustomizations_are_read_as_kubectl_builds_them(generated: Path, tmp_path: Path, *, is_generated: bool) -> None:
    deploy = (generated if is_generated else ROOT) / "deploy"
    kubectl = find_binaries(print)["kubectl"]
    compared = []
    for number, file in enumerate(sorted(deploy.rglob("kustomization.yaml"))):
        is_component = yaml.safe_load(file.read_text())["kind"] == "Component"
        key, base = ("components", deploy) if is_component else ("resources", None)
        overlay = tmp_path / str(number)
        overlay.mkdir()
        names = {
            "resources": [os.path.relpath(base, overlay)] if base else [],
            key: [os.path.relpath(file.parent, overlay)],
        }
        (overlay / "kustomization.yaml").write_text(yaml.safe_dump({"labels": [{"pairs": {"a": "b"}}], **names}))
        done = subprocess.run([kubectl, "kustomize", overlay], capture_output=True, text=True, check=True)
        (found,) = manifest_sets(overlay)
        built = checked_parts(each for each in yaml.safe_load_all(done.stdout) if each)
        assert checked_parts(each.value for each in found) == built, file
        compared += built
    assert any("Deployment" in each for each in compared)
