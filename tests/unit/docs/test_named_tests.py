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


def test_each_line_of_the_threat_model_names_its_test() -> None:
    lines = (PROJECT / "docs/concepts/security.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.endswith("| test |")]
    assert len(rows) > 15
    assert [row for row in rows if not _NAME.search(row.rsplit(" | ", 1)[-1])] == []
