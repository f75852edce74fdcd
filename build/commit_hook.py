"""Writes the commit into wheels, as ``rolecall/commit.txt``: ``rolecall version`` prints it.

The commit is ``ROLECALL_COMMIT`` if set, because the build of an image has no history, otherwise that of the checkout.
An editable installation needs no file: it is the checkout.
"""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

UNKNOWN = "unknown"


class CommitHook(BuildHookInterface):  # type: ignore[misc] # without types
    """The hook of hatchling."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file to the wheel, unless the commit is unknown."""
        commit = commit_of(Path(self.root))
        if version != "editable" and commit != UNKNOWN:
            self._directory = tempfile.TemporaryDirectory()
            path = Path(self._directory.name, "commit.txt")
            path.write_text(f"{commit}\n")
            build_data["force_include"][str(path)] = "rolecall/commit.txt"


def commit_of(root: Path) -> str:
    """Return the commit of a checkout, with ``-dirty`` if files have changed."""
    if given := os.environ.get("ROLECALL_COMMIT"):
        return given
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return UNKNOWN
    return done.stdout.strip() if (root / ".git").exists() and done.returncode == 0 else UNKNOWN
