"""A small file system of the operator's own, which can be filled: mounted in memory, if this user may do that."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_SIZE = "256m"
_BALLAST = "ballast"
_PIECE = bytes(64 * 1024)


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """A folder; ``trouble`` says why it is not on a file system of its own, empty if it is."""

    folder: Path
    trouble: str = ""

    def fill(self) -> None:
        """Take all space that is left. Blocks."""
        with (self.folder / _BALLAST).open("ab", buffering=0) as ballast:
            try:
                while ballast.write(_PIECE):
                    pass
            except OSError:
                return

    @property
    def free_bytes(self) -> int:
        """The space that is left."""
        return shutil.disk_usage(self.folder).free

    def free(self) -> None:
        """Give the space back."""
        (self.folder / _BALLAST).unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path) -> Iterator[SmallDisk]:
    """Yield a disk mounted at a new folder, or the folder alone where nothing can be mounted."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE},mode=0700", "rolecall-chaos", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        yield SmallDisk(folder, f"no program to mount with: {error}")
        return
    if mounted.returncode:
        yield SmallDisk(folder, mounted.stderr.strip() or "mounting failed")
        return
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)
