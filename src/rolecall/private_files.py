"""Files that only their owner may read."""

import os
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
