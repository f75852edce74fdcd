"""The results of a crash test: as values, as text with a row for each trial when it has ended, and as JSON.

docs/reference/command-line.md describes the document.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from rolecall.kube.quantities import format_duration
from rolecall.workbench.comparison.end_states import Difference
from rolecall.workbench.comparison.reports import (
    STYLES,
    ExitCode,
    Line,
    TaskName,
    counted,
    paragraph,
    task_text,
    task_to_json,
)
from rolecall.workbench.crashtest.write_log import Write

FORMAT: Final = 1
"""The version of the document's format."""

_BAD: Final = "red"
_INDENT: Final = " " * 17


class Verdict(StrEnum):
    """The result of one trial."""

    SAME = "same"
    DIFFERS = "differs"
    STUCK = "stuck"
    ENDLESS = "endless"


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of the object after the operator was killed at a write.

    ``message`` is why it was stuck or endless. ``records`` is the directory with the records of its runs.
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
        """The exit code of the command: a difference takes precedence over what could not be tested."""
        if any(trial.verdict is not Verdict.SAME for trial in self.trials):
            return ExitCode.DIFFERENT
        return ExitCode.INCOMPLETE if self.stopped_at else ExitCode.SAME


def rows_of(trial: Trial) -> Iterator[Line]:
    """Yield the lines of a trial."""
    style = "green" if trial.verdict is Verdict.SAME else _BAD
    yield Line(f"{trial.number:4}  {trial.verdict:<9}  {task_text(trial.write.task)}", style)
    yield Line(f"{_INDENT}{trial.write.request}")
    if trial.message:
        yield from paragraph(_INDENT, trial.message, style)
    for each in trial.differences:
        yield from _difference(each)
    if trial.records:
        yield Line(f"{_INDENT}records: {trial.records}")


def _difference(found: Difference) -> Iterator[Line]:
    if not found.path:
        sign = "+" if found.found == "additional" else "-"
        yield from paragraph(f"{_INDENT}{sign} ", f"{found.subject} is {found.found}", STYLES[sign])
        return
    yield from paragraph(f"{_INDENT}~ ", f"{found.subject}: {found.path}", STYLES["~"])
    for sign, text in (("-", found.expected), ("+", found.found)):
        if text:
            yield from paragraph(f"{_INDENT}  {sign}", text, STYLES[sign])


def summary_of(found: CrashTest) -> Iterator[Line]:
    """Yield the last lines: what could not be tested, and the counts."""
    for note in found.notes:
        yield from paragraph("", note)
    if found.withheld:
        yield Line(f"{counted(len(found.withheld), 'task')} did not run: {', '.join(map(task_text, found.withheld))}")
    if found.stopped_at:
        yield from paragraph("tested up to task ", found.stopped_at, _BAD)
    counts = Counter(trial.verdict for trial in found.trials)
    verdicts = ", ".join(f"{counts[each]} {each}" for each in Verdict if counts[each])
    tried = f"{len(found.trials)} of {counted(len(found.writes), 'write')}"
    yield Line(f"{found.title}: killed after {tried} in {format_duration(round(found.seconds))}: {verdicts}", "bold")


def document_of(found: CrashTest) -> dict[str, Any]:
    """Return a crash test as a JSON document."""
    return {
        "format": FORMAT,
        "rolecall": version("rolecall"),
        "object": found.title,
        "result": found.exit_code.result,
        "writes": len(found.writes),
        "trials": [
            {
                "write": trial.number,
                "task": task_to_json(trial.write.task),
                "request": trial.write.request,
                "verdict": str(trial.verdict),
                "message": trial.message,
                "differences": [
                    {"object": each.subject, "path": each.path, "expected": each.expected, "found": each.found}
                    for each in trial.differences
                ],
                "records": str(trial.records or ""),
                "seconds": round(trial.seconds, 1),
            }
            for trial in found.trials
        ],
        "stoppedAt": found.stopped_at,
        "withheld": [task_to_json(task) for task in found.withheld],
        "notes": list(found.notes),
        "seconds": round(found.seconds, 1),
    }
