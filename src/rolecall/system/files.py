"""Files that only their owner may read, and directories that belong to nobody else.

Temporary directories that go with their process, at the latest when the next one like it starts.

A process that is killed removes nothing. The kernel holds a lock on each directory for as long as its process lives, so
the next process finds those that nobody owns any more. Numbers of processes would not tell: in a container they repeat.

Keeps what ended runs have left on disk below a limit: the oldest is removed first, that of failed runs last.

A running total is kept, so that nothing is searched when a run ends. What others have removed meanwhile is looked up
only when the total is above the limit. All methods block; call them from one thread at a time.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self


def write_private(path: Path, content: bytes | str) -> None:
    """Write a file of mode 0600 in one step: no reader ever sees half of it, and no link at its place is followed.

    Text is encoded as UTF-8. Raises OSError.
    """
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # made with mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def make_own_directory(path: Path) -> None:
    """Create a directory of mode 0700 with its parents, unless it exists.

    Where everybody may create files, as in /tmp, another user may have been there first, and could then exchange what
    is written. Raises PermissionError that names a directory of another user. A mounted volume is in order: whoever
    mounts it is trusted.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for part in (path, *path.parents):
        found = part.lstat()
        if os.path.ismount(part) or _is_open_to_everybody(found):
            return
        if found.st_uid not in (0, os.geteuid()) and any(_is_open_to_everybody(each.stat()) for each in part.parents):
            raise PermissionError(
                f"{part} belongs to another user (id {found.st_uid}), who could exchange what is written there: "
                "remove it, or use another directory"
            )


def _is_open_to_everybody(found: os.stat_result) -> bool:
    return bool(found.st_mode & stat.S_IWOTH and found.st_mode & stat.S_ISVTX)


_UNLOCKED = "new-"
"""Between a directory's creation and its lock, its name has this before it, so that nobody removes it."""


@dataclass(slots=True)
class OwnedDirectory:
    """A private directory (mode 0700) of this process; make it with ``make``."""

    path: Path
    _lock: int | None

    @classmethod
    def make(cls, prefix: str) -> Self:
        """Create a directory whose name begins with the prefix; remove abandoned ones. Raises OSError. Blocks."""
        remove_abandoned(prefix)
        unlocked = Path(tempfile.mkdtemp(prefix=_UNLOCKED + prefix))
        lock = os.open(unlocked, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = unlocked.with_name(unlocked.name.removeprefix(_UNLOCKED))
        unlocked.rename(path)
        return cls(path, lock)

    def remove(self) -> None:
        """Remove the directory, unless that was done before. Blocks."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def remove_abandoned(prefix: str) -> None:
    """Remove the directories with this prefix whose process has ended; those of other users stay. Blocks."""
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError), _locked(path):
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock a directory meanwhile. Raises OSError if a process owns it, or if it is not this user's directory."""
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(lock).st_uid != os.getuid():
            raise PermissionError(f"{path} belongs to another user")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(lock)


@dataclass(slots=True)
class DiskBudget:
    """Files or directories with their sizes, in the order in which they were added, and what removes one of them.

    Above ``limit_bytes``, ``remove_surplus`` removes until at most the share ``keep_share`` of it is left.
    """

    limit_bytes: int
    remove: Callable[[Path], object]
    keep_share: float = 1.0
    total_bytes: int = 0
    """How much space is counted; what others have removed since is included."""
    _successful: dict[Path, int] = field(default_factory=dict)
    _failed: dict[Path, int] = field(default_factory=dict)

    def add(self, path: Path, size_bytes: int, *, is_failed: bool) -> None:
        """Count what a run has left."""
        (self._failed if is_failed else self._successful)[path] = size_bytes
        self.total_bytes += size_bytes

    def oldest(self) -> Path | None:
        """Return what has the first of the names, which begin with a time, or None when nothing is counted."""
        return min((*self._successful, *self._failed), default=None, key=lambda path: path.name)

    def remove_surplus(self, newest: Path | None = None) -> int:
        """Remove what is too much and return how many there were; ``newest`` stays, because it may still be read."""
        if self.total_bytes > self.limit_bytes:
            self._forget_removed()
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

    def _forget_removed(self) -> None:
        for kept in (self._successful, self._failed):
            for path in [each for each in kept if not each.exists()]:
                self.total_bytes -= kept.pop(path)
