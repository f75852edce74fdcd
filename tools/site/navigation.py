"""The navigation of the site: the groups of docs/index.md, and around them the pages that lie outside of docs."""

import re
from collections.abc import Sequence
from pathlib import Path
from posixpath import normpath
from typing import TypeAlias

from tools.site.pages import ROOT

Entry: TypeAlias = "dict[str, str | list[dict[str, str]]]"
_GROUP = re.compile(r"^## (.+)\n((?:(?!^## ).*\n?)*)", re.MULTILINE)
_LISTED = re.compile(r"^(?:- |\d+\. )\[([^\]]+)\]\(([^)#]+\.md)\)", re.MULTILINE)
_FIRST = {"Start": "README.md", "All documentation": "docs/index.md"}
_PROJECT = {
    "Contributing": "CONTRIBUTING.md",
    "Benchmark": "bench/README.md",
    "Security policy": "SECURITY.md",
    "Changelog": "CHANGELOG.md",
    "Changelog fragments": "changelog.d/README.md",
}


def navigation(pages: Sequence[str], root: Path = ROOT) -> list[Entry]:
    """Return the entries of the navigation for these pages: a title with a page, or with the entries of a group."""
    first: list[Entry] = [{title: page} for title, page in _FIRST.items()]
    groups: list[Entry] = [{name: _listed(text)} for name, text in _GROUP.findall((root / "docs/index.md").read_text())]
    roles: Entry = {"Roles of this repository": [{page.split("/")[1]: page} for page in pages if page[:6] == "roles/"]}
    project: Entry = {"Project": [{title: page} for title, page in _PROJECT.items()]}
    return [*first, *groups, roles, project]


def listed_pages(entries: Sequence[Entry]) -> list[str]:
    """Return the pages that the navigation leads to, each as often as it is there."""
    found: list[str] = []
    for target in (target for entry in entries for target in entry.values()):
        found += [target] if isinstance(target, str) else [page for entry in target for page in entry.values()]
    return found


def _listed(text: str) -> list[dict[str, str]]:
    return [{title: normpath(f"docs/{path}")} for title, path in _LISTED.findall(text)]
