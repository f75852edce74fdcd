"""Brings a project to the scaffold of this version: a three-way merge of each file.

The base of the merge is the file as it was generated, from ``.scaffold.jsonl``. A file that only the scaffold changed
is replaced, and one that both changed is merged line by line by ``git merge-file``, which marks conflicts. No line of
the user is lost: deleted files stay deleted, and changed files stay if the scaffold no longer has them.

``plan_update`` only reads. ``write_update`` replaces each file atomically, and writes the new originals last. After an
update, the same update changes nothing.
"""

import difflib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path

import yaml

from rolecall.runner.record.files import SUFFIX
from rolecall.workbench.project.scaffold import (
    ORIGINALS_FILE,
    PROJECT_FILE,
    ScaffoldError,
    originals_text,
    read_originals,
    scaffold_files,
)

_MOST_CONFLICTS = 127
"""The largest exit code of ``git merge-file`` that is a number of conflicts."""


class Action(StrEnum):
    """The result of an update for one file."""

    CREATED = "created"
    REPLACED = "replaced"
    MERGED = "merged"
    CONFLICT = "conflict"
    REMOVED = "removed"
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class FileUpdate:
    """A file to update: its content before and after (None: no file), and the reason for keeping it."""

    path: str
    action: Action
    before: bytes | None
    after: bytes | None
    reason: str = ""

    def difference(self) -> str:
        """Return the changed lines in the unified format, empty if the file stays as it is."""
        before, after = ((text or b"").decode(errors="replace").splitlines(keepends=True) for text in self._both)
        lines = difflib.unified_diff(before, after, f"a/{self.path}", f"b/{self.path}")
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)

    @property
    def _both(self) -> tuple[bytes | None, bytes | None]:
        return self.before, self.after


@dataclass(frozen=True, slots=True)
class Update:
    """The update of a project: the versions, the files that differ, and the new originals."""

    directory: Path
    before: str
    after: str
    files: tuple[FileUpdate, ...]
    originals: Mapping[str, str]


def plan_update(directory: Path) -> Update:
    """Return the update of the project in the directory. Raise ScaffoldError if it can't be updated."""
    new = scaffold_files(directory)
    recorded = str(yaml.safe_load((directory / PROJECT_FILE).read_text(encoding="utf-8")).get("scaffold", "unknown"))
    installed = version("rolecall")
    if _numbers(recorded) > _numbers(installed):
        raise ScaffoldError(
            f"{directory / PROJECT_FILE}: the files are those of rolecall {recorded}, but {installed} is installed; "
            "install the newer version"
        )
    base = read_originals(directory)
    try:
        files = tuple(merged_files(lambda path: _content(directory / path), base, new, f"rolecall {installed}"))
    except OSError as error:
        raise ScaffoldError(f"{error}. Nothing was written.") from error
    return Update(directory, recorded, installed, files, new)


def merged_files(
    read: Callable[[str], bytes | None], base: Mapping[str, str], new: Mapping[str, str], label: str
) -> Iterator[FileUpdate]:
    """Yield the update of each file that the scaffold changed and whose content isn't the new one yet.

    ``read`` returns the user's file, None if there is none. ``label`` names the new content in conflicts.
    """
    for path in sorted(base.keys() | new.keys()):
        original, wanted = _encoded(base.get(path)), _encoded(new.get(path))
        if original == wanted:
            continue
        mine = read(path)
        if mine == wanted:
            continue
        if mine is None:
            if original is None:
                yield FileUpdate(path, Action.CREATED, None, wanted)
            else:
                yield FileUpdate(path, Action.KEPT, None, None, "you deleted it")
        elif mine == original:
            action = Action.REMOVED if wanted is None else Action.REPLACED
            yield FileUpdate(path, action, mine, wanted)
        elif wanted is None:
            yield FileUpdate(path, Action.KEPT, mine, mine, "you changed it, and the scaffold no longer has it")
        elif path.endswith(SUFFIX):
            yield FileUpdate(path, Action.KEPT, mine, mine, "it is your record")
        else:
            yield _merged(path, mine, original or b"", wanted, label)


def write_update(update: Update) -> None:
    """Write the files of an update. Raise OSError."""
    for each in update.files:
        path = update.directory / each.path
        if each.action is Action.REMOVED:
            path.unlink()
            _remove_empty(path.parent, update.directory)
        elif each.after is not None and each.after != each.before:
            _replace(path, each.after)
    originals = originals_text(update.originals).encode()
    if _content(update.directory / ORIGINALS_FILE) != originals:
        _replace(update.directory / ORIGINALS_FILE, originals)


def check_committed(directory: Path) -> None:
    """Raise ScaffoldError unless Git has every file of the project, so that the user can compare and undo an update."""
    command = ["git", "-C", str(directory), "status", "--porcelain", "--", "."]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ScaffoldError("git: not found; install Git, which merges the files") from None
    if done.returncode:
        raise ScaffoldError(
            f"{directory}: Git doesn't know its files, so you couldn't undo the update: commit the project, or use "
            f"--force ({done.stderr.strip()})"
        )
    if changed := [line[3:] for line in done.stdout.splitlines()]:
        listed = "\n  ".join(changed)
        raise ScaffoldError(
            f"{directory}: these files have changes that aren't committed:\n  {listed}\n"
            "Commit or stash them, so that you can undo the update, or use --force. Nothing was written."
        )


def _merged(path: str, mine: bytes, original: bytes, wanted: bytes, label: str) -> FileUpdate:
    with tempfile.TemporaryDirectory() as directory:
        names = [Path(directory) / name for name in ("mine", "original", "wanted")]
        for name, content in zip(names, (mine, original, wanted), strict=True):
            name.write_bytes(content)
        labels = [part for text in ("yours", "original", label) for part in ("-L", text)]
        try:
            done = subprocess.run(["git", "merge-file", "-p", *labels, *names], capture_output=True, check=False)
        except FileNotFoundError:
            raise ScaffoldError("git: not found; install Git, which merges the files") from None
    if done.returncode == 0:
        return FileUpdate(path, Action.MERGED, mine, done.stdout)
    if done.returncode <= _MOST_CONFLICTS:
        return FileUpdate(path, Action.CONFLICT, mine, done.stdout)
    return FileUpdate(path, Action.KEPT, mine, mine, "it is no text; compare it with that of a new project")


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _replace(path: Path, content: bytes) -> None:
    """Write a file atomically, with the mode of the one before."""
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.rolecall-update")
    temporary.write_bytes(content)
    if target.exists():
        shutil.copymode(target, temporary)
    temporary.replace(target)


def _remove_empty(directory: Path, top: Path) -> None:
    while directory != top and not any(directory.iterdir()):
        directory.rmdir()
        directory = directory.parent


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _numbers(text: str) -> list[int]:
    """Return the numbers of a version, for comparisons; a version without numbers is the oldest."""
    return [int(number) for number in re.findall(r"\d+", text)[:3]]
