"""The section of a release, from fragments."""

import re
from datetime import date
from pathlib import Path

import pytest
from tools.release.changelog import check_changes, fragments_in, section_of, with_section
from tools.release.errors import ReleaseError

DAY = date(2026, 12, 1)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a directory with fragments of several types and issues."""
    fragments = {
        "README.md": "not a fragment\n",
        "12.late.fixed.md": "Late.\n",
        "2.early.fixed.md": "Early, see [the guide](../docs/guide.md).\nOn two lines.\n",
        "7.new.added.md": "New.\n\nWith a second paragraph.\n",
    }
    for name, text in fragments.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_fragments_are_sorted_by_type_and_issue_and_links_lead_from_the_changelog(directory: Path) -> None:
    assert section_of("# Changelog\n", fragments_in(directory), "1.2.0", DAY).splitlines() == [
        "## 1.2.0 (2026-12-01)",
        "",
        "### Added",
        "",
        "- New.",
        "",
        "  With a second paragraph.",
        "",
        "### Fixed",
        "",
        "- Early, see [the guide](docs/guide.md).",
        "  On two lines.",
        "- Late.",
    ]


def test_the_newest_section_comes_first_and_nothing_else_is_lost() -> None:
    first = with_section("# Changelog\n\nChanges by release.\n", "## 1.0.0\n\n- One.\n")
    assert first == "# Changelog\n\nChanges by release.\n\n## 1.0.0\n\n- One.\n"
    second = with_section(first, "## 1.1.0\n\n- Two.\n")
    assert second == "# Changelog\n\nChanges by release.\n\n## 1.1.0\n\n- Two.\n\n## 1.0.0\n\n- One.\n"


def test_unreleased_section_becomes_the_section_of_the_release(directory: Path) -> None:
    changelog = "# Changelog\n\n## 1.2.0 (unreleased)\n\nBy hand.\n\n### A subject\n\n- One.\n\n## 1.1.0\n\n- Old.\n"
    section = section_of(changelog, [directory / "12.late.fixed.md"], "1.2.0", DAY)
    assert section == "## 1.2.0 (2026-12-01)\n\nBy hand.\n\n### A subject\n\n- One.\n\n### Fixed\n\n- Late.\n"
    assert with_section(changelog, section) == f"# Changelog\n\n{section}\n## 1.1.0\n\n- Old.\n"


def test_release_needs_an_unreleased_section_or_fragments(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("not a fragment\n")
    (tmp_path / "1.added.md").write_text("New.\n")
    check_changes("# Changelog\n\n## 0.1.0 (unreleased)\n\nBy hand.\n", [])
    check_changes("# Changelog\n", fragments_in(tmp_path))
    (tmp_path / "1.added.md").unlink()
    with pytest.raises(ReleaseError, match="nothing to release"):
        check_changes("# Changelog\n\n## 0.1.0 (2026-12-01)\n\n- One.\n", fragments_in(tmp_path))


@pytest.mark.parametrize("name", ["12.bug.md", "new.added.md", "12.added.txt.md", "12.a.b.added.md"])
def test_fragment_with_an_unknown_type_or_without_an_issue_is_rejected(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("New.\n")
    with pytest.raises(ReleaseError, match=re.escape(f"changelog.d: {name}: expected a name")):
        check_changes("# Changelog\n", fragments_in(tmp_path))


def test_fragments_of_the_repository_are_releasable_and_short() -> None:
    fragments = fragments_in(Path(__file__).parents[4] / "changelog.d")
    check_changes("## 0.1.0 (unreleased)\n\nThe first release.\n", fragments)
    sentences = {path.name: len(re.findall(r"[.!](?=\s|$)", path.read_text())) for path in fragments}
    assert {name: count for name, count in sentences.items() if not 1 <= count <= 3} == {}
