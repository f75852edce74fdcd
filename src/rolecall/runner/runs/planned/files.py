"""The files of a planned run: a folder that lies over the file system of this machine. Nothing here imports Ansible.

What tasks write lands in the folder, under the same path. What they read is looked for there first. A file of the
machine is copied before it is changed, and what is removed stays where it is and is hidden from the run. The state is
on disk, because every task may have a process of its own. Paths are mapped outwards again before anybody sees them.

Which arguments of modules for files are paths, and how they are mapped to the plan's folder. No Ansible here.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
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


TEMPORARY = "/tmp"  # noqa: S108 - where the module tempfile puts what it creates


@dataclass(frozen=True, slots=True)
class PathArguments:
    """Names of arguments: files that are read, files that are written, and directories that are needed as a whole."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    trees: tuple[str, ...] = ()


_PATH = ("path", "dest", "destfile", "name")
_KEYS = ("privatekey_path", "ownca_privatekey_path", "ownca_path", "csr_path")
FILE_MODULES: Mapping[str, PathArguments] = {
    "ansible.builtin.assemble": PathArguments(trees=("src",), writes=("dest",)),
    "ansible.builtin.blockinfile": PathArguments(writes=_PATH),
    "ansible.builtin.copy": PathArguments(reads=("src",), writes=("dest",)),
    "ansible.builtin.fetch": PathArguments(reads=("src",), writes=("dest",)),
    "ansible.builtin.file": PathArguments(writes=_PATH),
    "ansible.builtin.find": PathArguments(trees=("paths", "path", "name")),
    "ansible.builtin.lineinfile": PathArguments(writes=_PATH),
    "ansible.builtin.replace": PathArguments(writes=_PATH),
    "ansible.builtin.slurp": PathArguments(reads=("src", "path")),
    "ansible.builtin.stat": PathArguments(reads=("path", "dest", "name")),
    "ansible.builtin.tempfile": PathArguments(writes=("path",)),
    "ansible.builtin.template": PathArguments(reads=("src",), writes=("dest",)),
    "ansible.builtin.wait_for": PathArguments(reads=("path",)),
    "community.general.ini_file": PathArguments(writes=("path", "dest")),
    "community.general.read_csv": PathArguments(reads=("path", "filename")),
    "community.general.xml": PathArguments(writes=("path", "dest", "file")),
    "community.crypto.openssl_csr": PathArguments(reads=_KEYS, writes=("path",)),
    "community.crypto.openssl_csr_info": PathArguments(reads=("path",)),
    "community.crypto.openssl_privatekey": PathArguments(writes=("path",)),
    "community.crypto.openssl_privatekey_info": PathArguments(reads=("path",)),
    "community.crypto.x509_certificate": PathArguments(reads=_KEYS, writes=("path",)),
    "community.crypto.x509_certificate_info": PathArguments(reads=("path",)),
}

KUBERNETES_PATHS = PathArguments(reads=("src", "values_files", "chart_ref", "ca_cert", "client_cert", "client_key"))
"""Arguments of Kubernetes modules that may be files which the run has written."""


@dataclass(frozen=True, slots=True)
class Redirection:
    """Maps the arguments of one task; a relative path begins at ``directory``, if the task reads it from there."""

    files: PlanFiles
    directory: str

    def redirect(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with which a module for files works in the folder. Raises TooLargeError, OSError."""
        paths = FILE_MODULES[name]
        changed = dict(arguments)
        if name == "ansible.builtin.tempfile":
            changed["path"] = changed.get("path") or TEMPORARY
        if name == "ansible.builtin.file":
            _redirect_link(self, changed)
            if changed.get("recurse"):
                self.map(paths, changed)  # a copy that has been begun is completed
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
        return self._absolute(next((str(arguments[key]) for key in _PATH if arguments.get(key)), "/"))

    def _mapped(self, value: Any, function: Callable[[str], str], *, is_relative: bool) -> Any:
        """Map a path, or a list of them; what a task searches in its role's folders stays relative."""
        if isinstance(value, list):
            return [self._mapped(each, function, is_relative=is_relative) for each in value]
        if not isinstance(value, str) or not (is_relative or value.startswith(("/", "~"))):
            return value
        slash = "/" if value.endswith("/") else ""
        return function(self._absolute(value)) + slash

    def _absolute(self, path: str) -> str:
        return os.path.normpath(os.path.join(self.directory, os.path.expanduser(path)))  # noqa: PTH111, PTH118


def _redirect_link(own: Redirection, arguments: dict[str, Any]) -> None:
    """Let a link lead to the copy in the folder: what follows it must not change the real file."""
    target = arguments.get("src")
    path = next((str(arguments[key]) for key in _PATH if arguments.get(key)), "")
    if target and path and arguments.get("state") in ("link", "hard"):
        base = os.path.dirname(os.path.join(own.directory, path))  # noqa: PTH118, PTH120 - plain text
        arguments["src"] = own.files.writable(os.path.normpath(os.path.join(base, str(target))))  # noqa: PTH118
