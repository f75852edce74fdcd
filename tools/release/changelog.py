"""The section of a release in CHANGELOG.md, made of the fragments in changelog.d.

Sections are by type, in the order of changelog.d/README.md, and within a type by issue.
"""

import re
from datetime import date
from pathlib import Path
from typing import Final

from tools.release.errors import ReleaseError

HEADINGS: Final = {"added": "Added", "changed": "Changed", "fixed": "Fixed", "removed": "Removed"}
_NOT_YET: Final = "There is no release yet.\n"
_FIRST_SECTION: Final = re.compile(r"^## ", re.MULTILINE)


def fragments_in(directory: Path) -> list[Path]:
    """Return the fragments. Raises ReleaseError if there is none: nothing that users notice has changed."""
    found = sorted(path for path in directory.glob("*.md") if path.name != "README.md")
    if not found:
        raise ReleaseError(f"{directory} has no fragments, so there is nothing to release")
    return found


def section_of(fragments: list[Path], version: str, day: date) -> str:
    """Return the section: a heading for the release, one for each type, and an item for each fragment."""
    lines = [f"## {version} ({day.isoformat()})", ""]
    for kind, heading in HEADINGS.items():
        items = sorted((path for path in fragments if path.name.split(".")[-2] == kind), key=_issue_of)
        if items:
            lines += [f"### {heading}", "", *(_item(path.read_text()) for path in items), ""]
    return "\n".join(lines)


def with_section(changelog: str, section: str) -> str:
    """Return the text of CHANGELOG.md with a section before all others."""
    changelog = changelog.replace(_NOT_YET, "")
    found = _FIRST_SECTION.search(changelog)
    place = found.start() if found else len(changelog)
    return f"{changelog[:place].rstrip()}\n\n{section.rstrip()}\n\n{changelog[place:]}".rstrip() + "\n"


def _issue_of(path: Path) -> tuple[int, str]:
    number = re.match(r"\d+", path.name)
    return int(number[0]) if number else 0, path.name


def _item(text: str) -> str:
    """Return a fragment as an item of a list, its lines indented, its links relative to CHANGELOG.md."""
    lines = text.strip().replace("](../", "](").splitlines()
    return "\n".join([f"- {lines[0]}", *(f"  {line}" if line else "" for line in lines[1:])])
