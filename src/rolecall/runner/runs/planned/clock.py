"""The clock of a replayed run: it shows the times of the first run, because roles compare times.

Python's clock is set back in the process of ansible-playbook and all processes forked from it. Whenever a task starts,
the clock is set to the time at which that task started in the first run: a role that measures a duration gets the same
result, regardless of the machine's speed. A module in its own process sees the real time.
"""

import json
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

CLOCK_VARIABLE: Final = "ROLECALL_PLAN_CLOCK"
"""The file with the times of the first run."""


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


def install(variables: Mapping[str, str]) -> TaskClock:
    """Set the clock of this process back, if its environment requests it. Raises OSError."""
    if not (file := variables.get(CLOCK_VARIABLE)):
        return TaskClock()
    import time_machine  # noqa: PLC0415 - it changes functions of the interpreter, so only replays load it

    times = json.loads(Path(file).read_text(encoding="utf-8"))
    clock = TaskClock(time_machine.travel(time.time() - times["behind"], tick=True).start())
    for name, host, seconds in times["tasks"]:
        clock.starts[name, host].append(seconds)
    return clock
