"""The command line and the mark of a forked process, as /proc shows them to others.

A process that is forked but not executed keeps its parent's command line and environment there. Both are in the
process's own memory. ``ProcessTitles`` overwrites them, so that the processes of a run carry the run's mark (see
``rolecall.system.process_tree``) from the start, and ``ps`` shows what a process does. The server is started with
``SLOT_VARIABLE`` in its environment, which reserves the space for the mark.
"""

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rolecall.runner.runs.run_processes import RUN_VARIABLE

SLOT_VARIABLE = "ROLECALL_NON"
"""Reserves space for the mark; its name is as long as ``RUN_VARIABLE``, which overwrites it."""

SLOT_VALUE = "-" * 64
TITLE_ROOM = " " * 96
"""An argument of the server that reserves space for longer command lines."""

_FIRST_FIELD = 3
_ARGUMENTS_START, _ARGUMENTS_END, _ENVIRONMENT_START, _ENVIRONMENT_END = 48, 49, 50, 51


@dataclass(frozen=True, slots=True)
class ProcessTitles:
    """Where the command line and the slot for the mark are in memory."""

    arguments: int
    arguments_size: int
    slot: int

    @classmethod
    def find(cls) -> Self:
        """Find the addresses. Raises OSError if /proc does not show them or the process has no slot."""
        stat = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        fields = (_ARGUMENTS_START, _ARGUMENTS_END, _ENVIRONMENT_START, _ENVIRONMENT_END)
        start, end, first, last = (int(stat[field - _FIRST_FIELD]) for field in fields)
        if not 0 < start < end <= first < last:
            raise OSError("/proc/self/stat does not show where the command line of this process is")
        offset = ctypes.string_at(first, last - first).find(f"{SLOT_VARIABLE}={SLOT_VALUE}".encode())
        if offset < 0:
            raise OSError(f"{SLOT_VARIABLE} is missing in the environment of this process")
        return cls(start, end - start, first + offset)

    def mark(self, ident: str) -> None:
        """Mark this process as one of a run. Raises ValueError if the run's name is too long."""
        text = f"{RUN_VARIABLE}={ident}".encode()
        room = len(SLOT_VARIABLE) + 1 + len(SLOT_VALUE)
        if len(text) > room:
            raise ValueError(f"cannot mark the processes of run {ident!r}: its name is longer than {len(SLOT_VALUE)}")
        ctypes.memmove(self.slot, text.ljust(room, b"\0"), room)

    def rename(self, *words: str) -> None:
        """Set the command line; what does not fit is cut off."""
        text = "\0".join(words).encode(errors="replace")[: self.arguments_size - 1]
        ctypes.memmove(self.arguments, text.ljust(self.arguments_size, b"\0"), self.arguments_size)
