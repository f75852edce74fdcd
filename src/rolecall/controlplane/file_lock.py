"""A lock between processes that leaves nothing behind.

Two starts at the same moment must neither build the same programs twice nor share a state directory. The lock is
advisory and ends with the process that holds it, however that process ends. Where the file is to disappear with what
it protects, the holder removes it, and whoever waited for the removed file takes a new one. Used by
rolecall.controlplane.binaries and rolecall.controlplane.state.
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
    """Hold the lock at the path; call when_waiting if somebody else has it; remove the file at the end if asked."""
    while True:
        try:
            descriptor = _open_and_lock(path, when_waiting)
        except FileNotFoundError:  # the folder was removed between its creation and the opening
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
