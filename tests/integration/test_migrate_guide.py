"""The guide for owners of an operator, done with a project of the Operator SDK's shape: every command of it.

Building and pushing images is told in words there, for it needs a builder and a registry; the image has tests of its
own.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.example_projects import MEMCACHED
from tests.integration.guides import Done, do, steps
from tests.integration.operators import PROJECT

GUIDE = (PROJECT / "docs/guides/migrate.md").read_text()


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with the project, under version control."""
    work = tmp_path_factory.mktemp("migration") / "memcached"
    shutil.copytree(MEMCACHED.path, work)
    for words in (["init", "--quiet"], ["add", "."]):
        subprocess.run(["git", *words], cwd=work, check=True)
    return work


@pytest.fixture(scope="module")
def done(work: Path) -> list[Done]:
    return do(steps(GUIDE), work, work.parent / "state")


def test_every_command_of_the_guide_succeeds(done: list[Done], work: Path) -> None:
    failed = {each.step.command: each.printed for each in done if each.code != 0}
    assert failed == {}, (work / "operator.log").read_text()[-4000:]
    assert len(done) == len(steps(GUIDE))


def test_every_command_of_the_guide_prints_what_the_guide_shows(done: list[Done]) -> None:
    missing = {each.step.command: (each.unseen, each.printed) for each in done if each.unseen}
    assert missing == {}


def test_the_way_back_leaves_the_project_as_it_was(done: list[Done], work: Path) -> None:
    assert done
    assert (work / "Dockerfile").read_text() == (MEMCACHED.path / "Dockerfile").read_text()
