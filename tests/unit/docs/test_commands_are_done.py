"""A test or a target of make that CI runs covers every command in a page; skipped commands have a reason."""

import re
from pathlib import Path

import pytest

from tests.guides import BY_HAND, GUIDES, INTEGRATION, Guide, guide, steps
from tests.unit.docs.pages import PROJECT, blocks, name_of, wrong

MAKEFILE = (PROJECT / "Makefile").read_text()


def shown(page: Path) -> list[str]:
    return [step.command for step in steps(page.read_text())]


def test_a_page_with_commands_has_a_test_that_does_them() -> None:
    known = {each.page for each in GUIDES} | set(BY_HAND)
    unlike = wrong(lambda page: (name_of(page) in known) != bool(shown(page)))
    assert unlike == {}, "list it in tests/guides.py, with the test that does it"


def test_commands_stand_after_a_prompt_in_console_blocks_where_tests_find_them() -> None:
    assert wrong(_in_another_form) == {}


def _in_another_form(page: Path) -> list[str]:
    """Return the lines of commands that are not after a prompt, in a block that is not indented, on one line."""
    fences = re.findall(r"^[ ]*```(\w+)[^\n]*\n(.)", page.read_text(), re.MULTILINE)
    languages = [language for language, _ in fences if language in ("bash", "sh", "shell")]
    without_prompt = [first for language, first in fences if language == "console" and first != "$"]
    prompts = [line for block in blocks(page.read_text(), "console") for line in block.splitlines() if "$ " in line[:9]]
    commands = [prompt.strip().removeprefix("$ ") for prompt in prompts]
    indented = [] if commands == shown(page) else commands
    return languages + without_prompt + indented + [command for command in shown(page) if command.endswith("\\")]


@pytest.mark.parametrize("each", GUIDES, ids=lambda each: each.page)
def test_the_test_of_a_page_takes_it_from_the_list(each: Guide) -> None:
    source = (PROJECT / each.test).read_text()
    assert each.test == INTEGRATION or f'guide("{each.page}")' in source
    assert guide(each.page) is each


@pytest.mark.parametrize("each", GUIDES, ids=lambda each: each.page)
def test_omitted_command_is_in_the_page_and_has_a_reason(each: Guide) -> None:
    assert {*each.by_make, *each.left_out} - set(shown(PROJECT / each.page)) == set()
    assert all(len(reason.split()) > 3 for reason in each.left_out.values())


@pytest.mark.parametrize("each", [each for each in GUIDES if each.by_make], ids=lambda each: each.page)
def test_target_of_a_guide_is_a_part_of_make_test_all(each: Guide) -> None:
    missing = {command: target for command, target in each.by_make.items() if not _is_made(command, target)}
    assert missing == {}


def test_a_command_that_make_does_not_do_is_found() -> None:
    assert _is_made("molecule test", "molecule")
    assert _is_made("make unit", "test-all")
    assert not _is_made("molecule test -s nothing", "molecule")
    assert not _is_made("molecule test", "e2e")
    assert not _is_made("make e2e", "test-all")


def _is_made(command: str, target: str) -> bool:
    """Return whether ``make test-all`` runs a command: as a line of a prerequisite, or as a prerequisite."""
    needed, _ = _rule("test-all")
    _, lines = _rule(target)
    return (target in needed and command in lines) or (target == "test-all" and command.removeprefix("make ") in needed)


def _rule(target: str) -> tuple[list[str], list[str]]:
    """Return the prerequisites and the commands of a target of the Makefile."""
    found = re.search(rf"^{target}:([^#\n]*)[^\n]*\n((?:\t[^\n]*\n)*)", MAKEFILE, re.MULTILINE)
    assert found is not None
    return found[1].split(), [line.strip().removeprefix("$(RUN) ") for line in found[2].splitlines()]
