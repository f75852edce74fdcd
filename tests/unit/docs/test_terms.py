"""Terms of earlier versions that readers don't know: the Operator SDK calls no part of it a "Go runner"."""

from tests.unit.docs.pages import prose, wrong

OLD_TERMS = ("Go runner", "live page")


def test_pages_use_no_old_term_of_the_project() -> None:
    assert wrong(lambda page: [term for term in OLD_TERMS if term in prose(page.read_text())]) == {}
