"""The commit of a release: a clone of the last commit, in which version and changelog are changed and committed.

The working tree stays as it is: the new commit comes into the repository as a branch of its own.
"""

import re
import subprocess
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Final

from tools.release.changelog import fragments_in, section_of, with_section
from tools.release.errors import ReleaseError

VERSION: Final = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(rc[1-9]\d*)?")
"""What pip, semantic versions of OLM and image tags all understand; release candidates aside."""
_IN_PROJECT: Final = re.compile(r'^version = "[^"]+"$', re.MULTILINE)
_IN_LOCK: Final = re.compile(r'(?<=^name = "rolecall"\nversion = ")[^"]+', re.MULTILINE)


def run(*command: str, cwd: Path) -> str:
    """Run a program and return what it printed. Raises ReleaseError with what it said if it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise ReleaseError(f"{' '.join(command)} ended with {done.returncode}:\n{said}")
    return done.stdout


def branch_of(version: str) -> str:
    """Return the name of the branch with the commit of a release."""
    return f"release-{version}"


def check_release(root: Path, version: str, target: Path) -> None:
    """Raise ReleaseError unless this version can be released from this repository as it is, into a new directory."""
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
    fragments_in(root / "changelog.d")


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
    section = section_of(fragments, version, day)
    changelog = clone / "CHANGELOG.md"
    changelog.write_text(with_section(changelog.read_text(), section))
    for path in fragments:
        path.unlink()
    _replace_once(clone / "pyproject.toml", _IN_PROJECT, f'version = "{version}"')
    _replace_once(clone / "uv.lock", _IN_LOCK, version)
    return section


def _replace_once(path: Path, pattern: re.Pattern[str], text: str) -> None:
    changed, count = pattern.subn(text, path.read_text(), count=1)
    if not count:
        raise ReleaseError(f"{path.name} does not say the version where it is looked for: {pattern.pattern}")
    path.write_text(changed)


def commands_to_publish(version: str, names: Sequence[str]) -> list[str]:
    """Return what is left to do, as commands: nothing of it was done."""
    wheel = next(name for name in names if name.endswith(".whl"))
    return [
        f"git merge {branch_of(version)}",
        f"git tag v{version}",
        f"git push origin v{version}",
        f"twine upload {wheel}",
    ]
