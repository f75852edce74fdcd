"""Private files and directories, temporary directories of a process, changed files, and a limit for files on disk.

A killed process removes nothing. The kernel holds a lock on each ``OwnedDirectory`` until its process exits, so the
next process of this kind finds the abandoned ones. Process ids would be ambiguous: in a container they repeat.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

_UNLOCKED = "new-"
"""The prefix of a directory's name between its creation and its lock, so that no other process removes it."""


def write_private(path: Path, content: bytes | str) -> None:
    """Write a file of mode 0600 atomically: no reader ever sees a part of it, and no symbolic link is followed.

    Text is encoded as UTF-8. Raises OSError.
    """
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # has mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def make_own_directory(path: Path) -> None:
    """Create a directory of mode 0700 with its parents, unless it exists.

    Where all users may create files, as in /tmp, another user may have created the directory, and could then replace
    its content. Raises PermissionError that names a directory of another user. A mounted volume is trusted.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for part in (path, *path.parents):
        found = part.lstat()
        if os.path.ismount(part) or _is_open_to_all(found):
            return
        if found.st_uid not in (0, os.geteuid()) and any(_is_open_to_all(each.stat()) for each in part.parents):
            raise PermissionError(
                f"{part} belongs to another user (id {found.st_uid}), who could replace its content: "
                "remove it, or use another directory"
            )


def check_writable(path: Path) -> None:
    """Create a directory like ``make_own_directory``, and write to it. Raises OSError that names it."""
    make_own_directory(path)
    try:
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def entries_of(directory: Path) -> list[Path]:
    """Return the entries of a directory, or an empty list if it can't be read: it may have been removed. Blocks.

    ``Path.glob`` raises FileNotFoundError then, before Python 3.13.
    """
    return [Path(entry.path) for entry in scan(directory)]


def scan(directory: Path | str) -> list[os.DirEntry[str]]:
    """Return the same as ``entries_of``, with the types of the entries, which then take no further request. Blocks."""
    try:
        with os.scandir(directory) as found:
            return list(found)
    except OSError:
        return []


def _is_open_to_all(found: os.stat_result) -> bool:
    return bool(found.st_mode & stat.S_IWOTH and found.st_mode & stat.S_ISVTX)


@dataclass(slots=True)
class OwnedDirectory:
    """A private directory (mode 0700) of this process; create it with ``make``."""

    path: Path
    _lock: int | None

    @classmethod
    def make(cls, prefix: str) -> Self:
        """Create a directory whose name starts with the prefix; remove abandoned ones. Raises OSError. Blocks."""
        remove_abandoned(prefix)
        unlocked = Path(tempfile.mkdtemp(prefix=_UNLOCKED + prefix))
        lock = os.open(unlocked, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = unlocked.with_name(unlocked.name.removeprefix(_UNLOCKED))
        unlocked.rename(path)
        return cls(path, lock)

    def remove(self) -> None:
        """Remove the directory, unless it is already removed. Blocks."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def remove_abandoned(prefix: str) -> None:
    """Remove the directories with this prefix whose process has exited; those of other users stay. Blocks."""
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError), _locked(path):
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock a directory. Raises OSError if a process owns it, or if it belongs to another user."""
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(lock).st_uid != os.getuid():
            raise PermissionError(f"{path} belongs to another user")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(lock)


class ChangingFiles:
    """Files and directories that other programs change, and their state when they were recorded."""

    def __init__(self) -> None:
        self._states: dict[str, tuple[int, int, int] | None] = {}

    def record(self, paths: Iterable[str | Path]) -> None:
        """Record the state of files that are about to be read."""
        self._states = {str(path): _state_of(str(path)) for path in paths}

    @property
    def files(self) -> set[str]:
        """The paths of the files."""
        return set(self._states)

    @property
    def have_changed(self) -> bool:
        """Whether any of them has changed since then."""
        return bool(self.changed)

    @property
    def changed(self) -> str:
        """The first path that has been replaced, written, or removed since then; an empty string if there is none."""
        return next((path for path, state in self._states.items() if _state_of(path) != state), "")


def _state_of(path: str) -> tuple[int, int, int] | None:
    """Return a value that differs after a change of a file or directory; None if it doesn't exist."""
    try:
        found = os.stat(path)  # noqa: PTH116 - many paths, at each start of a run
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


@dataclass(slots=True)
class DiskBudget:
    """Keeps the files of ended runs below a limit: the oldest are removed first, those of failed runs last.

    Above ``limit_bytes``, ``remove_surplus`` calls ``remove`` until at most the share ``keep_share`` of it remains. A
    running total avoids a search when a run ends; only above the limit, files that other programs have removed are
    subtracted. All methods block; call them from one thread at a time.
    """

    limit_bytes: int
    remove: Callable[[Path], object]
    keep_share: float = 1.0
    total_bytes: int = 0
    """The counted space, including files that other programs have removed since."""
    _successful: dict[Path, int] = field(default_factory=dict)
    _failed: dict[Path, int] = field(default_factory=dict)

    def add(self, path: Path, size_bytes: int, *, is_failed: bool) -> None:
        """Count a file or directory of an ended run."""
        (self._failed if is_failed else self._successful)[path] = size_bytes
        self.total_bytes += size_bytes

    def oldest(self) -> Path | None:
        """Return the path with the first of the names, which start with a time, or None if nothing is counted."""
        return min((*self._successful, *self._failed), default=None, key=lambda path: path.name)

    def remove_surplus(self, newest: Path | None = None) -> int:
        """Remove files above the limit and return their number; ``newest`` stays, because it may still be read."""
        if self.total_bytes > self.limit_bytes:
            for kept in (self._successful, self._failed):
                for path in [each for each in kept if not each.exists()]:
                    self.total_bytes -= kept.pop(path)
        if self.total_bytes <= self.limit_bytes:
            return 0
        count = 0
        for kept in (self._successful, self._failed):
            for path in list(kept):
                if self.total_bytes <= self.limit_bytes * self.keep_share:
                    return count
                if path != newest:
                    self.remove(path)
                    self.total_bytes -= kept.pop(path)
                    count += 1
        return count
