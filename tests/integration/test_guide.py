"""The ten-minutes guide, done as a new user does it: its files, its commands, in its order, in an empty folder."""

import pytest

from tests.integration.guides import Done, do, steps, write_files
from tests.integration.operators import PROJECT

GUIDE = (PROJECT / "docs/guides/write-your-own-operator.md").read_text()
GETTING_ROLECALL = 5  # make setup, activate, PATH, an empty folder: what the test environment gives


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> list[Done]:
    folder = tmp_path_factory.mktemp("guide")
    work = folder / "website"
    write_files(GUIDE, work)
    return do(steps(GUIDE)[GETTING_ROLECALL:], work, folder / "state")


def test_every_command_of_the_guide_ends_as_it_should(done: list[Done]) -> None:
    ended = {each.step.command: each.code for each in done}
    assert ended == {each.step.command: int(each.step.is_refused) for each in done}
    assert len(done) == len(steps(GUIDE)) - GETTING_ROLECALL


def test_every_command_of_the_guide_prints_what_the_guide_shows(done: list[Done]) -> None:
    missing = {each.step.command: (each.unseen, each.printed) for each in done if each.unseen}
    assert missing == {}
