"""A stand-in for the caller's home directory in the password file, for tests of programs that must not change it."""

from collections.abc import Sequence
from pathlib import Path


def with_home(home: Path, passwd: Path, command: Sequence[str]) -> list[str]:
    """Return a command that runs in a mount namespace whose password file, written to `passwd`, has this home."""
    # The process is root of its user namespace, which alone may mount.
    passwd.write_text(f"root:x:0:0::{home}:/bin/sh\n")
    script = 'mount --bind "$0" /etc/passwd && exec "$@"'
    return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, str(passwd), *command]
