"""The ten-minutes guide, followed as by a new user: its files, its commands, in its order, in an empty directory.

What the concepts show of the same Website is done before it is deleted.
"""

import pytest

from tests.guides import Guide, guide, write_files
from tests.integration.shell import clone, do
from tests.outcomes import Done, check

GUIDE = guide("docs/guides/write-your-own-operator.md")
CONCEPTS = (guide("docs/concepts/status.md"), guide("docs/concepts/reconciliation.md"))
CLEAN_UP = "kubectl delete website hello german"


@pytest.fixture(scope="module")
def all_done(tmp_path_factory: pytest.TempPathFactory) -> list[Done]:
    directory = tmp_path_factory.mktemp("guide")
    write_files(GUIDE.text, directory / "files")
    end = [step.command for step in GUIDE.steps].index(CLEAN_UP)
    of_concepts = [step for concept in CONCEPTS for step in concept.steps]
    before = {
        "mkdir website": f"cd {directory}",
        "rolecall cluster start --name website": f"cp -R {directory}/files/. .",
    }
    wanted = [*GUIDE.steps[:end], *of_concepts, *GUIDE.steps[end:]]
    return do(wanted, clone(directory), directory / "state", before)


def test_every_command_of_the_guide_ends_and_prints_as_the_guide_says(all_done: list[Done]) -> None:
    check(GUIDE, [each for each in all_done if each.step in GUIDE.steps])


@pytest.mark.parametrize("concept", CONCEPTS, ids=lambda concept: concept.page)
def test_every_command_of_the_concepts_works_for_the_same_website(concept: Guide, all_done: list[Done]) -> None:
    check(concept, [each for each in all_done if each.step in concept.steps])
