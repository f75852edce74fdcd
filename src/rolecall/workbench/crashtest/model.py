"""The request for a crash test and its results, as values. ``rolecall.workbench.crashtest.output`` displays them."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from rolecall.workbench.comparison.end_states import Difference
from rolecall.workbench.comparison.reports import ExitCode, TaskName
from rolecall.workbench.crashtest.write_log import Write
from rolecall.workbench.plan.model import PlanRequest


class Verdict(StrEnum):
    """The result of one trial."""

    SAME = "same"
    DIFFERS = "differs"
    STUCK = "stuck"
    ENDLESS = "endless"
    NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True)
class CrashTestRequest:
    """A request to test one object: the one that ``plan`` names, or the only one of a watched kind in its files.

    By default the test starts with the object as it is, or as its file has it. With ``deletes`` it starts with the
    deletion of the settled object, with ``edited`` with a change of the settled object to the content of that file.
    ``writes`` are the numbers of the writes to try, all if it is empty. The records of bad trials are kept in
    ``records``.
    """

    plan: PlanRequest
    records: Path
    writes: tuple[int, ...] = ()
    deletes: bool = False
    edited: Path | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of the object after the operator was killed at a write.

    ``message`` is why it was stuck, endless, or not tried. ``records`` is the directory with the records of its runs.
    """

    number: int
    write: Write
    verdict: Verdict
    differences: tuple[Difference, ...] = ()
    message: str = ""
    records: Path | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CrashTest:
    """The trials of one object in their order, out of ``writes`` that an uninterrupted run needs.

    ``stopped_at`` is the task up to which the role can be tested, and the reason; it is empty if the role can be tested
    completely. ``withheld`` are tasks that did not run. ``notes`` are sentences. ``seconds`` is the whole duration.
    """

    title: str
    writes: tuple[Write, ...]
    trials: tuple[Trial, ...]
    stopped_at: str = ""
    withheld: tuple[TaskName, ...] = ()
    notes: tuple[str, ...] = field(default=())
    seconds: float = 0.0

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command: a difference takes precedence over what could not be tried."""
        verdicts = {trial.verdict for trial in self.trials}
        if verdicts - {Verdict.SAME, Verdict.NOT_TRIED}:
            return ExitCode.DIFFERENT
        return ExitCode.INCOMPLETE if self.stopped_at or Verdict.NOT_TRIED in verdicts else ExitCode.SAME
