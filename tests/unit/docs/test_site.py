"""The site that ``make site`` builds: its pages, its navigation, and the check of the result."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.site.built import problems
from tools.site.pages import pages, stage, without_links_to_others

from tests.unit.docs.pages import PROJECT, name_of
from tests.unit.docs.pages import pages as written_pages

# Fragments aren't pages, templates belong to other projects, and operator_sdk.util has the modules of rolecall.util.
NO_PAGES = (
    "changelog.d/",
    "src/rolecall/workbench/project/",
    "src/rolecall/collections/ansible_collections/operator_sdk/",
)


def test_site_has_every_page_of_the_repository() -> None:
    missing = {name_of(page) for page in written_pages()} - set(pages())
    assert {page for page in missing if not page.startswith(NO_PAGES)} == set()


def test_navigation_lists_every_page_once() -> None:
    # BaseLoader reads the tag of a Python function, which the site's generator calls, as a mapping.
    config = yaml.load((PROJECT / "tools/site/mkdocs.yml").read_text(), Loader=yaml.BaseLoader)  # noqa: S506
    assert Counter(listed_pages(config["nav"])) == Counter(pages())


def listed_pages(entries: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the pages of a navigation, including those of its groups."""
    for entry in entries:
        for target in entry.values():
            if isinstance(target, str):
                yield target
            else:
                yield from listed_pages(target)


def test_link_to_other_file_becomes_its_text() -> None:
    text = "[a](../src/a.py) [b](b.md#c) [d](#d) [e](https://e.example)\n```\n[f](../src/f.py)\n```\n[g](../g.md)\n"
    expected = "a [b](b.md#c) [d](#d) [e](https://e.example)\n```\n[f](../src/f.py)\n```\ng\n"
    assert without_links_to_others(text, "docs/x.md", {"docs/b.md"}) == expected


def test_staged_site_has_pages_and_their_files(tmp_path: Path) -> None:
    stage(tmp_path)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.md")} == set(pages())
    assert (tmp_path / "docs/reference/watches.schema.json").is_file()


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('<a href="sub/there.html#anchor">', None),
        ('<a href="sub/">', None),
        ('<a href="https://elsewhere.example/">', None),
        ('<img src="picture.png">', "loads picture.png, which doesn't exist"),
        ('<a href="gone.html">', "links to gone.html, which doesn't exist"),
        ('<a href="sub/there.html#gone">', "links to sub/there.html#gone, which doesn't exist"),
        ('<a href="#gone">', "links to #gone, which doesn't exist"),
        (
            '<script src="https://elsewhere.example/a.js"></script>',
            "loads https://elsewhere.example/a.js from another host; add the file to the site",
        ),
        (
            '<link rel="stylesheet" href="//elsewhere.example/a.css">',
            "loads //elsewhere.example/a.css from another host; add the file to the site",
        ),
    ],
)
def test_invalid_links_of_built_pages_are_reported(tmp_path: Path, body: str, problem: str | None) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/there.html").write_text('<h1 id="anchor">There</h1>')
    (tmp_path / "sub/index.html").write_text("<h1>Index</h1>")
    (tmp_path / "page.html").write_text(body)
    assert problems(tmp_path) == ([f"page.html: {problem}"] if problem else [])
