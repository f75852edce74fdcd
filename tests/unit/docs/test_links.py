"""Targets of links and paths in the pages exist, and the index lists all pages."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.unit.docs.pages import PROJECT, anchors, code_words, links, name_of, pages, pictures, titles, wrong

TOP_FOLDERS = {"src", "tests", "docs", "roles", "playbooks", "deploy", "tools", "changelog.d", "bench", ".ci"}
MOST_BYTES = 200 * 1024
_FRAGMENT = re.compile(r"\d+(-[^.]*)?(\..*)?\.(added|changed|fixed|removed)\.md")


def test_every_relative_link_leads_to_a_file_and_a_heading() -> None:
    assert wrong(lambda page: [link for link in links(page.read_text()) if not _is_there(page, link)]) == {}


def test_every_picture_is_there_is_small_and_is_told_in_words() -> None:
    assert wrong(_bad_pictures) == {}
    assert [
        name for name in ("README.md", "docs/guides/dashboard.md") if not pictures((PROJECT / name).read_text())
    ] == []


def _bad_pictures(page: Path) -> list[str]:
    shown = [(words, page.parent / path) for words, path in pictures(page.read_text())]
    return [str(file) for words, file in shown if len(words.split()) < 3 or not 0 < _size(file) <= MOST_BYTES]


def _size(file: Path) -> int:
    return file.stat().st_size if file.is_file() else 0


def test_every_path_of_the_repository_that_the_text_names_is_there() -> None:
    assert wrong(_missing_paths) == {}


def _missing_paths(page: Path) -> list[str]:
    text = page.read_text()
    made_by_the_reader = titles(text)
    named = {word for word in code_words(text) if _is_ours(word)} - made_by_the_reader
    return [word for word in named if not (PROJECT / word).exists()]


def test_a_path_of_a_module_in_the_text_is_looked_for() -> None:
    assert _is_ours("src/rolecall/system/logs.py")
    assert _is_ours("deploy/rbac")
    assert not _is_ours("roles/<name>/tasks/main.yml")


@pytest.mark.parametrize("directory", ["tutorials", "guides", "concepts", "reference", "adr"])
def test_the_index_lists_every_page(directory: str) -> None:
    index = PROJECT / "docs" / ("decisions.md" if directory == "adr" else "index.md")
    listed = {(PROJECT / "docs" / link).resolve() for link in links(index.read_text())}
    assert set((PROJECT / "docs" / directory).glob("*.md")) - listed == set()


def test_no_two_decisions_have_the_same_number() -> None:
    """The number of a withdrawn decision isn't used again, so there are gaps."""
    numbers = [page.name[:4] for page in (PROJECT / "docs/adr").glob("*.md")]
    assert len(set(numbers)) == len(numbers) > 0


@pytest.mark.parametrize("page", sorted((PROJECT / "docs/adr").glob("*.md")), ids=name_of)
def test_a_decision_has_its_number_its_parts_and_at_most_250_words(page: Path) -> None:
    text = page.read_text()
    assert text.startswith(f"# {int(page.name[:4])}. ")
    assert {"context", "decision", "consequences"} <= anchors(text)
    assert "\nStatus: " in text
    told = "\n".join(line for line in text.splitlines() if not line.startswith("|"))
    assert len(told.split()) <= 250, "tables may be beyond, sentences not"


def test_no_page_names_a_directory_of_somebodys_machine() -> None:
    named = [name_of(page) for page in pages() for place in ("/root/", "/home/", "/work/") if place in page.read_text()]
    assert named == []


def test_a_changelog_fragment_says_by_its_name_what_it_is() -> None:
    names = {page.name for page in (PROJECT / "changelog.d").glob("*.md")} - {"README.md"}
    assert {name for name in names if not _FRAGMENT.fullmatch(name)} == set()


def _is_there(page: Path, link: str) -> bool:
    if "://" in link:
        return True
    path, _, fragment = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists() or not target.is_relative_to(PROJECT):
        return False
    return not fragment or fragment in anchors(target.read_text())


def _is_ours(word: str) -> bool:
    directory, separator, rest = word.partition("/")
    return (
        bool(separator and rest) and directory in TOP_FOLDERS and "NNNN" not in word and not set(word) & set("<>*…{}$")
    )


def test_the_pages_are_those_that_git_knows_or_would() -> None:
    ignored = subprocess.run(
        ["git", "check-ignore", *map(str, pages())], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert ignored.stdout == ""
