"""The reference agrees with the code: its generated blocks are fresh, and every command has one."""

from pathlib import Path

import pytest
from tools.docs.blocks import names
from tools.docs.commands import parsers
from tools.docs.pages import generated_files, render_page
from tools.docs.pages import pages as reference_pages
from tools.docs.watch_keys import tables

from tests.unit.docs.pages import PROJECT, name_of

REFERENCE = PROJECT / "docs" / "reference"
WITHOUT_A_BLOCK = {"ansible-operator run", "ansible-operator version"}
"""Differences from ``rolecall run`` are in a block; a sentence describes the rest."""


@pytest.mark.parametrize("page", reference_pages(), ids=name_of)
def test_a_page_of_the_reference_is_as_make_docs_writes_it(page: Path) -> None:
    assert page.read_text() == render_page(page), f"{name_of(page)} differs from the code: run 'make docs'"


@pytest.mark.parametrize("file", generated_files(), ids=name_of)
def test_a_generated_file_is_as_make_docs_writes_it(file: Path) -> None:
    assert file.read_text() == generated_files()[file], f"{name_of(file)} differs from the code: run 'make docs'"


def test_every_command_has_a_block() -> None:
    blocks = names((REFERENCE / "command-line.md").read_text())
    assert {block.removeprefix("command ") for block in blocks if block.startswith("command ")} == (
        set(parsers()) - WITHOUT_A_BLOCK
    )
    assert "defaults ansible-operator run against rolecall run" in blocks


def test_every_table_of_metrics_has_a_block() -> None:
    assert names((REFERENCE / "metrics.md").read_text()) == ["metrics operator", "metrics controllers"]


def test_every_table_of_keys_has_a_block() -> None:
    assert set(names((REFERENCE / "watches.md").read_text())) == {f"keys {name}" for name in tables()}
