"""The tests that a new project gets, on projects in which one thing was forgotten."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from rolecall.workbench.project.scaffold import NewKind, create_api, init_project


@pytest.fixture
def project(tmp_path: Path) -> Path:
    init_project(tmp_path, "web", "example.com").write()
    create_api(tmp_path, NewKind("shop", "v1", "Website", with_role=True)).write()
    return tmp_path


def suite_of(project: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("files_agree", project / "tests/test_files_agree.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def failed(project: Path) -> set[str]:
    """Run the static tests of a project and return the names of those that fail."""
    tests = {name: test for name, test in vars(suite_of(project)).items() if name.startswith("test_")}
    assert len(tests) == 3
    said = {}
    for name, test in tests.items():
        try:
            test()
        except AssertionError as error:
            said[name] = str(error)
    assert all(text.startswith("Website") for text in said.values())
    return set(said)


def test_a_new_project_passes_with_and_without_kinds(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    empty = tmp_path_factory.mktemp("empty")
    init_project(empty, "web", "example.com").write()
    assert failed(project) == set()
    assert failed(empty) == set()


@pytest.mark.parametrize(
    ("path", "old", "new", "finds"),
    [
        ("deploy/rbac/website.yaml", "verbs: [get, list, watch, patch]\n", "verbs: [get, list]\n", "may_watch"),
        ("deploy/rbac/website.yaml", "websites/status", "websites/scale", "may_watch"),
        ("deploy/samples/website.yaml", "example.com/v1", "example.com/v2", "sample"),
        ("deploy/crds/websites.yaml", "served: true", "served: false", "served"),
    ],
)
def test_forgotten_part_is_found(project: Path, path: str, old: str, new: str, finds: str) -> None:
    text = (project / path).read_text()
    assert old in text
    (project / path).write_text(text.replace(old, new, 1))
    [found] = failed(project)
    assert finds in found


def test_a_kind_without_a_status_of_its_own_needs_no_permission_for_it(project: Path) -> None:
    rules = project / "deploy/rbac/website.yaml"
    rules.write_text(rules.read_text().replace("websites/status", "websites/scale"))
    with (project / "watches.yaml").open("a") as watches:
        watches.write("  manageStatus: false\n")
    assert failed(project) == set()
