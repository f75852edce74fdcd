"""The check of the built pages: every link is valid, and no page loads a file from another host."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADING_RELATIONS = {"stylesheet", "preconnect", "preload", "prefetch", "icon", "modulepreload"}
_OTHER_SCHEMES = {"http", "https", "mailto", "data", "javascript"}


@dataclass(slots=True)
class Html:
    """The links of a page, the files that it loads, and its anchors."""

    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)


def problems(directory: Path) -> list[str]:
    """Return the problems of a site's pages, one line each."""
    return [
        f"{page.relative_to(directory)}: {problem}"
        for page in sorted(directory.rglob("*.html"))
        for problem in _of(page)
    ]


def _of(page: Path) -> Iterator[str]:
    html = _read(page)
    for address in html.loaded:
        if urlsplit(address).netloc:
            yield f"loads {address} from another host; add the file to the site"
        elif not _is_valid(page, address):
            yield f"loads {address}, which doesn't exist"
    # The page 404.html is served at any address, so its links start at the root of the host.
    if page.name != "404.html":
        yield from (f"links to {link}, which doesn't exist" for link in html.links if not _is_valid(page, link))


def _is_valid(page: Path, address: str) -> bool:
    parts = urlsplit(address)
    if parts.scheme in _OTHER_SCHEMES or page.name == "404.html":
        return True
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    target = target / "index.html" if target.is_dir() else target
    if not target.is_file():
        return False
    return not parts.fragment or target.suffix != ".html" or unquote(parts.fragment) in _read(target).anchors


@cache
def _read(page: Path) -> Html:
    reader = _Reader()
    reader.feed(page.read_text())
    return reader.html


class _Reader(HTMLParser):
    """Collects links, loaded files and anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.html = Html()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the attributes of a tag."""
        given = {name: value for name, value in attrs if value}
        self.html.anchors |= {given[name] for name in ("id", "name") if name in given}
        if "src" in given:
            self.html.loaded.append(given["src"])
        if "href" in given and tag == "a":
            self.html.links.append(given["href"])
        if "href" in given and tag == "link" and _LOADING_RELATIONS & set(given.get("rel", "").split()):
            self.html.loaded.append(given["href"])
