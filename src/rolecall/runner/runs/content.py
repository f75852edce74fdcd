"""The files of a role or playbook, and their changes.

A role may write below its own directory, and a playbook may lie among work files. Only what Ansible would load counts:
the directories of a role, and for a playbook those next to it, its neighbors with variables and tasks, and the roles.
Caches and swap files of Python and editors don't count.

An object whose run failed waits for its backoff, up to minutes; ``watch_contents`` reports a fixed role immediately.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Never

from watchfiles import Change, DefaultFilter

from rolecall.runner.config.content import Content, RoleContent
from rolecall.runner.config.watches import Watch
from rolecall.system.blocking_work import run_in_thread
from rolecall.system.file_changes import WATCH_ENDED, changes_in
from rolecall.system.files import entries_of
from rolecall.system.logs import get_logger

logger = get_logger("content")

_PARTS = frozenset(
    {"tasks", "handlers", "defaults", "vars", "meta", "templates", "files", "library", "module_utils"}
    | {"group_vars", "host_vars"}
)
_PLUGINS = "_plugins"
_NEIGHBORS = frozenset({".yml", ".yaml", ".json", ".j2"})
_LARGE_BYTES = 1024 * 1024


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
    directory, *roles = directories_of(content)
    yield from _parts(directory)
    if not isinstance(content, RoleContent):
        yield from (path for path in entries_of(directory) if path.suffix in _NEIGHBORS)
    for role in (role for directory in roles for role in entries_of(directory)):
        yield from _parts(role)


def _parts(directory: Path) -> Iterator[Path]:
    is_source = DefaultFilter()
    for part in entries_of(directory):
        if part.name in _PARTS or part.name.endswith(_PLUGINS):
            for parent, _, names in os.walk(part):
                paths = (Path(parent, name) for name in names)
                yield from (path for path in paths if is_source(Change.modified, str(path)))


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


_State = tuple[str, Path, int, int]
"""The name of a file in its content, its path, the time of its last change, and its size."""


def digest_of_content(contents: Iterable[Content]) -> str:
    """Return a digest of the files of roles and playbooks, by their names and content. Blocks.

    It detects whether two runs used the same code, on any machine. Only regular files count. A file whose size and time
    of change are the same isn't read again. Raises OSError if one can't be read.
    """
    states: list[_State] = []
    for content in contents:
        base, found = next(directories_of(content)), []
        for path in files_of(content):
            with suppress(FileNotFoundError):  # a dangling link, or removed in the meantime
                status = path.stat()
                if stat.S_ISREG(status.st_mode):
                    found.append((os.path.relpath(path, base), path, status.st_mtime_ns, status.st_size))
        states += sorted(found)
    return _digest(tuple(states))


def mentions(contents: Iterable[Content], text: bytes) -> bool:
    """Return whether a file of roles and playbooks contains a text; unreadable files don't. Blocks."""
    for path in (path for content in contents for path in files_of(content)):
        with suppress(OSError):
            if text in path.read_bytes():
                return True
    return False


@lru_cache(maxsize=64)
def _digest(states: tuple[_State, ...]) -> str:
    digest = hashlib.sha256()
    for name, path, _, _ in states:
        digest.update(f"{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
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
