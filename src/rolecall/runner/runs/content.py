"""The files of which a role or playbook consists, and their digests.

A role may write below its own directory, and a playbook may lie among work files. Only what Ansible would load counts:
the directories of a role, and for a playbook those beside it, its neighbours with variables and tasks, and the roles.

Notices when the content of a role or playbook changes.

An object whose run failed waits for its backoff, up to minutes; a fixed role is tried soon instead. What the run
itself writes beside the role, and what Python and editors leave there (caches, swap files), does not count.
"""

import asyncio
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from watchfiles import Change, DefaultFilter, awatch

from rolecall.runner.config.content import Content, RoleContent
from rolecall.runner.config.watches import Watch
from rolecall.system.blocking_work import run_in_thread
from rolecall.system.logs import get_logger

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


logger = get_logger("content")


def contents_of(watch: Watch) -> tuple[Content, ...]:
    """Return the role or playbook of a watch, and that of its finalizer."""
    own = watch.finalizer.content if watch.finalizer else None
    return (watch.content, own) if own else (watch.content,)


def watched_directories(watch: Watch) -> frozenset[Path]:
    """Return the directories of a watch: of each role, of each playbook, and the roles beside the playbook."""
    return frozenset(path for content in contents_of(watch) for path in directories_of(content))


async def watch_content(watch: Watch, on_change: Callable[[], None]) -> None:
    """Call ``on_change`` whenever the content of the watch's role or playbook has changed, until cancelled."""
    contents = contents_of(watch)
    before = await run_in_thread(lambda: digests_of(contents))
    directories = sorted(watched_directories(watch))
    async for _ in awatch(*directories, watch_filter=DefaultFilter(), stop_event=asyncio.Event()):
        now = await run_in_thread(lambda: digests_of(contents))
        if now != before:
            changed = [path for path in before.keys() | now.keys() if before.get(path) != now.get(path)]
            before = now
            logger.info("Files of a role changed", files=sorted(map(str, changed))[:5])
            on_change()
