"""Pages whose commands need nothing but a clone: all of them are done there, in the page's order.

``tests/guides.py`` says which pages these are. What makes a page special stands here: the folder in which its reader
is, and what lies there.
"""

from pathlib import Path

import pytest

from tests.guides import GUIDES, INTEGRATION, Guide
from tests.integration.shell import clone, do
from tests.outcomes import check

WRONG_PERIOD = """- group: example.com
  version: v1
  kind: X
  role: x
  reconcilePeriod: 15
"""
LYING_THERE = {"docs/reference/watches.md": {"watches.yaml": WRONG_PERIOD, "roles/x/tasks/main.yml": "[]\n"}}


@pytest.mark.parametrize("guide", [each for each in GUIDES if each.test == INTEGRATION], ids=lambda guide: guide.page)
def test_every_command_of_the_page_ends_and_prints_as_the_page_says(guide: Guide, tmp_path: Path) -> None:
    place = clone(tmp_path)
    for name, content in LYING_THERE.get(guide.page, {}).items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(content)
    check(guide, do(guide.steps, place, tmp_path / "state"))
