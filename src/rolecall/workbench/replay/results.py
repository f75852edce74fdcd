"""What a replay found out. These are values; ``rolecall.workbench.replay.output`` shows them."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from rolecall.workbench.plan.model import ExitCode, TaskName, worst_of


class Verdict(StrEnum):
    """How a replay compares with its record."""

    SAME = "same"
    DIFFERENT = "other writes"
    INCOMPLETE = "complete up to a task"
    FAILED = "failed"


EXIT_CODES: Final = {
    Verdict.SAME: ExitCode.SAME,
    Verdict.DIFFERENT: ExitCode.DIFFERENT,
    Verdict.INCOMPLETE: ExitCode.INCOMPLETE,
    Verdict.FAILED: ExitCode.FAILED,
}


class Change(StrEnum):
    """What is different about a write."""

    CHANGED = "changed"
    MISSING = "missing"
    ADDITIONAL = "additional"
    MOVED = "in another order"


@dataclass(frozen=True, slots=True)
class Difference:
    """One write that differs: ``before`` is what the record has of it, ``after`` what the role does today.

    In ``after`` everything that every run gets anew has the record's value. ``is_secret_derived`` tells that a Secret
    was read before it, whose values are placeholders: the difference may come from these.
    """

    change: Change
    task: TaskName
    method: str
    target: str
    before: Any = None
    after: Any = None
    is_secret_derived: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """What the role asked and the record does not tell; it was answered as not there."""

    task: TaskName
    text: str


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of one record.

    ``status`` is the status of the record and that of today, None if they are the same. ``failure`` is why the role
    fails today, ``recorded_failure`` why it failed then. ``not_reached`` counts the writes of the record after the end
    of a replay that did not come to an end. ``notes`` are sentences.
    """

    path: Path
    kind: str
    name: str
    verdict: Verdict
    differences: tuple[Difference, ...] = ()
    status: tuple[Any, Any] | None = None
    failure: str = ""
    recorded_failure: str = ""
    stopped_at: str = ""
    not_reached: int = 0
    questions: tuple[Question, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that cannot be replayed: one line that says why, and the exit code for it."""

    path: Path
    text: str
    code: int = ExitCode.FAILED


@dataclass(frozen=True, slots=True)
class Replays:
    """What came of all records, in their order."""

    found: tuple[Replay | BadRecord, ...] = ()

    @property
    def exit_code(self) -> int:
        """The code of the first record that cannot be replayed, else the worst one of the others."""
        bad = [each.code for each in self.found if isinstance(each, BadRecord)]
        return bad[0] if bad else worst_of(EXIT_CODES[each.verdict] for each in self.found if isinstance(each, Replay))
