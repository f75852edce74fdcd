"""Excerpts in the tutorials match the files of the operators."""

import pytest

from tests.guides import TUTORIALS
from tests.unit.docs.pages import PROJECT, blocks

SAMPLES = {"podcount": "replicaset"}


@pytest.mark.parametrize("name", TUTORIALS)
def test_each_excerpt_is_in_the_role_in_its_sample_or_in_watches_yaml(name: str) -> None:
    files = [*(PROJECT / "roles" / name).rglob("*.yml"), PROJECT / "watches.yaml"]
    files.append(PROJECT / f"deploy/samples/{SAMPLES.get(name, name)}.yaml")
    texts = [file.read_text() for file in files]
    excerpts = blocks((PROJECT / f"docs/tutorials/{name}.md").read_text(), "yaml")
    assert len(excerpts) >= 4
    assert [each for each in excerpts if not any(each in text for text in texts)] == []


def test_every_tutorial_is_listed_and_every_role_has_one() -> None:
    there = {page.stem for page in (PROJECT / "docs/tutorials").glob("*.md")}
    assert (
        there - {"deploy-samples", "team"}
        == set(TUTORIALS)
        == {role.name for role in (PROJECT / "roles").iterdir() if role.is_dir()}
    )
