"""The files in a plan's directory: the journal (what was withheld, and where the plan ended), and times for the clock.

The processes of a run append lines of JSON to one file, each with a single system call, so that lines never mix. The
first line reports that withholding was in force; a file without it must not be trusted. Nothing here imports Ansible.

A replayed run shows the times of the first run, because roles compare times. Python's clock is set back in the process
of ansible-playbook and all processes forked from it. Whenever a task starts, the clock is set to the time at which that
task started in the first run: a role that measures a duration gets the same result, regardless of the machine's speed.
A module in its own process sees the real time.
"""

import json
import os
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

DIRECTORY_VARIABLE = "ROLECALL_PLAN_DIRECTORY"
"""Makes a run a planned run; its value is the plan's directory."""

RUN_COMMANDS_VARIABLE = "ROLECALL_PLAN_RUN_COMMANDS"
"""With the value 1, tasks run that would be withheld."""

MAX_WAIT_VARIABLE = "ROLECALL_PLAN_MAX_WAIT_SECONDS"
"""How long a task may wait for an object, in seconds; its own limit applies if it is shorter, or if this isn't set."""

_FILE_NAME = "withheld.jsonl"
_STARTED, _WITHHELD, _ENDED = "started", "withheld", "ended"
CLOCK_VARIABLE: Final = "ROLECALL_PLAN_CLOCK"
"""The file with the times of the first run."""


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
    """Where a plan ended, because the result of a withheld task is unknown."""

    task_id: str
    task: str
    place: str
    number: int
    """How many tasks had started, including this one."""
    used: WithheldTask
    """What it depends on."""
    how: str
    """How, as the middle of a sentence: ``uses the result of 'Ask'``."""

    @property
    def message(self) -> str:
        """The message for the user, on one line."""
        advice = "; --run-commands runs it" if self.used.may_run else ""
        why = f"which a plan does not run ({self.used.action}: {self.used.reason})"
        return f"complete up to task {self.number}: {self.task}: {self.how}, {why}{advice}"


@dataclass(frozen=True, slots=True)
class Notes:
    """The content of a journal."""

    was_in_force: bool
    withheld: tuple[WithheldTask, ...]
    ended: EndedAt | None


class Journal:
    """Appends to the journal of one planned run, and reads it."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / _FILE_NAME

    def start(self) -> None:
        """Record that withholding is in force from now on. Raises OSError."""
        self._append({_STARTED: True})

    def withhold(self, task: WithheldTask) -> None:
        """Record that something was not run. Raises OSError."""
        self._append({_WITHHELD: asdict(task)})

    def end(self, ended: EndedAt) -> None:
        """Record where the plan ended. Raises OSError."""
        self._append({_ENDED: asdict(ended)})

    def read(self) -> Notes:
        """Return the content; each withheld task and the first end once. Raises OSError and ValueError."""
        lines = [json.loads(line) for line in self._path.read_text(encoding="utf-8").splitlines()]
        withheld = dict.fromkeys(WithheldTask(**line[_WITHHELD]) for line in lines if _WITHHELD in line)
        ended = [
            EndedAt(**{**line[_ENDED], "used": WithheldTask(**line[_ENDED]["used"])})
            for line in lines
            if _ENDED in line
        ]
        return Notes(any(_STARTED in line for line in lines), tuple(withheld), ended[0] if ended else None)

    @property
    def has_ended(self) -> bool:
        """Whether a process of the run has recorded an end."""
        return f'{{"{_ENDED}":' in self._path.read_text(encoding="utf-8")

    def _append(self, line: Mapping[str, Any]) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, json.dumps(line).encode() + b"\n")
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class TaskStart:
    """A task of the first run, and the POSIX time at which it started on a host."""

    name: str
    host: str
    seconds: float


def write_times(path: Path, started: float, tasks: Iterable[TaskStart]) -> dict[str, str]:
    """Write when the first run and its tasks started; return the variables for a run that starts now. Raises OSError.

    The tasks are in the order in which they started on their host.
    """
    content = {"behind": time.time() - started, "tasks": [[each.name, each.host, each.seconds] for each in tasks]}
    path.write_text(json.dumps(content), encoding="utf-8")
    return {CLOCK_VARIABLE: str(path)}


@dataclass(slots=True)
class TaskClock:
    """Sets the clock of this process at the start of each task that the first run had too."""

    traveller: Any = None
    starts: dict[tuple[str, str], deque[float]] = field(default_factory=lambda: defaultdict(deque))

    def begin(self, name: str, host: str) -> None:
        """Set the clock to the next time at which a task of this name started on a host."""
        if times := self.starts.get((name, host)):
            self.traveller.move_to(times.popleft(), tick=True)


def set_clock(variables: Mapping[str, str]) -> TaskClock:
    """Set the clock of this process back, if its environment requests it. Raises OSError."""
    if not (file := variables.get(CLOCK_VARIABLE)):
        return TaskClock()
    import time_machine  # noqa: PLC0415 - it changes functions of the interpreter, so only replays load it

    times = json.loads(Path(file).read_text(encoding="utf-8"))
    clock = TaskClock(time_machine.travel(time.time() - times["behind"], tick=True).start())
    for name, host, seconds in times["tasks"]:
        clock.starts[name, host].append(seconds)
    return clock
