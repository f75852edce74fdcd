"""The files of which a role or playbook consists, and their digests.

A role may write below its own directory, and a playbook may lie among work files. Only what Ansible would load counts:
the directories of a role, and for a playbook those beside it, its neighbours with variables and tasks, and the roles.
"""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from watchfiles import Change, DefaultFilter

from rolecall.runner.config.content import Content, RoleContent

_PARTS = frozenset(
    {"tasks", "handlers", "defaults", "vars", "meta", "templates", "files", "library", "module_utils"}
    | {"group_vars", "host_vars"}
)
_PLUGINS = "_plugins"
_NEIGHBOURS = frozenset({".yml", ".yaml", ".json", ".j2"})
_LARGE_BYTES = 1024 * 1024

Digests = Mapping[Path, bytes]


def directories_of(content: Content) -> Iterator[Path]:
    """Return the directories that hold these files: the role's, or the playbook's and the roles beside and above it."""
    if isinstance(content, RoleContent):
        yield content.path.resolve()
        return
    folder = content.path.resolve().parent
    yield folder
    yield from (path for path in (folder / "roles", folder.parent / "roles") if path.is_dir())


def digests_of(contents: Iterable[Content]) -> Digests:
    """Return a digest of each file; those that cannot be read are left out. Blocks."""
    found = {}
    for content in contents:
        for path in files_of(content):
            try:
                found[path] = _digest(path)
            except OSError:
                continue
    return found


def files_of(content: Content) -> Iterator[Path]:
    """Return these files. Blocks."""
    folder, *roles = directories_of(content)
    yield from _parts(folder)
    if not isinstance(content, RoleContent):
        yield from (path for path in _entries(folder) if path.suffix in _NEIGHBOURS)
    for role in (role for directory in roles for role in _entries(directory)):
        yield from _parts(role)


def _parts(folder: Path) -> Iterator[Path]:
    is_source = DefaultFilter()
    for part in _entries(folder):
        if part.name in _PARTS or part.name.endswith(_PLUGINS):
            for parent, _, names in os.walk(part):
                paths = (Path(parent, name) for name in names)
                yield from (path for path in paths if is_source(Change.modified, str(path)))


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _digest(path: Path) -> bytes:
    """Return a digest of a file's content; for a large or special file its size and the time of its last change."""
    state = path.stat()
    if state.st_size > _LARGE_BYTES or not stat.S_ISREG(state.st_mode):  # reading a pipe would never end
        return f"{state.st_size} {state.st_mtime_ns}".encode()
    return hashlib.sha256(path.read_bytes()).digest()
