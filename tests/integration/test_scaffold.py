"""The guide to a first operator, done word by word: a new project with three kinds, its demo and its tests."""

from pathlib import Path

import pytest

from rolecall.controlplane.state import known_names
from tests.integration.guides import Done, do, steps
from tests.integration.operators import PROJECT

GUIDE = (PROJECT / "docs/guides/first-operator.md").read_text()
GETTING_ROLECALL = 2  # make setup, activate: what the test environment gives


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("first")


@pytest.fixture(scope="module")
def done(folder: Path) -> dict[str, Done]:
    return {each.step.command: each for each in do(steps(GUIDE)[GETTING_ROLECALL:], folder, folder / "state")}


def test_every_command_of_the_guide_succeeds(done: dict[str, Done]) -> None:
    failed = {command: each.printed[-40:] for command, each in done.items() if each.code != 0}
    assert failed == {}
    assert len(done) == len(steps(GUIDE)) - GETTING_ROLECALL


def test_the_demo_reconciles_kinds_with_a_role_with_a_playbook_and_with_both(done: dict[str, Done]) -> None:
    printed = done["make demo"].printed
    reconciled = {line.split()[0] for line in printed if "Successful" in line and line.endswith("done")}
    assert reconciled == {"Website", "Policy", "Cart"}


def test_the_tests_of_the_project_lint_it_and_lose_the_config_maps(done: dict[str, Done]) -> None:
    printed = "\n".join(done["make test"].printed)
    assert "Profile 'production' was required, and it passed" in printed
    assert printed.count("TASK [Wait until the ConfigMap is back with the message]") == 3
    assert "left out" not in printed


def test_no_control_plane_is_left(done: dict[str, Done], folder: Path) -> None:
    assert done
    assert list(known_names(folder / "state")) == []
