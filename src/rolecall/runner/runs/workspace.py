"""The private data directory of one object: the inputs of its runs and their artifacts.

The layout is ansible-runner's and the Go runner's, below ``<root>/<group>/<version>/<Kind>/<namespace>/<name>``.

**No path, shell word, list, or inventory of a run contains a name or a value of the environment without the quoting of
that syntax.** A name may have any character but ``/`` and ``%``, for example ``system:node``, and can be longer than
the name of a file. So ``directory_name`` quotes it, and the paths in variables and shell lines have no name at all:
they are below ``temporary``. The root can't be quoted everywhere; ``ansible_config.check_path`` checks it.

Directories have mode 0700 and files 0600, because extra vars contain everything that a spec contains. ``Workspace``
removes old artifacts itself, because the rotation of ansible-runner fails on the ``latest`` link.

**Everything that a run leaves outside its artifacts is removed with it, and no process of a run survives it.** So
Ansible's temporary directories are here, and a background job (``async``) that hasn't finished at the end of its run is
marked as failed: otherwise ``async_status`` would report "not finished" forever.
"""

import hashlib
import json
import os
import re
import shlex
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.config.ansible_config import directory_variables
from rolecall.runner.runs.variables import variables_file
from rolecall.system.files import entries_of, write_private

_PLAIN: Final = re.compile(r"[A-Za-z0-9/._+@%=-]+")
"""A path that means itself in inventories, templates, and shell lines."""

_MAX_NAME_BYTES: Final = 255
_SHORTENED, _NAME = "+", "name"
"""The mark of a shortened name, which quoting never leaves, and the file with the whole name."""

_JOBS = "async"
"""The directory for the results of background jobs."""

_KEPT_RUNS, _KEPT_JOBS = 20, 100
_KILLED = (
    "the run that started this background job ended and killed it: wait for it in the same run, with poll or "
    "async_status, or let a Kubernetes Job do its work"
)
_LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Workspace:
    """The directory of one object; with ``keep_runs`` below 1 every run is kept. All methods block."""

    root: Path
    gvk: GVK
    key: ObjectKey
    keep_runs: int = _KEPT_RUNS

    @property
    def path(self) -> Path:
        """The private data directory. Raises ValueError for a name that cannot name a directory."""
        key = self.key
        return _directory_of(self.root, self.gvk).joinpath(
            *map(directory_name, filter(None, (key.namespace, key.name)))
        )

    @property
    def temporary(self) -> Path:
        """The directory for temporary files of the current run, unlike ``path`` with a short path without names."""
        name = hashlib.sha256(os.fsencode(self.path.relative_to(self.root))).hexdigest()
        return self.root / ".tmp" / name[:16]

    def artifacts(self, ident: str) -> Path:
        """Return the artifact directory of one run."""
        return self.path / "artifacts" / ident

    def prepare(
        self, ident: str, variables: Mapping[str, Any], cmdline: str = "", playbook: Path | None = None
    ) -> None:
        """Write the inputs of a run and create its artifact directory.

        They are its extra vars, more arguments of ansible-playbook, and the playbook if it doesn't run a role. Raises
        OSError if a file can't be read or written, for example the user's inventory or playbook.
        """
        path = self.path
        for name in ("env", "project", "inventory", "artifacts"):
            self._make_directory(path / name)
        self._remove_temporary()
        self._make_directory(self.temporary)
        self._fail_jobs()
        self._rotate()
        self._make_directory(self.artifacts(ident))
        write_private(self.artifacts(ident) / "stderr", "")  # ansible-runner keeps the mode of an existing file
        if _SHORTENED in path.name:
            write_private(path / _NAME, self.key.name)
        write_private(path / "env" / "envvars", "{}")
        write_private(path / "env" / "extravars", variables_file(variables))
        write_private(path / "env" / "settings", "{}")
        _write_or_remove(path / "env" / "cmdline", cmdline if cmdline.strip() else None)
        self._write_inventory()
        text = playbook.read_text(encoding="utf-8") if playbook else None
        _write_or_remove(path / "project" / "playbook.yaml", text)

    def finish(self, ident: str) -> list[str]:
        """Point ``artifacts/latest`` to a run that has ended, and remove old runs and temporary files.

        Return the ids of background jobs that ended with the run before they had finished. Does nothing else if the
        workspace has been removed in the meantime.
        """
        self._remove_temporary()
        killed = self._fail_jobs()
        if not self.artifacts(ident).is_dir():
            return killed
        link = self.path / "artifacts" / _LATEST
        new = link.with_name(f".{_LATEST}-{ident}")
        new.unlink(missing_ok=True)
        new.symlink_to(ident)
        new.replace(link)
        self._rotate()
        return killed

    def remove(self) -> None:
        """Remove the directory, and that of the namespace if it is then empty. Raises OSError if some of it remains."""
        path = self.path
        self._remove_temporary()
        with suppress(FileNotFoundError):
            shutil.rmtree(path)
        with suppress(OSError):
            path.parent.rmdir()

    def _make_directory(self, directory: Path) -> None:
        """Create a directory and its parents below the root with mode 0700. Concurrent runs may do the same."""
        if not directory.is_dir():
            for path in reversed([directory, *directory.parents]):
                if path == self.root or self.root in path.parents:
                    path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _remove_temporary(self) -> None:
        shutil.rmtree(self.temporary, ignore_errors=True)

    def _fail_jobs(self) -> list[str]:
        """Mark unfinished background jobs as failed, and remove old results. Return the ids of these jobs."""
        failed, files = [], []
        for path in (self.path / _JOBS).glob("*"):
            with suppress(OSError, ValueError, AttributeError):  # a role may write anything there
                files.append((path.stat().st_mtime_ns, path))
                result = json.loads(path.read_bytes())
                if "started" in result and not result.get("finished"):  # as async_status concludes it
                    result = {"ansible_job_id": path.name, "failed": True, "msg": _KILLED}
                    write_private(path, json.dumps(result))
                    failed.append(path.name)
        for _, path in sorted(files)[:-_KEPT_JOBS]:
            path.unlink(missing_ok=True)
        return failed

    def _rotate(self) -> None:
        if self.keep_runs < 1:
            return
        with os.scandir(self.path / "artifacts") as entries:
            runs = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
        runs.sort(key=lambda entry: (entry.stat(follow_symlinks=False).st_mtime_ns, entry.name))
        for run in runs[: -self.keep_runs]:
            shutil.rmtree(run.path, ignore_errors=True)

    def _write_inventory(self) -> None:
        """Copy the user's inventory, or write one with localhost."""
        directory = self.path / "inventory"
        given = os.environ.get("ANSIBLE_INVENTORY")
        if given and os.path.isdir(given):  # noqa: PTH112 - reading it reports that it can't be searched
            shutil.copytree(given, directory, dirs_exist_ok=True)
            return
        if given:
            hosts = Path(given).read_text(encoding="utf-8")
        else:
            directories = directory_variables(os.environ, self.temporary, self.path / _JOBS)
            variables = "".join(f" {name}={shlex.quote(value)}" for name, value in directories.items())
            hosts = f"localhost ansible_connection=local ansible_python_interpreter={self._python()}{variables}\n"
        write_private(directory / "hosts", hosts)

    def _python(self) -> str:
        """Return the interpreter of modules for an inventory; Ansible also puts its path into shell lines unquoted."""
        virtual_env = os.environ.get("VIRTUAL_ENV")
        if not virtual_env:
            return "{{ansible_playbook_python}}"
        if _PLAIN.fullmatch(virtual_env):
            return f"{virtual_env}/bin/python3"
        link = self.temporary / "venv"
        link.symlink_to(Path(virtual_env).absolute())
        return shlex.quote(f"{link}/bin/python3")


def workspaces_of(root: Path, gvk: GVK) -> list[ObjectKey]:
    """Return the objects of a kind that have a workspace. Blocks.

    Other directories are ignored, also a workspace that is being removed.
    """
    base = _directory_of(root, gvk)
    directories = [each for parent in entries_of(base) for each in (parent, *entries_of(parent))]
    found = []
    for each in directories:
        with suppress(FileNotFoundError):
            if (each / "env" / "extravars").is_file():
                namespace = "" if each.parent == base else unquote(each.parent.name)
                found.append(ObjectKey(namespace, _name_in(each)))
    return found


def directory_name(text: str) -> str:
    """Return the name of a directory for a name of Kubernetes, different for each; ordinary names stay as they are.

    Raises ValueError for a name that no object can have.
    """
    if text in ("", ".", "..") or "/" in text:
        raise ValueError(f"{text!r} cannot name a directory")
    name = quote(text, safe="")
    if len(name) <= _MAX_NAME_BYTES:
        return name
    return f"{name[:100]}{_SHORTENED}{hashlib.sha256(name.encode()).hexdigest()}"


def _directory_of(root: Path, gvk: GVK) -> Path:
    return root.joinpath(*map(directory_name, filter(None, (gvk.group, gvk.version, gvk.kind))))


def _name_in(directory: Path) -> str:
    """Return the name of the object of a workspace."""
    if _SHORTENED in directory.name:
        return (directory / _NAME).read_text(encoding="utf-8")
    return unquote(directory.name)


def _write_or_remove(path: Path, content: str | None) -> None:
    if content is None:
        path.unlink(missing_ok=True)
    else:
        write_private(path, content)
