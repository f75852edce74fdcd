"""The events of a run and its summary, as plain values.

A ``RunEvent`` is the small part of one ansible-runner event that the operator needs; a ``RunSummary`` is the result of
a whole run. Both can be logged, sent through a pipe and built by tests. Texts contain no colours, and messages are
never longer than 2 KiB.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

MESSAGE_LIMIT_BYTES = 2048
"""The longest message of a run: it has to fit into a condition and into a log line."""

HIDDEN = "hidden, because the task says no_log"

Status = Literal["successful", "failed", "timeout", "canceled", "error"]

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def strip_colours(text: str) -> str:
    """Return the text without terminal control sequences and carriage returns."""
    return _COLOUR.sub("", text).replace("\r", "")


def cut(text: str, limit_bytes: int = MESSAGE_LIMIT_BYTES) -> str:
    """Return the text, cut to that many bytes of UTF-8 at a character boundary."""
    encoded = text.encode("utf-8", errors="replace")
    if len(encoded) <= limit_bytes:
        return encoded.decode("utf-8")
    mark = "…"
    return encoded[: limit_bytes - len(mark.encode())].decode("utf-8", errors="ignore") + mark


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One event of a run, reduced to what the log and the summary need.

    ``name`` is ansible-runner's (``runner_on_failed``, ...), empty if it gives none. ``full_name`` is the name of a
    starting task with its role, if it differs from ``task``. ``started`` is when the task of a result started, in ISO
    8601. ``message`` is censored and cut already; ``stdout`` is
    what Ansible printed, without colours, and empty for a censored result.
    """

    name: str = ""
    created: str = ""
    started: str = ""
    task: str = ""
    full_name: str = ""
    task_id: str = ""
    task_path: str = ""
    action: str = ""
    host: str = ""
    item: str = ""
    message: str = ""
    stdout: str = ""
    changed: bool = False
    censored: bool = False
    ignored: bool = False
    duration_seconds: float = 0.0
    requeue: Mapping[str, Any] | None = None
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    stats: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return one line of JSON, without empty fields."""
        return json.dumps({key: value for key, value in asdict(self).items() if value})

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Parse what ``to_json`` wrote. Raises ValueError or TypeError if it is something else."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """One reason why a run failed; ``task`` is empty if no task is to blame."""

    task: str
    host: str
    message: str

    def __str__(self) -> str:
        """Return one line for a condition or the log: the task, the host unless it is localhost, the message."""
        if not self.task:
            return cut(self.message)
        place = "" if self.host in ("", "localhost") else f" on {self.host}"
        return cut(f"Task {self.task!r}{place}: {self.message}")


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of the play recap for localhost."""

    ok: int = 0
    changed: int = 0
    skipped: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The result of one run.

    ``completion`` is the time of the recap as the Go runner writes it. At most one of ``requeue_after_seconds`` and
    ``requeue_at`` (POSIX time in seconds) is set: the requeue that the role requested. ``stats`` has the values of
    ``set_stats``. ``peak_memory_bytes`` is the most private memory that a process of the run had, 0 if not known.
    """

    status: Status
    rc: int | None = None
    failures: tuple[TaskFailure, ...] = ()
    unreachable: bool = False
    counts: Counts = Counts()
    completion: str = ""
    requeue_after_seconds: float | None = None
    requeue_at: float | None = None
    stats: Mapping[str, Any] = field(default_factory=dict)
    duration_seconds: float = 0.0
    stdout_tail: str = ""
    peak_memory_bytes: int = 0

    @classmethod
    def of_failure(cls, message: str, status: Status = "error") -> Self:
        """Return the summary of a run that failed without a task, for example because it never started."""
        return cls(status, failures=(TaskFailure("", "", message),))

    @property
    def is_successful(self) -> bool:
        """Whether every task of the role succeeded."""
        return self.status == "successful"

    @property
    def is_interrupted(self) -> bool:
        """Whether the run was stopped before its end by the operator: neither a success nor a failure."""
        return self.status == "canceled"

    @property
    def message(self) -> str:
        """All failures, one per line, in order; empty after a success."""
        return cut("\n".join(str(failure) for failure in self.failures))
