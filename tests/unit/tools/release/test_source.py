"""The commit of a release, in a small repository: rejected releases, and an unchanged working tree."""

import subprocess
from datetime import date
from pathlib import Path

import pytest
from tools.release.errors import ReleaseError
from tools.release.source import check_release, commit_release, keep_branch, run

FILES = {
    "pyproject.toml": '[project]\nname = "rolecall"\nversion = "0.1.0"\n',
    "uv.lock": '[[package]]\nname = "other"\nversion = "0.1.0"\n\n[[package]]\nname = "rolecall"\nversion = "0.1.0"\n',
    "CHANGELOG.md": "# Changelog\n\n## 0.9.0 (2026-11-01)\n\n- Something old.\n",
    "changelog.d/README.md": "about fragments\n",
    "changelog.d/1.added.md": "Something new.\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a repository with one commit."""
    root = tmp_path / "root"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git = ("git", "-c", "init.defaultBranch=main")
    for command in (
        (*git, "init", "--quiet"),
        ("git", "config", "user.name", "A"),
        ("git", "config", "user.email", "a@b"),
    ):
        subprocess.run(command, cwd=root, check=True)
    run("git", "add", "--all", cwd=root)
    run("git", "commit", "--quiet", "--message", "First", cwd=root)
    return root


def test_the_release_is_a_branch_and_the_working_tree_stays_as_it_is(root: Path, tmp_path: Path) -> None:
    check_release(root, "1.0.0", tmp_path / "dist")
    section = commit_release(root, tmp_path / "clone", "1.0.0", date(2026, 12, 1))
    assert section.startswith("## 1.0.0 (2026-12-01)")
    assert run("git", "branch", "--list", "release-1.0.0", cwd=root) == "", "what fails later leaves nothing behind"
    keep_branch(root, tmp_path / "clone", "1.0.0")
    assert run("git", "status", "--porcelain", cwd=root) == ""
    assert {name: (root / name).read_text() for name in FILES} == FILES

    def released(name: str) -> str:
        return run("git", "show", f"release-1.0.0:{name}", cwd=root)

    assert 'version = "1.0.0"' in released("pyproject.toml")
    assert released("uv.lock").count('"0.1.0"') == 1
    assert 'name = "rolecall"\nversion = "1.0.0"' in released("uv.lock")
    assert "- Something new." in released("CHANGELOG.md")
    assert run("git", "ls-tree", "--name-only", "release-1.0.0", "changelog.d/", cwd=root) == "changelog.d/README.md\n"
    with pytest.raises(ReleaseError, match=r"release-1\.0\.0 exists already"):
        check_release(root, "1.0.0", tmp_path / "dist")


@pytest.mark.parametrize("version", ["", "1", "1.0", "v1.0.0", "1.0.0-rc1", "01.0.0", "1.0.0 "])
def test_a_version_that_not_everybody_understands_is_refused(version: str, root: Path, tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="expected a version such as"):
        check_release(root, version, tmp_path / "dist")


def test_uncommitted_change_is_not_released(root: Path, tmp_path: Path) -> None:
    (root / "new.txt").write_text("new\n")
    with pytest.raises(ReleaseError, match=r"1 files are not committed \(\?\? new.txt"):
        check_release(root, "1.0.0", tmp_path / "dist")


def test_a_directory_that_exists_is_not_overwritten(root: Path, tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="exists already; remove it first"):
        check_release(root, "1.0.0", tmp_path)


def test_a_tag_is_not_released_again(root: Path, tmp_path: Path) -> None:
    run("git", "tag", "v1.0.0", cwd=root)
    with pytest.raises(ReleaseError, match=r"v1\.0\.0 exists already"):
        check_release(root, "1.0.0", tmp_path / "dist")


def test_a_file_without_the_version_is_named(root: Path, tmp_path: Path) -> None:
    (root / "pyproject.toml").write_text('[project]\nname = "rolecall"\ndynamic = ["version"]\n')
    run("git", "commit", "--quiet", "--all", "--message", "Second", cwd=root)
    with pytest.raises(ReleaseError, match=r"pyproject\.toml doesn't contain the version"):
        commit_release(root, tmp_path / "clone", "1.0.0", date(2026, 12, 1))
