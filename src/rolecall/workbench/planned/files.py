"""The files of a planned run: an overlay directory on the file system of this machine. Nothing here imports Ansible.

Tasks write into the plan's directory, under the same path, and read from there first. A file of the machine is copied
before it is changed, and a removed file remains and is hidden from the run. The state is on disk, because every task
may have its own process. Results show the original paths.

``Redirection`` maps the arguments of modules that are paths into the directory.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rolecall.kube.json_values import with_texts
from rolecall.workbench.planned.actions import FILE_MODULES, PathArguments

MAX_COPIED_BYTES = 64 * 1024 * 1024
_ABSOLUTE = re.compile(r"""(?<![\w./~-])/[^\s"'`;:|&<>()=,]+""")
_TEMPORARY = "/tmp"  # noqa: S108 - the default of the module tempfile

_PATH = ("path", "dest", "destfile", "name")
KUBERNETES_PATHS = PathArguments(reads=("src", "values_files", "chart_ref", "ca_cert", "client_cert", "client_key"))
"""Arguments of Kubernetes modules that may be files that the run has written."""


class TooLargeError(Exception):
    """A directory is too large to be copied."""


class PlanFiles:
    """Maps paths of this machine into the plan's directory, where it may create files.

    Of a directory, at most ``max_copied_bytes`` are copied so that a task can work on all of it.
    """

    def __init__(self, directory: Path, max_copied_bytes: int = MAX_COPIED_BYTES) -> None:
        self._max_copied_bytes = max_copied_bytes
        self._root = str(directory / "files")
        self._removed = directory / "removed.jsonl"

    def is_inside(self, path: str) -> bool:
        """Whether a path is already in the plan's directory."""
        return path == self._root or path.startswith(f"{self._root}/")

    def inside(self, path: str) -> str:
        """Return the path in the plan's directory for an absolute path, whether or not it exists."""
        return path if self.is_inside(path) else self._root + os.path.normpath(path)

    def outward(self, value: Any) -> Any:
        """Return a value of a result with the paths of a real run."""
        return with_texts(value, lambda text: text.replace(self._root, ""))

    def inward(self, value: Any) -> Any:
        """Return an argument of a program in which each path of a file that the run has written is mapped."""
        return with_texts(value, lambda text: _ABSOLUTE.sub(lambda found: self._inward(found.group()), text))

    def readable(self, path: str) -> str:
        """Return the path from which to read an absolute path; the real one for a directory that exists in both."""
        own = self.inside(path)
        if os.path.isdir(own) and os.path.isdir(path) and not self._is_hidden(path):  # noqa: PTH112 - plain text
            return path
        return own if os.path.lexists(own) or self._is_hidden(path) else path

    def writable(self, path: str) -> str:
        """Return the path to write instead, after copying the file and its parent directories if they exist."""
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
        """Return the path of a complete directory: a copy if the run has changed anything. Raises TooLargeError."""
        own = self.inside(path)
        if own == path or not os.path.isdir(path) or self._is_hidden(path):  # noqa: PTH112 - plain text
            return self.readable(path)
        if not os.path.isdir(own) and not self._removed.exists():  # noqa: PTH112 - plain text
            return path
        rest = self._max_copied_bytes
        for directory, _, names in os.walk(path):
            if self._is_hidden(directory):
                continue
            self._add_directory(directory)
            for found in (os.path.join(directory, name) for name in names):  # noqa: PTH118 - plain text
                rest -= os.path.getsize(found) if os.path.isfile(found) else 0  # noqa: PTH113, PTH202 - plain text
                if rest < 0:
                    raise TooLargeError(f"{path} is larger than {self._max_copied_bytes >> 20} MiB")
                if os.path.isfile(found):  # noqa: PTH113 - neither a socket nor a broken link
                    self.writable(found)
        return self.inside(path)

    def hide(self, path: str) -> None:
        """Hide the real file or directory at a path, because the run has removed it."""
        if not self.is_inside(path) and os.path.lexists(path):
            with self._removed.open("a", encoding="utf-8") as file:
                file.write(json.dumps(os.path.normpath(path)) + "\n")

    def _inward(self, path: str) -> str:
        parent, own = os.path.dirname(path), self.inside(path)  # noqa: PTH120 - plain text
        if os.path.isdir(self.inside(parent)) and not os.path.isdir(parent):  # noqa: PTH112 - plain text
            return own
        return self.readable(path) if os.path.lexists(own) else path

    def _is_hidden(self, path: str) -> bool:
        try:
            hidden = {json.loads(line) for line in self._removed.read_text(encoding="utf-8").splitlines()}
        except FileNotFoundError:
            return False
        return any(each in hidden for each in _with_parents(os.path.normpath(path)))

    def _add_directory(self, path: str) -> None:
        """Create a directory in the plan's directory if the run can see one at this path."""
        for each in reversed(list(_with_parents(os.path.normpath(path)))):
            own = self.inside(each)
            if not os.path.isdir(own):  # noqa: PTH112 - plain text
                if not os.path.isdir(each) or self._is_hidden(each):  # noqa: PTH112 - plain text
                    return
                os.makedirs(own)  # noqa: PTH103 - plain text
                shutil.copymode(each, own)
                os.chmod(own, os.stat(own).st_mode | 0o700)  # noqa: PTH101, PTH116 - the copy is the run's own


def _with_parents(path: str) -> Iterator[str]:
    while path != "/":
        yield path
        path = os.path.dirname(path)  # noqa: PTH120 - plain text
    yield path


@dataclass(frozen=True, slots=True)
class Redirection:
    """Maps the arguments of one task; a relative path to write starts at ``directory``."""

    files: PlanFiles
    directory: str

    def redirect(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with which a module works in the plan's directory. Raises TooLargeError, OSError."""
        paths = FILE_MODULES[name]
        changed = dict(arguments)
        if name == "ansible.builtin.tempfile":
            changed["path"] = changed.get("path") or _TEMPORARY
        if name == "ansible.builtin.file":
            target, path = changed.get("src"), _first_path(changed)
            if target and path and changed.get("state") in ("link", "hard"):
                # The link leads to a copy: whatever follows it must not change the real file.
                base = os.path.dirname(os.path.join(self.directory, path))  # noqa: PTH118, PTH120 - plain text
                changed["src"] = self.files.writable(os.path.normpath(os.path.join(base, str(target))))  # noqa: PTH118
            if changed.get("recurse"):
                self.map(paths, changed)  # a copy that exists in part is completed
                paths = PathArguments(trees=paths.writes)
        if name == "ansible.builtin.find":
            changed |= {key: changed[key].split(",") for key in paths.trees if isinstance(changed.get(key), str)}
        if name == "ansible.builtin.copy" and changed.get("remote_src"):
            paths = PathArguments(trees=("src",), writes=paths.writes)
        return self.map(paths, changed)

    def map(self, paths: PathArguments, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with these paths mapped. Raises TooLargeError, OSError."""
        changed = dict(arguments)
        for names, function, is_relative in (
            (paths.reads, self.files.readable, False),
            (paths.writes, self.files.writable, True),
            (paths.trees, self.files.tree, False),
        ):
            for name in names:
                if changed.get(name):
                    changed[name] = self._mapped(changed[name], function, is_relative=is_relative)
        return changed

    def removed_by(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the path that a task removes; an empty string if it removes nothing."""
        if name != "ansible.builtin.file" or arguments.get("state") != "absent":
            return ""
        return self._absolute(_first_path(arguments) or "/")

    def _mapped(self, value: Any, function: Callable[[str], str], *, is_relative: bool) -> Any:
        """Map a path, or a list of them; paths that a task searches in its role's directories stay relative."""
        if isinstance(value, list):
            return [self._mapped(each, function, is_relative=is_relative) for each in value]
        if not isinstance(value, str) or not (is_relative or value.startswith(("/", "~"))):
            return value
        slash = "/" if value.endswith("/") else ""
        return function(self._absolute(value)) + slash

    def _absolute(self, path: str) -> str:
        return os.path.normpath(os.path.join(self.directory, os.path.expanduser(path)))  # noqa: PTH111, PTH118


def _first_path(arguments: Mapping[str, Any]) -> str:
    return next((str(arguments[key]) for key in _PATH if arguments.get(key)), "")
