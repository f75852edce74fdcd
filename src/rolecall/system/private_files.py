"""Files that only their owner may read, and directories that belong to nobody else."""

import os
import stat
import tempfile
from pathlib import Path


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
