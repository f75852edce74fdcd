"""Pages whose commands need nothing but a clone: all of them are done there, in the page's order.

``tests/guides.py`` says which pages these are. What makes a page special stands here: the directory in which its reader
is, and what lies there.
"""

import re
from pathlib import Path

import pytest

from tests.guides import GUIDES, INTEGRATION, TUTORIALS, Guide, guide
from tests.integration.shell import clone, do
from tests.outcomes import check

WRONG_PERIOD = """- group: example.com
  version: v1
  kind: X
  role: x
  reconcilePeriod: 15
"""
TOGETHER = [guide(f"docs/tutorials/{name}.md") for name in TUTORIALS]
ALONE = [each for each in GUIDES if each.test == INTEGRATION and each not in TOGETHER]
LYING_THERE = {"docs/reference/watches.md": {"watches.yaml": WRONG_PERIOD, "roles/x/tasks/main.yml": "[]\n"}}
EVENTS = {
    each.command: reason[1]
    for each in guide("docs/guides/prune.md").steps
    if (reason := re.search(r"kubectl get events .*reason=(\w+)", each.command))
}
BEFORE = {
    command: f"until kubectl get events | grep --quiet {reason}; do :; done" for command, reason in EVENTS.items()
}
"""Hidden commands: an Event is written a moment after the change that it reports."""


@pytest.mark.parametrize("page", ALONE, ids=lambda each: each.page)
def test_every_command_of_the_page_ends_and_prints_as_the_page_says(page: Guide, tmp_path: Path) -> None:
    place = clone(tmp_path)
    for name, content in LYING_THERE.get(page.page, {}).items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(content)
    check(page, do(page.steps, place, tmp_path / "state", BEFORE))


def test_tutorials_work_one_after_the_other_on_one_control_plane(tmp_path: Path) -> None:
    wanted = [step for page in TOGETHER for step in page.steps]
    # "wait" because the shell starts one operator as job %1 after the other.
    all_done = do(wanted, clone(tmp_path), tmp_path / "state", {"make setup": "wait"})
    for page in TOGETHER:
        check(page, all_done[: len(page.steps)])
        del all_done[: len(page.steps)]
