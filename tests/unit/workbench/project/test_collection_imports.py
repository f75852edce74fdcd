import importlib.metadata
from collections.abc import Callable
from pathlib import Path

import ansible_collections
import pytest

from rolecall.workbench.project import ansible_check
from rolecall.workbench.project.collection_imports import IN_PACKAGE

MISSING = "couldn't resolve module/action '{}.module'."


@pytest.fixture
def missing_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide all installed collections."""
    nothing: Callable[[str], None] = lambda _name: None  # noqa: E731
    monkeypatch.setattr(ansible_check, "find_spec", nothing)


@pytest.mark.usefixtures("missing_collections")
def test_the_package_ansible_is_advised_only_for_its_collections() -> None:
    own = ansible_check._missing_collection(MISSING.format("kubernetes.core"))
    other = ansible_check._missing_collection(MISSING.format("operator_sdk.util"))
    assert "'ansible-galaxy collection install kubernetes.core', or install the Python package 'ansible'" in own
    assert other.endswith("run 'ansible-galaxy collection install operator_sdk.util'.")


def test_the_listed_collections_are_in_the_package() -> None:
    if int(importlib.metadata.version("ansible").split(".")[0]) != 12:
        pytest.skip("the list is that of release 12")
    directories = [Path(each) for each in ansible_collections.__path__]
    assert {
        name for name in IN_PACKAGE if not any((each / name.replace(".", "/")).is_dir() for each in directories)
    } == set()
