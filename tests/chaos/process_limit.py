"""A limit of the number of processes of a tree: a control group, because RLIMIT_NPROC does not bind root.

Both versions of control groups are known; this user must be allowed to make a group and to move processes into it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

_VERSION_1, _VERSION_2 = Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")


def trouble_with_process_limit() -> str:
    """Say why no such limit can be set here; empty if it can."""
    root = _root()
    if not (root / "cgroup.procs").exists():
        return "no control groups"
    group = root / f"rolecall-probe-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        return f"no control group can be made: {error}"
    try:
        return "" if (group / "pids.max").exists() else "no controller of processes in control groups"
    finally:
        group.rmdir()


@dataclass(frozen=True, slots=True)
class ProcessLimit:
    """A control group with some processes, and with everything that they start."""

    group: Path

    def leave(self, count: int) -> None:
        """Allow so many processes and threads more than there are now."""
        used = int((self.group / "pids.current").read_text())
        (self.group / "pids.max").write_text(str(used + count))

    def refused(self) -> int:
        """Return how often a process could not be made because of the limit."""
        counts = dict(line.split() for line in (self.group / "pids.events").read_text().splitlines())
        return int(counts["max"])


@contextmanager
def limited_processes(root: int) -> Iterator[ProcessLimit]:
    """Put a process and all below it into a group of their own; take them out and remove it afterwards."""
    group = _root() / f"rolecall-chaos-{root}"
    group.mkdir()
    try:
        with suppress(psutil.NoSuchProcess):
            tree = psutil.Process(root)
            for process in (tree, *tree.children(recursive=True)):
                _move(process.pid, group)
        yield ProcessLimit(group)
    finally:
        while members := (group / "cgroup.procs").read_text().split():
            for pid in members:
                _move(int(pid), _root())
        group.rmdir()


def _move(pid: int, group: Path) -> None:
    with suppress(ProcessLookupError):
        (group / "cgroup.procs").write_text(str(pid))


def _root() -> Path:
    return _VERSION_1 if _VERSION_1.is_dir() else _VERSION_2
