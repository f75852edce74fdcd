"""Make targets, commands, flags, and watches files in the pages exist."""

import argparse
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import yaml

from rolecall.cli.main import parser
from rolecall.runner.config.watches import load_watches
from rolecall.workbench.project.scaffold import FOLDER
from tests.unit.docs.pages import PROJECT, blocks, commands, pages, wrong

TARGET = re.compile(r"^([a-z0-9-]+):.*## ", re.MULTILINE)


def targets() -> set[str]:
    return set(TARGET.findall((PROJECT / "Makefile").read_text()))


def targets_of_new_projects() -> set[str]:
    return set(TARGET.findall((FOLDER / "project/Makefile.tmpl").read_text()))


def subcommands(of: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the commands of a parser by name."""
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def flags(of: argparse.ArgumentParser) -> set[str]:
    """Return the long flags of a parser."""
    return {flag for action in of._actions for flag in action.option_strings if flag.startswith("--")}


def calls(page: Path, program: str) -> Iterator[list[str]]:
    """Yield the words after a program's name wherever a page calls it."""
    for command in commands(page.read_text()):
        for text in re.findall(rf"(?:^|\$\(|[=&] ?){program} ([^)&|]*)", command):
            try:
                words = shlex.split(text, comments=True)
            except ValueError:
                words = text.split()
            if words and words[0][0].isalpha():
                yield words


def test_every_make_target_in_a_page_exists() -> None:
    known = targets() | targets_of_new_projects()
    assert (
        wrong(lambda page: {word for words in calls(page, "make") for word in words if "=" not in word} - known) == {}
    )


def test_tables_of_targets_list_every_target_of_make_help() -> None:
    pages = (PROJECT / name for name in ("CONTRIBUTING.md", "MAINTAINING.md"))
    rows = [
        line.split("|")[1] for page in pages for line in page.read_text().splitlines() if line.startswith("| `make ")
    ]
    assert set(re.findall(r"`make ([a-z0-9-]+)`", " ".join(rows))) == targets() - {"help", "setup"}


def test_every_command_and_flag_of_rolecall_in_a_page_exists() -> None:
    assert wrong(lambda page: [words for words in calls(page, "rolecall") if not _is_known(words)]) == {}


def test_commands_are_found_in_blocks_and_in_the_text() -> None:
    found = [words for page in pages() for words in calls(page, "rolecall")]
    assert ["cluster", "kubeconfig", "--name", "website"] in found
    assert ["demo", "--project", "DIR"] in found
    assert not _is_known(["cluster", "begin"])
    assert not _is_known(["run", "--quickly"])


def test_every_block_of_yaml_can_be_read() -> None:
    assert wrong(lambda page: [block for block in blocks(page.read_text(), "yaml") if not _is_yaml(block)]) == {}


def test_every_watches_file_in_a_page_is_valid(tmp_path: Path) -> None:
    for block in (block for page in pages() for block in blocks(page.read_text(), "yaml")):
        document = next(yaml.safe_load_all(block))
        if not (isinstance(document, list) and all(isinstance(item, dict) and "role" in item for item in document)):
            continue
        for entry in document:
            (tmp_path / "roles" / entry["role"]).mkdir(parents=True, exist_ok=True)
        (tmp_path / "watches.yaml").write_text(block)
        assert len(load_watches(tmp_path / "watches.yaml", {}, tmp_path)) == len(document)


def _is_yaml(text: str) -> bool:
    """Return whether a text is YAML and not empty."""
    try:
        return list(yaml.safe_load_all(text)) != [None]
    except yaml.YAMLError:
        return False


@cache
def _program() -> argparse.ArgumentParser:
    return parser()


def _is_known(words: list[str]) -> bool:
    """Return whether the words name a command, and only its flags."""
    found = _program()
    rest = list(words)
    while (commands_here := subcommands(found)) and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        if name in ("COMMAND", "…"):
            return True
        if name not in commands_here:
            return False
        found = commands_here[name]
    ours = rest[: rest.index("--")] if "--" in rest else rest
    return {word.strip("[]").split("=")[0] for word in ours if word.strip("[]").startswith("--")} <= flags(found)
