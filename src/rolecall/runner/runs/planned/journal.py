"""The notes of a planned run: what was withheld, and where the plan ended. They are lines of JSON in the plan's folder.

The processes of a run append to one file, each line with a single system call, so that lines never mix. The first line
says that withholding was in force; a file without it must not be trusted. Nothing here imports Ansible.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

DIRECTORY_VARIABLE = "ROLECALL_PLAN_DIRECTORY"
"""Makes a run a planned run; its value is the plan's folder."""

RUN_COMMANDS_VARIABLE = "ROLECALL_PLAN_RUN_COMMANDS"
"""With the value 1, what would be withheld runs for real."""

FILE_NAME = "withheld.jsonl"
_STARTED, _WITHHELD, _ENDED = "started", "withheld", "ended"


@dataclass(frozen=True, slots=True)
class WithheldTask:
    """A task, or something that a task uses, that was not run."""

    task_id: str
    """What events call ``task_uuid``."""
    task: str
    place: str
    """File and line, as ``path:line``; empty if unknown."""
    action: str
    reason: str
    host: str = ""
    may_run: bool = True
    """Whether ``--run-commands`` runs it."""


@dataclass(frozen=True, slots=True)
class EndedAt:
    """Where a plan ended because nobody knows what a withheld task would have given."""

    task_id: str
    task: str
    place: str
    number: int
    """How many tasks had begun, this one included."""
    used: WithheldTask
    """What it depends on."""
    how: str
    """In which way, as the middle of a sentence: ``uses the result of 'Ask'``."""

    @property
    def message(self) -> str:
        """What to tell the user, on one line."""
        advice = "; --run-commands runs it" if self.used.may_run else ""
        why = f"which a plan does not run ({self.used.action}: {self.used.reason})"
        return f"complete up to task {self.number}: {self.task}: {self.how}, {why}{advice}"


@dataclass(frozen=True, slots=True)
class Notes:
    """Everything that was written."""

    was_in_force: bool
    withheld: tuple[WithheldTask, ...]
    ended: EndedAt | None


class Journal:
    """Appends to the notes of one planned run, and reads them."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME

    def start(self) -> None:
        """Note that withholding is in force from now on. Raises OSError."""
        self._append({_STARTED: True})

    def withhold(self, task: WithheldTask) -> None:
        """Note that something was not run. Raises OSError."""
        self._append({_WITHHELD: asdict(task)})

    def end(self, ended: EndedAt) -> None:
        """Note where the plan ended. Raises OSError."""
        self._append({_ENDED: asdict(ended)})

    def read(self) -> Notes:
        """Return what was written; each withheld task and the first end once. Raises OSError, and ValueError."""
        lines = [json.loads(line) for line in self._path.read_text(encoding="utf-8").splitlines()]
        withheld = dict.fromkeys(WithheldTask(**line[_WITHHELD]) for line in lines if _WITHHELD in line)
        ended = next((_ended(line[_ENDED]) for line in lines if _ENDED in line), None)
        return Notes(any(_STARTED in line for line in lines), tuple(withheld), ended)

    @property
    def has_ended(self) -> bool:
        """Whether a process of the run has noted an end."""
        return f'{{"{_ENDED}":' in self._path.read_text(encoding="utf-8")

    def _append(self, line: Mapping[str, Any]) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, json.dumps(line).encode() + b"\n")
        finally:
            os.close(descriptor)


def _ended(content: Mapping[str, Any]) -> EndedAt:
    return EndedAt(**{**content, "used": WithheldTask(**content["used"])})
