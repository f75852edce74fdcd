"""The guide to updates, done with a new project."""

from pathlib import Path

from tests.guides import guide
from tests.integration.shell import do
from tests.outcomes import check

GUIDE = guide("docs/guides/update.md")


def test_every_command_of_the_guide_ends_and_prints_as_the_guide_says(tmp_path: Path) -> None:
    check(GUIDE, do(GUIDE.steps, tmp_path, tmp_path / "state"))
