"""The commit of a release: made in a clone of the last commit, with the new version and changelog.

The working tree doesn't change: the new commit becomes a separate branch of the repository.
"""

import re
import subprocess
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Final

from tools.release.changelog import check_changes, fragments_in, section_of, with_section
from tools.release.errors import ReleaseError

VERSION: Final = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(rc[1-9]\d*)?")
"""Versions that pip, OLM, and image tags accept, except that OLM rejects release candidates."""
_IN_PROJECT: Final = re.compile(r'^version = "[^"]+"$', re.MULTILINE)
_IN_LOCK: Final = re.compile(r'(?<=^name = "rolecall"\nversion = ")[^"]+', re.MULTILINE)


def run(*command: str, cwd: Path) -> str:
    """Run a program and return its output. Raises ReleaseError with its error output if it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise ReleaseError(f"{' '.join(command)} ended with {done.returncode}:\n{said}")
    return done.stdout


def branch_of(version: str) -> str:
    """Return the name of the branch with the commit of a release."""
    return f"release-{version}"


def check_release(root: Path, version: str, target: Path) -> None:
    """Raise ReleaseError unless this version can be released from the repository into a new directory."""
    if not VERSION.fullmatch(version):
        raise ReleaseError(f"VERSION={version or '(not set)'}: expected a version such as 1.2.3 or 1.2.3rc1")
    changed = run("git", "status", "--porcelain", cwd=root).splitlines()
    if changed:
        raise ReleaseError(f"{len(changed)} files are not committed ({changed[0].strip()}, …); commit or stash them")
    taken = run("git", "tag", "--list", f"v{version}", cwd=root) + run(
        "git", "branch", "--list", branch_of(version), cwd=root
    )
    if taken:
        raise ReleaseError(f"{taken.split()[-1]} exists already; choose another version, or delete it")
    if target.exists():
        raise ReleaseError(f"{target} exists already; remove it first")
    check_changes((root / "CHANGELOG.md").read_text(), fragments_in(root / "changelog.d"))


def commit_release(root: Path, clone: Path, version: str, day: date) -> str:
    """Clone the last commit, commit the release there, and return its section of the changelog."""
    run("git", "clone", "--quiet", str(root), str(clone), cwd=root)
    for key in ("user.name", "user.email"):  # may be set for this repository only
        run("git", "config", key, run("git", "config", key, cwd=root).strip(), cwd=clone)
    section = _apply(clone, version, day)
    run("git", "commit", "--quiet", "--all", "--message", f"Release {version}", cwd=clone)
    return section


def keep_branch(root: Path, clone: Path, version: str) -> None:
    """Fetch the commit of the release from the clone into a branch of the repository."""
    run("git", "fetch", "--quiet", str(clone), f"HEAD:refs/heads/{branch_of(version)}", cwd=root)


def _apply(clone: Path, version: str, day: date) -> str:
    fragments = fragments_in(clone / "changelog.d")
    path = clone / "CHANGELOG.md"
    changelog = path.read_text()
    section = section_of(changelog, fragments, version, day)
    path.write_text(with_section(changelog, section))
    for fragment in fragments:
        fragment.unlink()
    _replace_once(clone / "pyproject.toml", _IN_PROJECT, f'version = "{version}"')
    _replace_once(clone / "uv.lock", _IN_LOCK, version)
    return section


def _replace_once(path: Path, pattern: re.Pattern[str], text: str) -> None:
    changed, count = pattern.subn(text, path.read_text(), count=1)
    if not count:
        raise ReleaseError(f"{path.name} doesn't contain the version: no match for {pattern.pattern}")
    path.write_text(changed)


def commands_to_publish(version: str, names: Sequence[str]) -> list[str]:
    """Return the remaining commands, which publish the release."""
    wheel = next(name for name in names if name.endswith(".whl"))
    return [
        f"git merge {branch_of(version)}",
        f"git tag v{version}",
        f"git push origin v{version}",
        f"twine upload {wheel}",
    ]
