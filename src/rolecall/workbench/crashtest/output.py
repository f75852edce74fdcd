"""A crash test as text, a row for each trial as soon as it has ended, and as a JSON document.

docs/reference/command-line.md describes the document.
"""

from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any, Final

from rolecall.kube.quantities import format_duration
from rolecall.workbench.comparison.end_states import Difference
from rolecall.workbench.comparison.reports import STYLES, Line, counted, paragraph, task_text, task_to_json
from rolecall.workbench.crashtest.model import CrashTest, Trial, Verdict

FORMAT: Final = 1
"""The version of the document's format."""

_STYLES: Final = {Verdict.SAME: "green", Verdict.NOT_TRIED: "yellow"}
_BAD: Final = "red"
_INDENT: Final = " " * 17


def rows_of(trial: Trial) -> Iterator[Line]:
    """Yield the lines of a trial."""
    style = _STYLES.get(trial.verdict, _BAD)
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
        "trials": [_trial_to_json(trial) for trial in found.trials],
        "stoppedAt": found.stopped_at,
        "withheld": [task_to_json(task) for task in found.withheld],
        "notes": list(found.notes),
        "seconds": round(found.seconds, 1),
    }


def _trial_to_json(trial: Trial) -> dict[str, Any]:
    return {
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
