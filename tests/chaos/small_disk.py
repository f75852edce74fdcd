"""A small file system for the operator that can be filled, mounted in memory if permitted."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_SIZE = "256m"
_BALLAST = "ballast"
_CHUNK = bytes(64 * 1024)


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """A directory; ``problem`` is the reason why it has no separate file system, empty if it has."""

    directory: Path
    problem: str = ""

    def fill(self) -> None:
        """Use all remaining space. Blocks."""
        with (self.directory / _BALLAST).open("ab", buffering=0) as ballast:
            try:
                while ballast.write(_CHUNK):
                    pass
            except OSError:
                return

    @property
    def free_bytes(self) -> int:
        """The remaining space."""
        return shutil.disk_usage(self.directory).free

    def free(self) -> None:
        """Free the space."""
        (self.directory / _BALLAST).unlink(missing_ok=True)


@contextmanager
def small_disk(directory: Path) -> Iterator[SmallDisk]:
    """Yield a disk mounted at a new directory, or only the directory if mounting fails."""
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE},mode=0700", "rolecall-chaos", str(directory)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        yield SmallDisk(directory, f"no mount program: {error}")
        return
    if mounted.returncode:
        yield SmallDisk(directory, mounted.stderr.strip() or "mounting failed")
        return
    try:
        yield SmallDisk(directory)
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=False)
