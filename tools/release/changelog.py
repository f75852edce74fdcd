"""The section of a release in CHANGELOG.md: text written there by hand, followed by the fragments in changelog.d.

The heading of a section written by hand ends with "(unreleased)". Fragments are grouped by type, in the order of
changelog.d/README.md, and sorted by issue within a type.
"""

import re
from datetime import date
from pathlib import Path
from typing import Final

from tools.release.errors import ReleaseError

HEADINGS: Final = {"added": "Added", "changed": "Changed", "fixed": "Fixed", "removed": "Removed"}
_FIRST_SECTION: Final = re.compile(r"^## ", re.MULTILINE)
_FRAGMENT: Final = re.compile(rf"\d+(\.[\w-]+)?\.({'|'.join(HEADINGS)})\.md")
_UNRELEASED: Final = re.compile(r"^## \S+ \(unreleased\)$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def fragments_in(directory: Path) -> list[Path]:
    """Return the fragments in a directory, sorted by name."""
    return sorted(path for path in directory.glob("*.md") if path.name != "README.md")


def check_changes(changelog: str, fragments: list[Path]) -> None:
    """Raise ReleaseError for a fragment with an invalid name, or if there is nothing to release."""
    if others := [path.name for path in fragments if not _FRAGMENT.fullmatch(path.name)]:
        raise ReleaseError(f"changelog.d: {', '.join(others)}: expected a name as in changelog.d/README.md")
    if not fragments and not _written_by_hand(changelog):
        raise ReleaseError("CHANGELOG.md has no unreleased section and changelog.d no fragments: nothing to release")


def section_of(changelog: str, fragments: list[Path], version: str, day: date) -> str:
    """Return the section: a heading, the unreleased section of CHANGELOG.md, and an item for each fragment by type."""
    lines = [f"## {version} ({day.isoformat()})", ""]
    if written := _written_by_hand(changelog):
        lines += [written, ""]
    for kind, heading in HEADINGS.items():
        items = sorted((path for path in fragments if path.name.split(".")[-2] == kind), key=_issue_of)
        if items:
            lines += [f"### {heading}", "", *(_item(path.read_text()) for path in items), ""]
    return "\n".join(lines)


def with_section(changelog: str, section: str) -> str:
    """Return the text of CHANGELOG.md with the section before all others, and without the unreleased section."""
    changelog = _UNRELEASED.sub("", changelog)
    found = _FIRST_SECTION.search(changelog)
    place = found.start() if found else len(changelog)
    return f"{changelog[:place].rstrip()}\n\n{section.rstrip()}\n\n{changelog[place:]}".rstrip() + "\n"


def _written_by_hand(changelog: str) -> str:
    found = _UNRELEASED.search(changelog)
    return found[1].strip() if found else ""


def _issue_of(path: Path) -> tuple[int, str]:
    number = re.match(r"\d+", path.name)
    return int(number[0]) if number else 0, path.name


def _item(text: str) -> str:
    """Return a fragment as a list item, with indented lines and links relative to CHANGELOG.md."""
    lines = text.strip().replace("](../", "](").splitlines()
    return "\n".join([f"- {lines[0]}", *(f"  {line}" if line else "" for line in lines[1:])])
