"""The private data directory of one object: the inputs of its runs and their artifacts.

The layout is ansible-runner's and the Go runner's, below ``<root>/<group>/<version>/<Kind>/<namespace>/<name>``.
Directories have mode 0700 and files 0600, because extra vars contain whatever a spec contains. ``Workspace`` removes
old artifacts itself, because the rotation of ansible-runner fails on the ``latest`` link.
"""

import json
import os
import shlex
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.config.environment import home_variables
from rolecall.system.files import write_private

KEEP_RUNS = 20
"""How many runs of an object are kept by default."""

TEMPORARY = "tmp"
"""The directory for temporary files of the current run."""

_LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of a run: extra vars, environment without secrets, ``--ansible-args``, and a playbook or none."""

    extra_vars: Mapping[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)
    cmdline: str = ""
    playbook: Path | None = None


@dataclass(frozen=True, slots=True)
class Workspace:
    """The directory of one object; with ``keep_runs`` below 1 every run is kept."""

    root: Path
    gvk: GVK
    key: ObjectKey
    keep_runs: int = KEEP_RUNS

    @property
    def path(self) -> Path:
        """The private data directory. Raises ValueError for a name that cannot name a directory."""
        gvk, key = self.gvk, self.key
        parts = [part for part in (gvk.group, gvk.version, gvk.kind, key.namespace, key.name) if part]
        for part in parts:
            if part in (".", "..") or "/" in part or "\0" in part:
                raise ValueError(f"cannot make a directory for {gvk} {key}: {part!r} cannot name a directory")
        return self.root.joinpath(*parts)

    def artifacts(self, ident: str) -> Path:
        """Return the artifact directory of one run."""
        return self.path / "artifacts" / ident

    def prepare(self, ident: str, inputs: Inputs) -> None:
        """Write the inputs of a run and create its artifact directory.

        Raises OSError if a file cannot be read or written, for example the user's inventory or playbook.
        """
        for folder in ("env", "project", "inventory", "artifacts"):
            _make_folder(self.root, self.path / folder)
        shutil.rmtree(self.path / TEMPORARY, ignore_errors=True)
        self._rotate()
        _make_folder(self.root, self.artifacts(ident))
        self._write_environment(inputs)
        self._write_inventory()
        playbook = self.path / "project" / "playbook.yaml"
        if inputs.playbook:
            write_private(playbook, inputs.playbook.read_text(encoding="utf-8"))
        else:
            playbook.unlink(missing_ok=True)

    def finish(self, ident: str) -> None:
        """Point ``artifacts/latest`` to a run that has ended, and remove old runs.

        Does nothing if the workspace has been removed in the meantime.
        """
        if not self.artifacts(ident).is_dir():
            return
        link = self.path / "artifacts" / _LATEST
        new = link.with_name(f".{_LATEST}-{ident}")
        new.unlink(missing_ok=True)
        new.symlink_to(ident)
        new.replace(link)
        self._rotate()

    def remove(self) -> None:
        """Remove the directory, and that of the namespace if it is empty then. Raises OSError if some of it stays."""
        path = self.path
        with suppress(FileNotFoundError):
            shutil.rmtree(path)
        with suppress(OSError):
            path.parent.rmdir()

    def _rotate(self) -> None:
        if self.keep_runs < 1:
            return
        with os.scandir(self.path / "artifacts") as entries:
            runs = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
        runs.sort(key=lambda entry: (entry.stat(follow_symlinks=False).st_mtime_ns, entry.name))
        for run in runs[: -self.keep_runs]:
            shutil.rmtree(run.path, ignore_errors=True)

    def _write_environment(self, inputs: Inputs) -> None:
        folder = self.path / "env"
        write_private(folder / "envvars", json.dumps(dict(inputs.environment)))
        # Sorted at every depth, as Go writes it: a role that loops over a mapping sees its keys in that order.
        write_private(folder / "extravars", json.dumps(dict(inputs.extra_vars), sort_keys=True))
        write_private(folder / "settings", "{}")
        cmdline = folder / "cmdline"
        if inputs.cmdline.strip():
            write_private(cmdline, inputs.cmdline)
        else:
            cmdline.unlink(missing_ok=True)

    def _write_inventory(self) -> None:
        folder = self.path / "inventory"
        given = os.environ.get("ANSIBLE_INVENTORY")
        if not given:
            write_private(folder / "hosts", _default_inventory())
        elif Path(given).is_dir():
            shutil.copytree(given, folder, dirs_exist_ok=True)
        else:
            write_private(folder / "hosts", Path(given).read_text(encoding="utf-8"))


def workspaces_of(root: Path, gvk: GVK) -> list[ObjectKey]:
    """Return the objects of a kind that have a workspace; other directories are ignored."""
    base = root.joinpath(*(part for part in (gvk.group, gvk.version, gvk.kind) if part))
    folders = [*base.glob("*"), *base.glob("*/*")]
    found = [folder.relative_to(base).parts for folder in folders if (folder / "env" / "extravars").is_file()]
    return [ObjectKey(parts[0] if len(parts) > 1 else "", parts[-1]) for parts in found]


def _default_inventory() -> str:
    virtual_env = os.environ.get("VIRTUAL_ENV")
    interpreter = f"{virtual_env}/bin/python3" if virtual_env else "{{ansible_playbook_python}}"
    below_home = "".join(f" {name}={shlex.quote(value)}" for name, value in home_variables(os.environ).items())
    return f"localhost ansible_connection=local ansible_python_interpreter={interpreter}{below_home}\n"


def _make_folder(root: Path, folder: Path) -> None:
    """Create a directory and its parents below the root with mode 0700. Concurrent runs may do the same."""
    if folder.is_dir():
        return
    for path in reversed([folder, *folder.parents]):
        if path == root or root in path.parents:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
