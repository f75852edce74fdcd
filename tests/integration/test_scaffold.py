"""The guide to a first operator, done word by word: a new project with three kinds, its demo and its tests."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from rolecall.workbench.controlplane.binaries import find_binaries
from rolecall.workbench.controlplane.state import known_names
from rolecall.workbench.project.scaffold import init_project
from tests.guides import guide
from tests.integration.shell import clone, do
from tests.outcomes import Done, check

GUIDE = guide("docs/guides/first-operator.md")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("first")


@pytest.fixture(scope="module")
def done(directory: Path) -> dict[str, Done]:
    elsewhere = {GUIDE.steps[2].command: f"cd {directory}"}
    return {each.step.command: each for each in do(GUIDE.steps, clone(directory), directory / "state", elsewhere)}


def test_every_command_of_the_guide_ends_and_prints_as_the_guide_says(done: dict[str, Done]) -> None:
    check(GUIDE, list(done.values()))


def test_the_demo_reconciles_kinds_with_a_role_with_a_playbook_and_with_both(done: dict[str, Done]) -> None:
    printed = done["make demo"].printed
    reconciled = {line.split()[0] for line in printed if "Successful" in line and line.endswith("done")}
    assert reconciled == {"Website", "Policy", "Cart"}


def test_the_tests_of_the_project_lint_it_and_lose_the_config_maps(done: dict[str, Done]) -> None:
    printed = "\n".join(done["make test"].printed)
    assert "Profile 'production' was required, and it passed" in printed
    assert printed.count("TASK [Wait until the ConfigMap has the message again]") == 3
    assert printed.count("TASK [Wait until the ConfigMap exists again with the message]") == 3
    left_out = [line for line in printed.splitlines() if "left out" in line]
    assert [line.split(":")[:2] for line in left_out] == [["left out", " Policy"]], "its playbook calls no role itself"


def test_the_permissions_of_the_project_are_those_that_its_scenario_needs(done: dict[str, Done]) -> None:
    printed = "\n".join(done["make test"].printed)
    assert "equal: nothing is missing, and nothing is too much" in printed


def test_the_tests_of_the_project_reconcile_each_kind_without_an_operator(done: dict[str, Done]) -> None:
    passed = {line.split()[0] for line in done["make test"].printed if re.fullmatch(r"tests/\S+ \.+ \[ *\d+%\]", line)}
    kinds = {f"tests/test_{kind}.py" for kind in ("website", "policy", "cart")}
    assert passed == {"tests/test_files_agree.py", "tests/test_records.py"} | kinds


def test_project_without_kinds_deploys_only_the_operator(tmp_path: Path) -> None:
    init_project(tmp_path, "web", "example.com").write()
    kubectl = find_binaries(print)["kubectl"]
    built = subprocess.run([kubectl, "kustomize", "deploy"], cwd=tmp_path, capture_output=True, text=True, check=True)
    kinds = [each["kind"] for each in yaml.safe_load_all(built.stdout)]
    assert "Deployment" in kinds
    assert "CustomResourceDefinition" not in kinds


def test_no_control_plane_is_left(done: dict[str, Done], directory: Path) -> None:
    assert done
    assert list(known_names(directory / "state")) == []
