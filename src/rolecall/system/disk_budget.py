"""Keeps what ended runs have left on disk below a limit: the oldest is removed first, that of failed runs last.

A running total is kept, so that nothing is searched when a run ends. What others have removed meanwhile is looked up
only when the total is above the limit. All methods block; call them from one thread at a time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


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
