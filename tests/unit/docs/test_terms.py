"""Terms that readers know: https://sdk.operatorframework.io has no "Go runner"."""

from tests.unit.docs.pages import PROJECT, prose, wrong

OLD_TERMS = ("Go runner", "live page")
MEASURED = PROJECT / "bench/README.md"
"""Its sections are cited with their titles."""


def test_pages_use_no_old_term_of_the_project() -> None:
    found = wrong(
        lambda page: [] if page == MEASURED else [term for term in OLD_TERMS if term in prose(page.read_text())]
    )
    assert found == {}
