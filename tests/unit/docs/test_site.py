"""The site that ``make site`` builds: its pages, its navigation, and the check of what was built."""

from collections import Counter
from pathlib import Path

import pytest
from tools.site.built import problems
from tools.site.navigation import listed_pages, navigation
from tools.site.pages import pages, stage, without_links_to_others

from tests.unit.docs.pages import name_of
from tests.unit.docs.pages import pages as written_pages

# Fragments are no pages yet, templates are those of other projects, and of the twin collections one is described.
NO_PAGES = (
    "changelog.d/",
    "src/rolecall/workbench/project/",
    "src/rolecall/collections/ansible_collections/operator_sdk/",
)


def test_every_page_that_we_wrote_is_a_page_of_the_site() -> None:
    missing = {name_of(page) for page in written_pages()} - set(pages())
    assert {page for page in missing if not page.startswith(NO_PAGES)} == set()


def test_the_navigation_leads_to_every_page_once() -> None:
    listed = Counter(listed_pages(navigation(pages())))
    assert listed == Counter(pages())


def test_a_link_to_a_file_that_is_no_page_becomes_its_text() -> None:
    text = "[a](../src/a.py) [b](b.md#c) [d](#d) [e](https://e.example)\n```\n[f](../src/f.py)\n```\n[g](../g.md)\n"
    expected = "a [b](b.md#c) [d](#d) [e](https://e.example)\n```\n[f](../src/f.py)\n```\ng\n"
    assert without_links_to_others(text, "docs/x.md", {"docs/b.md"}) == expected


def test_pages_keep_their_directories_and_files_that_they_lead_to_lie_there(tmp_path: Path) -> None:
    stage(tmp_path)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.md")} == set(pages())
    assert (tmp_path / "docs/reference/watches.schema.json").is_file()


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('<a href="sub/there.html#anchor">', None),
        ('<a href="sub/">', None),
        ('<a href="https://elsewhere.example/">', None),
        ('<img src="picture.png">', "loads picture.png, which is not there"),
        ('<a href="gone.html">', "links to gone.html, which is not there"),
        ('<a href="sub/there.html#gone">', "links to sub/there.html#gone, which is not there"),
        ('<a href="#gone">', "links to #gone, which is not there"),
        (
            '<script src="https://elsewhere.example/a.js"></script>',
            "loads https://elsewhere.example/a.js from elsewhere; put the file into the site",
        ),
        (
            '<link rel="stylesheet" href="//elsewhere.example/a.css">',
            "loads //elsewhere.example/a.css from elsewhere; put the file into the site",
        ),
    ],
)
def test_what_a_built_page_lacks_is_found(tmp_path: Path, body: str, problem: str | None) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/there.html").write_text('<h1 id="anchor">There</h1>')
    (tmp_path / "sub/index.html").write_text("<h1>Index</h1>")
    (tmp_path / "page.html").write_text(body)
    assert problems(tmp_path) == ([f"page.html: {problem}"] if problem else [])
