"""The Markdown pages of the repository, and their links, paths, code blocks, and commands."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).parents[3]
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
_PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^[ ]*```(\w*)[^\n]*\n(.*?)^[ ]*```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@cache
def pages() -> tuple[Path, ...]:
    """Return every page that we wrote."""
    top = list(PROJECT.glob("*.md"))
    below = [
        page
        for directory in ("docs", "roles", "src", "bench", "changelog.d")
        for page in (PROJECT / directory).rglob("*.md")
    ]
    return tuple(sorted(top + below))


def wrong(look: Callable[[Path], object]) -> dict[str, object]:
    """Return the problems that a function finds, by page. A separate test for each page would take longer."""
    return {name_of(page): found for page in pages() if (found := look(page))}


def name_of(page: Path) -> str:
    """Return a page's path in the repository."""
    return str(page.relative_to(PROJECT))


def blocks(text: str, language: str) -> list[str]:
    """Return the code blocks in a language."""
    return [body for found, body in _FENCE.findall(text) if found == language]


def titles(text: str) -> set[str]:
    """Return the names of the files whose content the code blocks show."""
    return set(re.findall(r'^```\w+ title="([^"]+)"$', text, re.MULTILINE))


def prose(text: str) -> str:
    """Return the text without its code blocks."""
    return _FENCE.sub("", text)


def links(text: str) -> list[str]:
    """Return the targets of the text's links."""
    return _LINK.findall(prose(text))


def pictures(text: str) -> list[tuple[str, str]]:
    """Return the images of a text: their alternative text and their path."""
    return _PICTURE.findall(prose(text))


def code_words(text: str) -> Iterator[str]:
    """Yield every word in a code span."""
    for span in _CODE.findall(prose(text)):
        yield from span.split()


def commands(text: str) -> Iterator[str]:
    """Yield the commands for readers: lines after a prompt in blocks, and code spans that call our programs."""
    for block in blocks(text, "console"):
        yield from re.findall(r"^\$ (.+)$", block, re.MULTILINE)
    yield from (span for span in _CODE.findall(prose(text)) if span.startswith(("make ", "rolecall ")))


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings, as on GitHub."""
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(prose(text)))
    return {heading.replace(" ", "-") for heading in plain}
