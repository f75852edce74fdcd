"""Which arguments of modules for files are paths, and how they are mapped to the plan's folder. No Ansible here."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rolecall.runner.runs.planned.plan_files import PlanFiles

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
