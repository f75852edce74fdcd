"""Whether what the server has imported is still what lies on disk, and whether it has stayed small.

Plugins, modules, collections and ansible.cfg may change while the operator runs; a play that starts after that must see
the change. The server looks at each file that it has loaded before each fork, which takes less than a millisecond for
some hundred files: no change is missed and nothing has to be watched.
"""

import os
import resource
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

GROWTH_LIMIT_BYTES = 64 * 1024 * 1024
"""How much memory the server may gain before it is replaced; it runs nothing, so that it should gain none."""

_OWN = ("ansible", "ansible_collections", "ansible_runner", "rolecall")
_State = tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class Freshness:
    """The state of files and folders, and of memory, at one time."""

    states: Mapping[str, _State]
    memory_bytes: int
    growth_limit_bytes: int = GROWTH_LIMIT_BYTES

    @classmethod
    def now(cls, growth_limit_bytes: int = GROWTH_LIMIT_BYTES) -> Self:
        """Take the state of everything that this process has loaded."""
        paths = set(_loaded_files()) | set(_configuration_files())
        folders = {os.path.dirname(path) for path in paths}  # noqa: PTH120 - plain text, and many
        return cls({path: _state(path) for path in sorted(paths | folders)}, _memory_bytes(), growth_limit_bytes)

    def lost(self) -> str:
        """Return what has changed since; empty text when nothing has."""
        for path, state in self.states.items():
            if _state(path) != state:
                return f"{path} has changed"
        grown = _memory_bytes() - self.memory_bytes
        return f"the server has grown by {grown} bytes" if grown > self.growth_limit_bytes else ""


def _loaded_files() -> Iterator[str]:
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if path and name.partition(".")[0] in _OWN and not path.startswith("<"):
            yield path


def _configuration_files() -> Iterable[str]:
    """Return every place where ansible.cfg may come to lie, but for the folder of a play, and what lists plugins."""
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
