"""The versions of ansible-core that are patched are those that the lock file pins, and so those that tests run with."""

import tomllib
from pathlib import Path

import pytest
from ansible_collections.kubernetes.core.plugins.module_utils.client import discovery

from rolecall.runs.ansible_patches.supported_versions import (
    KUBERNETES_CLIENT,
    SUPPORTED,
    installed_version,
    is_supported,
    is_supported_collection,
)

LOCK_FILE = Path(__file__).parents[4] / "uv.lock"


@pytest.mark.parametrize("version", ["2.19.0", "2.19.14", "2.21.5", "2.21.0rc1"])
def test_every_patch_release_of_a_tested_minor_version_is_supported(version: str) -> None:
    assert is_supported(version)


@pytest.mark.parametrize("version", ["2.18.1", "2.2.0", "2.20.3", "2.22.0", "2.210.0", "3.19.0", ""])
def test_any_other_version_is_not_supported(version: str) -> None:
    assert not is_supported(version)


def test_the_supported_versions_are_those_of_the_lock_file() -> None:
    packages = tomllib.loads(LOCK_FILE.read_text())["package"]
    locked = {package["version"] for package in packages if package["name"] == "ansible-core"}
    assert {minor for version in locked for minor in SUPPORTED if version.startswith(f"{minor}.")} == set(SUPPORTED)
    assert [version for version in locked if not is_supported(version)] == []


def test_these_tests_run_with_a_supported_version() -> None:
    assert is_supported(installed_version())


def test_the_supported_client_is_that_of_the_lock_file() -> None:
    packages = tomllib.loads(LOCK_FILE.read_text())["package"]
    assert {each["version"].split(".")[0] for each in packages if each["name"] == "kubernetes"} == {KUBERNETES_CLIENT}


def test_these_tests_run_with_a_supported_collection() -> None:
    assert is_supported_collection(discovery.__file__)


@pytest.mark.parametrize("manifest", [None, "no JSON", "{}", '{"collection_info": {"version": "6.20.0"}}'])
def test_any_other_collection_is_not_supported(tmp_path: Path, manifest: str | None) -> None:
    if manifest is not None:
        (tmp_path / "MANIFEST.json").write_text(manifest)
    assert not is_supported_collection(str(tmp_path / "plugins/module_utils/client/discovery.py"))
