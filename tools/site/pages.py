"""The pages of the site, copied from the repository.

The site has the directories of the repository, so relative links work on the site, on a code host, and in an editor.
A link to a file that isn't a page, such as a module, becomes its text.
"""

import posixpath
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PAGES = (
    "*.md",
    "docs/**/*.md",
    "bench/README.md",
    "changelog.d/README.md",
    "roles/*/README.md",
    "src/rolecall/collections/ansible_collections/rolecall/*/README.md",
)
_FILES = ("docs/**/*.json", "docs/**/*.png", "docs/**/*.svg")
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
_FENCES = re.compile(r"(^[ ]*```.*?^[ ]*```$)", re.MULTILINE | re.DOTALL)


def pages(root: Path = ROOT) -> list[str]:
    """Return the paths of the site's pages in the repository."""
    return sorted(_found(root, _PAGES))


def stage(directory: Path, root: Path = ROOT) -> None:
    """Write the pages and the files that they show into an empty directory."""
    known = {*_found(root, _PAGES), *_found(root, _FILES)}
    for name in known:
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".md"):
            target.write_text(without_links_to_others((root / name).read_text(), name, known))
        else:
            shutil.copyfile(root / name, target)


def without_links_to_others(text: str, page: str, known: set[str]) -> str:
    """Return a page's text with plain text instead of links to files outside ``known``."""

    def replaced(link: re.Match[str]) -> str:
        path = link[2].partition("#")[0]
        is_known = (
            not path or "://" in path or posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) in known
        )
        return link[0] if is_known else link[1]

    parts = _FENCES.split(text)
    return "".join(part if part.lstrip().startswith("```") else _LINK.sub(replaced, part) for part in parts)


def _found(root: Path, patterns: tuple[str, ...]) -> Iterator[str]:
    for pattern in patterns:
        yield from (str(path.relative_to(root)) for path in root.glob(pattern))
