"""The guide for owners of an operator, done with a project of the Operator SDK's shape: every command of it.

The guide only describes how to build and push images, which needs a builder and a registry; the image has tests of its
own.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.guides import guide
from tests.integration.example_projects import MEMCACHED
from tests.integration.shell import do
from tests.outcomes import Done, check

GUIDE = guide("docs/guides/migrate.md")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the project, under version control."""
    work = tmp_path_factory.mktemp("migration") / "memcached"
    shutil.copytree(MEMCACHED.path, work)
    for words in (["init", "--quiet"], ["add", "."]):
        subprocess.run(["git", *words], cwd=work, check=True)
    return work


@pytest.fixture(scope="module")
def all_done(work: Path) -> list[Done]:
    return do(GUIDE.steps, work, work.parent / "state")


def test_every_command_of_the_guide_ends_and_prints_as_the_guide_says(all_done: list[Done], work: Path) -> None:
    log = (work / "operator.log").read_text()[-4000:]
    assert all(each.is_as_shown for each in all_done), log
    check(GUIDE, all_done)


def test_the_way_back_leaves_the_project_as_it_was(all_done: list[Done], work: Path) -> None:
    assert all_done
    assert (work / "Dockerfile").read_text() == (MEMCACHED.path / "Dockerfile").read_text()
