"""Whether the server still has imported what is on disk, and whether it has stayed small.

Plugins, modules, collections and ansible.cfg may change while the operator runs; a run that starts after a change must
see it. The server looks at every file that it has loaded before each fork, which takes less than a millisecond for a
few hundred files: no change is missed and nothing has to be watched.
"""

import os
import resource
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

GROWTH_LIMIT_BYTES = 64 * 1024 * 1024
"""By how much the server may grow before it is replaced. It runs nothing, so it should not grow at all."""

_OWN = ("ansible", "ansible_collections", "ansible_runner", "rolecall")
_State = tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class Freshness:
    """The state of files and directories, and of memory, at one time."""

    states: Mapping[str, _State]
    memory_bytes: int
    growth_limit_bytes: int = GROWTH_LIMIT_BYTES

    @classmethod
    def now(cls, growth_limit_bytes: int = GROWTH_LIMIT_BYTES) -> Self:
        """Record the state of everything that this process has loaded.

        The directories of modules and plugins count too: a new file there may take the place of another one.
        """
        loaded = set(_loaded_files())
        directories = {os.path.dirname(path) for path in loaded}  # noqa: PTH120 - plain text, and many
        paths = sorted(loaded | directories | set(_configuration_files()))
        return cls({path: _state(path) for path in paths}, _memory_bytes(), growth_limit_bytes)

    def lost(self) -> str:
        """Return what has changed since; an empty string if nothing has."""
        for path, state in self.states.items():
            if _state(path) != state:
                return f"{path} has changed"
        growth = _memory_bytes() - self.memory_bytes
        return f"the server has grown by {growth} bytes" if growth > self.growth_limit_bytes else ""


def _loaded_files() -> Iterator[str]:
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if path and name.partition(".")[0] in _OWN and not path.startswith("<"):
            yield path


def _configuration_files() -> Iterable[str]:
    """Return every path where ansible-core looks for ansible.cfg, except the directory of a run."""
    named = os.environ.get("ANSIBLE_CONFIG")
    home = Path("~").expanduser()
    return [str(home / ".ansible.cfg"), "/etc/ansible/ansible.cfg", *([named] if named else [])]


def _state(path: str) -> _State:
    try:
        found = os.stat(path)  # noqa: PTH116 - plain text, and many
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _memory_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()
