"""A page that names a test as its evidence names one that exists."""

import re
from functools import cache

from tests.unit.docs.pages import PROJECT, code_words, wrong

_DEFINITION = re.compile(r"^\s*(?:async )?def (test_\w+)\(", re.MULTILINE)
_NAME = re.compile(r"test_\w+")


@cache
def defined_tests() -> frozenset[str]:
    return frozenset(
        name for file in (PROJECT / "tests").rglob("test_*.py") for name in _DEFINITION.findall(file.read_text())
    )


def test_every_test_that_a_page_names_exists() -> None:
    defined = defined_tests()
    assert wrong(lambda page: set(filter(_NAME.fullmatch, code_words(page.read_text()))) - defined) == {}


def rows(page: str) -> dict[tuple[str, str], str]:
    """Return the last cell of each row of a page's tables, by its section and its first cell."""
    found, section = {}, ""
    for line in (PROJECT / page).read_text().splitlines():
        section = line if line.startswith("## ") else section
        first, _, last = line.removeprefix("| ").removesuffix(" |").partition(" | ")
        if line.startswith("| ") and first not in ("attack", "risk"):
            found[section, first] = last
    return found


def test_each_line_of_the_threat_model_has_a_test() -> None:
    threats, tests = rows("docs/concepts/security.md"), rows("docs/reference/security-tests.md")
    assert len(threats) > 50
    assert list(threats) == list(tests)
    assert [row for row, cell in tests.items() if not _NAME.search(cell)] == []
