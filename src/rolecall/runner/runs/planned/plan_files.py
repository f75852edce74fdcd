"""The files of a planned run: a folder that lies over the file system of this machine. Nothing here imports Ansible.

What tasks write lands in the folder, under the same path. What they read is looked for there first. A file of the
machine is copied before it is changed, and what is removed stays where it is and is hidden from the run. The state is
on disk, because every task may have a process of its own. Paths are mapped outwards again before anybody sees them.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MOST_COPIED_BYTES = 64 * 1024 * 1024
"""How much of a directory is copied into the folder, so that a task can work on all of it."""

_ABSOLUTE = re.compile(r"""(?<![\w./~-])/[^\s"'`;:|&<>()=,]+""")


class TooLargeError(Exception):
    """A directory is too large to be copied."""


class PlanFiles:
    """Maps paths of this machine to those of the plan's folder, which it may create."""

    def __init__(self, folder: Path) -> None:
        self._root = str(folder / "files")
        self._removed = folder / "removed.jsonl"

    def is_inside(self, path: str) -> bool:
        """Whether a path leads into the folder already."""
        return path == self._root or path.startswith(f"{self._root}/")

    def inside(self, path: str) -> str:
        """Return the place of an absolute path in the folder, whether or not there is anything."""
        return path if self.is_inside(path) else self._root + os.path.normpath(path)

    def outward(self, value: Any) -> Any:
        """Return a value of a result with the paths that a real run would show."""
        if isinstance(value, str):
            return value.replace(self._root, "")
        if isinstance(value, dict):
            return {key: self.outward(inner) for key, inner in value.items()}
        return [self.outward(inner) for inner in value] if isinstance(value, list) else value

    def inward(self, value: Any) -> Any:
        """Return an argument of a program with the paths of files that the run has written, wherever they occur."""
        if isinstance(value, str):
            return _ABSOLUTE.sub(lambda found: self._inward(found.group()), value)
        if isinstance(value, dict):
            return {key: self.inward(inner) for key, inner in value.items()}
        return [self.inward(inner) for inner in value] if isinstance(value, list) else value

    def readable(self, path: str) -> str:
        """Return where to read what is at an absolute path; of a directory that is in both places, the real one."""
        own = self.inside(path)
        if os.path.isdir(own) and os.path.isdir(path) and not self._is_hidden(path):  # noqa: PTH112 - plain text
            return path
        return own if os.path.lexists(own) or self._is_hidden(path) else path

    def writable(self, path: str) -> str:
        """Return where to write instead, with a copy of the file and the directories around it if they exist."""
        own = self.inside(path)
        if own == path or os.path.lexists(own):
            return own
        self._add_directory(os.path.dirname(os.path.normpath(path)))  # noqa: PTH120 - plain text
        if os.path.exists(path) and not self._is_hidden(path):  # noqa: PTH110 - plain text
            if os.path.isdir(path):  # noqa: PTH112 - plain text
                self._add_directory(path)
            else:
                shutil.copy2(path, own)
        return own

    def tree(self, path: str) -> str:
        """Return where all of a directory can be read: a copy if the run has changed anything. Raises TooLargeError."""
        own = self.inside(path)
        if own == path or not os.path.isdir(path) or self._is_hidden(path):  # noqa: PTH112 - plain text
            return self.readable(path)
        if not os.path.isdir(own) and not self._removed.exists():  # noqa: PTH112 - plain text
            return path
        rest = MOST_COPIED_BYTES
        for folder, _, names in os.walk(path):
            if self._is_hidden(folder):
                continue
            self._add_directory(folder)
            for found in (os.path.join(folder, name) for name in names):  # noqa: PTH118 - plain text
                rest -= os.path.getsize(found) if os.path.isfile(found) else 0  # noqa: PTH113, PTH202 - plain text
                if rest < 0:
                    raise TooLargeError(f"{path} is larger than {MOST_COPIED_BYTES >> 20} MiB")
                if os.path.isfile(found):  # noqa: PTH113 - neither a socket nor a broken link
                    self.writable(found)
        return self.inside(path)

    def hide(self, path: str) -> None:
        """Hide what is really at a path, because the run has removed it."""
        if not self.is_inside(path) and os.path.lexists(path):
            with self._removed.open("a", encoding="utf-8") as file:
                file.write(json.dumps(os.path.normpath(path)) + "\n")

    def _inward(self, path: str) -> str:
        folder = os.path.dirname(path)  # noqa: PTH120 - plain text
        if os.path.isdir(self.inside(folder)) and not os.path.isdir(folder):  # noqa: PTH112 - plain text
            return self.inside(path)
        own = self.inside(path)
        return self.readable(path) if os.path.lexists(own) else path

    def _is_hidden(self, path: str) -> bool:
        try:
            hidden = {json.loads(line) for line in self._removed.read_text(encoding="utf-8").splitlines()}
        except FileNotFoundError:
            return False
        return any(each in hidden for each in _with_parents(os.path.normpath(path)))

    def _add_directory(self, path: str) -> None:
        """Create a directory in the folder if the run can see one at this path."""
        for each in reversed(list(_with_parents(os.path.normpath(path)))):
            own = self.inside(each)
            if not os.path.isdir(own):  # noqa: PTH112 - plain text
                if not os.path.isdir(each) or self._is_hidden(each):  # noqa: PTH112 - plain text
                    return
                os.makedirs(own)  # noqa: PTH103 - plain text
                shutil.copymode(each, own)
                os.chmod(own, os.stat(own).st_mode | 0o700)  # noqa: PTH101, PTH116 - ours, whoever owns the real one


def _with_parents(path: str) -> Iterator[str]:
    while path != "/":
        yield path
        path = os.path.dirname(path)  # noqa: PTH120 - plain text
    yield path
