"""Temporary directories that go with their process, at the latest when the next one like it starts.

A process that is killed removes nothing. The kernel holds a lock on each directory for as long as its process lives, so
the next process finds those that nobody owns any more. Numbers of processes would not tell: in a container they repeat.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

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
