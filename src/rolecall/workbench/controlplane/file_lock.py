"""A file lock between processes.

Two concurrent starts must neither build the same programs twice nor share a state directory. The lock is advisory and
is released when its process exits. If the lock file should be removed with what it protects, the holder removes it, and
processes that waited for the removed file lock a new one.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _open_and_lock(path: Path, when_waiting: Callable[[], None]) -> int:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            when_waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def locked(path: Path, *, when_waiting: Callable[[], None] = lambda: None, remove: bool = False) -> Iterator[None]:
    """Hold the lock; call ``when_waiting`` if another process has it; with ``remove``, delete the file at the end."""
    while True:
        try:
            descriptor = _open_and_lock(path, when_waiting)
        except FileNotFoundError:  # the directory was removed after its creation
            continue
        if _is_same_file(descriptor, path):
            break
        os.close(descriptor)  # the former holder removed the file that we waited for
    try:
        yield
    finally:
        if remove:
            path.unlink(missing_ok=True)
        os.close(descriptor)
