"""The files of a role or playbook, and their changes.

A role may write below its own directory, and a playbook may lie among work files. Only what Ansible would load counts:
the directories of a role, and for a playbook those next to it, its neighbors with variables and tasks, and the roles,
also those in directories below, such as ``roles/default/web``. Caches and swap files of Python and editors don't count.

An object whose run failed waits for its backoff, up to minutes; ``watch_contents`` reports a fixed role immediately.
"""

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple, Never

from watchfiles import DefaultFilter

from rolecall.runner.config.content import Content, RoleContent
from rolecall.runner.config.watches import Watch
from rolecall.system.blocking_work import run_in_thread
from rolecall.system.file_changes import WATCH_ENDED, changes_in
from rolecall.system.files import scan
from rolecall.system.logs import get_logger

logger = get_logger("content")

_PARTS = frozenset(
    {"tasks", "handlers", "defaults", "vars", "meta", "templates", "files", "library", "module_utils"}
    | {"group_vars", "host_vars"}
)
_PLUGINS = "_plugins"
_NEIGHBORS = frozenset({".yml", ".yaml", ".json", ".j2"})
_IGNORED = re.compile("|".join(DefaultFilter.ignore_entity_patterns))
_LARGE_BYTES = 1024 * 1024
_NESTED_LEVELS = 2
"""How many directories may be between that of the roles and a role."""


def contents_of(watch: Watch) -> tuple[Content, ...]:
    """Return the role or playbook of a watch, and that of its finalizer."""
    own = watch.finalizer.content if watch.finalizer else None
    return (watch.content, own) if own else (watch.content,)


def directories_of(content: Content) -> Iterator[Path]:
    """Yield the directories of these files: the role's, or the playbook's and the roles next to and above it."""
    if isinstance(content, RoleContent):
        yield content.path.resolve()
        return
    directory = content.path.resolve().parent
    yield directory
    yield from (path for path in (directory / "roles", directory.parent / "roles") if path.is_dir())


def watched_directories(watch: Watch) -> frozenset[Path]:
    """Return the directories of a watch: of each role, of each playbook, and the roles next to the playbook."""
    return frozenset(path for content in contents_of(watch) for path in directories_of(content))


def files_of(content: Content) -> Iterator[Path]:
    """Yield the files of a role or playbook. Blocks."""
    return map(Path, _files_of(content))


def _files_of(content: Content) -> Iterator[str]:
    directory, *roles = map(str, directories_of(content))
    yield from _parts(directory)
    if not isinstance(content, RoleContent):
        yield from (each.path for each in scan(directory) if Path(each.name).suffix in _NEIGHBORS)
    for role in (role for directory in roles for role in _roles_in(directory)):
        yield from _parts(role)


def _code_files(content: Content) -> Iterator[str]:
    """Yield the files of ``files_of``, and of a role also those of the roles next to it, which it may include."""
    if not isinstance(content, RoleContent):
        yield from _files_of(content)
        return
    roles = content.path.resolve().parent
    for role in _roles_in(str(roles), _NESTED_LEVELS if roles.name == "roles" else 0):
        yield from _parts(role)


def _roles_in(directory: str, levels: int = _NESTED_LEVELS, *, is_in_role: bool = False) -> Iterator[str]:
    for entry in scan(directory):
        if entry.name.startswith(".") or (is_in_role and _is_part(entry.name)) or not _is_directory(entry):
            continue
        yield entry.path
        if levels:
            yield from _roles_in(entry.path, levels - 1, is_in_role=True)


def _parts(directory: str) -> Iterator[str]:
    for entry in scan(directory):
        if _is_part(entry.name):
            yield from _files_below(entry.path)


def _is_part(name: str) -> bool:
    return name in _PARTS or name.endswith(_PLUGINS)


def _files_below(directory: str) -> Iterator[str]:
    for entry in scan(directory):
        if not _is_directory(entry):
            if not _IGNORED.search(entry.name):
                yield entry.path
        elif not (entry.is_symlink() or entry.name in DefaultFilter.ignore_dirs):
            yield from _files_below(entry.path)


def _is_directory(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a directory, or a link to one; a link to itself isn't, and can't be followed."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def digests_of(contents: Iterable[Content]) -> Mapping[Path, bytes]:
    """Return a digest of each file; unreadable files are left out. Blocks.

    The digest of a large or special file is its size and the time of its last change: reading a pipe would never end.
    """
    found = {}
    for path in (path for content in contents for path in files_of(content)):
        try:
            state = path.stat()
            if state.st_size > _LARGE_BYTES or not stat.S_ISREG(state.st_mode):
                found[path] = f"{state.st_size} {state.st_mtime_ns}".encode()
            else:
                found[path] = hashlib.sha256(path.read_bytes()).digest()
        except OSError:
            continue
    return found


_State = tuple[str, str, int, int]
"""The name of a file in its content, its path, the time of its last change, and its size."""


def digest_of_content(contents: Iterable[Content]) -> str:
    """Return a digest of the files of roles and playbooks, by their names and content. Blocks.

    It detects whether two runs used the same code, on any machine. Only regular files count. A file whose size and time
    of change are the same isn't read again. Raises OSError if one can't be read.
    """
    return _digest(tuple(state for content in contents for state in _states(content, _files_of(content))))


class Code(NamedTuple):
    """The files that decide what a run does, as far as they are known: their digest and their paths."""

    digest: str
    files: frozenset[str]


def code_of(content: Content) -> Code:
    """Return the code of a role or playbook, with the roles that it may include by name. Blocks.

    Roles of collections, and those in other directories of ANSIBLE_ROLES_PATH, aren't known. Raises OSError if a file
    can't be read.
    """
    states = tuple(_states(content, _code_files(content)))
    return Code(_digest(states), frozenset(path for _, path, _, _ in states))


def _states(content: Content, paths: Iterable[str]) -> list[_State]:
    base, found = f"{next(directories_of(content))}{os.sep}", []
    for path in paths:
        with suppress(FileNotFoundError):  # a dangling link, or removed in the meantime
            status = os.stat(path)  # noqa: PTH116 - quicker, and each run does this twice
            if stat.S_ISREG(status.st_mode):
                name = path[len(base) :] if path.startswith(base) else os.path.relpath(path, base)
                found.append((name, path, status.st_mtime_ns, status.st_size))
    return sorted(found)


def mentions(contents: Iterable[Content], text: bytes) -> bool:
    """Return whether a file of roles and playbooks, or of a role next to them, contains a text. Blocks.

    An unreadable file doesn't.
    """
    for path in (path for content in contents for path in _code_files(content)):
        with suppress(OSError):
            if text in Path(path).read_bytes():
                return True
    return False


@lru_cache(maxsize=64)
def _digest(states: tuple[_State, ...]) -> str:
    digest = hashlib.sha256()
    for name, path, _, _ in states:
        digest.update(f"{name}\0".encode() + hashlib.sha256(Path(path).read_bytes()).digest())
    return f"sha256:{digest.hexdigest()}"


async def watch_contents(followers: Sequence[tuple[Watch, Callable[[], None]]]) -> Never:
    """Call the function of each watch whenever the content of its role or playbook has changed, until cancelled.

    All watches share one inotify instance: a user may have 128 on a node, in all of its containers. Only the content of
    those that a changed file may concern is read again. Raises OSError if the files can't be watched.
    """
    directories = [watched_directories(watch) for watch, _ in followers]
    contents = [contents_of(watch) for watch, _ in followers]
    known = await run_in_thread(lambda: [digests_of(each) for each in contents])
    async for paths in changes_in(frozenset[Path]().union(*directories), DefaultFilter()):
        for number, (watch, on_change) in enumerate(followers):
            if paths and not any(path.is_relative_to(own) for path in paths for own in directories[number]):
                continue
            before, known[number] = known[number], await run_in_thread(partial(digests_of, contents[number]))
            now = known[number]
            if changed := [path for path in before.keys() | now.keys() if before.get(path) != now.get(path)]:
                logger.info("Files of a role changed", gvk=str(watch.gvk), files=sorted(map(str, changed))[:5])
                on_change()
    raise OSError(WATCH_ENDED)
