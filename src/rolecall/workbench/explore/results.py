"""The results of an exploration: as values, as text with a row for each edit, as JSON, and as examples to repeat.

docs/reference/command-line.md describes the document.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from rolecall.kube.quantities import format_duration
from rolecall.workbench.comparison.reports import ExitCode, Line, TaskName, counted, paragraph, task_text, task_to_json
from rolecall.workbench.explore.reduction import Walk
from rolecall.workbench.explore.rules import Rule, Symptom
from rolecall.workbench.plan.model import PlanError

FORMAT: Final = 1
"""The version of the document's format, and of examples."""

_EDIT_WIDTH: Final = 36
_INDENT: Final = " " * (_EDIT_WIDTH + 7)


class Verdict(StrEnum):
    """The outcome of one edit."""

    SAME = "same"
    DIFFERS = "differs"
    FAILS = "fails"
    CHANGES = "changes"
    REMAINS = "remains"
    REJECTED = "rejected late"
    NOT_TRIED = "not tried"


_VERDICTS: Final = (Verdict.DIFFERS, Verdict.DIFFERS, Verdict.CHANGES, Verdict.FAILS, Verdict.REMAINS)
VERDICTS: Final = dict(zip(Rule, _VERDICTS, strict=True))


@dataclass(slots=True)
class Finding:
    """A broken rule with its first edit, and how many edits show it; ``walk`` has the specs that show it from S0."""

    number: int
    symptom: Symptom
    edit: str
    walk: Walk = ()
    deletes: bool = False
    count: int = 1
    process: int = 0
    """The number of the other process."""

    example: Path | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One edit: its number, text, and fields, its outcome, and what it has found first, or again; 0 for no edit."""

    number: int
    edit: str
    fields: tuple[str, ...]
    verdict: Verdict
    message: str = ""
    new: tuple[Finding, ...] = ()
    again: tuple[int, ...] = ()


@dataclass(slots=True)
class Exploration:
    """The rows and findings of one object, filled while the walk goes on.

    ``rejected`` counts the edits that the API server rejected, ``kept`` differences of objects that roles keep. It
    ``is_unfinished`` if the time was over before the first edit, or before something was found again.
    """

    title: str
    seed: int
    rows: list[Row] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    withheld: tuple[TaskName, ...] = ()
    stopped_at: str = ""
    is_unfinished: bool = False
    rejected: int = 0
    kept: int = 0
    was_interrupted: bool = False
    seconds: float = 0.0

    @property
    def edits(self) -> int:
        """The number of edits that were tried; a row without fields shows what the object shows without one."""
        return sum(bool(each.fields) for each in self.rows)

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command: a finding takes precedence over what could not be tried."""
        if self.findings:
            return ExitCode.DIFFERENT
        is_incomplete = (
            self.stopped_at or self.is_unfinished or any(each.verdict is Verdict.NOT_TRIED for each in self.rows)
        )
        return ExitCode.INCOMPLETE if is_incomplete else ExitCode.SAME


_STYLES: Final = {Verdict.SAME: "green", Verdict.NOT_TRIED: "yellow", Verdict.REJECTED: "yellow"}


def header() -> Iterator[Line]:
    """Yield the line above the rows."""
    yield Line(f"{'#':>4}  {'edit':<{_EDIT_WIDTH}} outcome", "bold")


def rows_of(row: Row) -> Iterator[Line]:
    """Yield the lines of an edit."""
    start = f"{row.number:4}  {row.edit:<{_EDIT_WIDTH}} "
    if len(row.edit) > _EDIT_WIDTH:
        yield Line(f"{row.number:4}  {row.edit}")
        start = _INDENT
    style = _STYLES.get(row.verdict, "red")
    texts = [text for each in row.new for text in _texts_of(each)]
    texts += [f"{row.verdict.upper()} as in finding {number}" for number in row.again]
    if not texts:
        outcome: str = "same as a fresh object" if row.verdict is Verdict.SAME else row.verdict
        texts = [outcome + (f": {row.message}" if row.message else "")]
    for text in texts:
        yield from paragraph(start, text, style)
        start = _INDENT


def _texts_of(found: Finding) -> Iterator[str]:
    symptom = found.symptom
    verdict = VERDICTS[symptom.rule].upper()
    by = f" (made by {symptom.task.shown_location})" if symptom.task and symptom.task.location else ""
    is_placed = symptom.rule in (Rule.VALID, Rule.QUIET) or " fails" in f" {symptom.text}"
    text = symptom.text.removeprefix("fails ") if symptom.rule is Rule.VALID else symptom.text
    yield f"{verdict}{' ' if symptom.rule is Rule.VALID else ': '}{text}{'' if is_placed else by}"
    yield f"remedy: {symptom.remedy}"


def summary_of(found: Exploration, directory: Path) -> Iterator[Line]:
    """Yield the last lines: the findings, what could not be tried, and the counts."""
    for each in found.findings:
        start = f"finding {each.number}, rule {each.symptom.rule}, {counted(each.count, 'edit')}: "
        yield from paragraph(start, f"{each.symptom.text} [{each.example or 'no example'}]", "red")
    for note in found.notes:
        yield from paragraph("", note)
    if found.withheld:
        yield Line(f"{counted(len(found.withheld), 'task')} did not run: {', '.join(map(task_text, found.withheld))}")
    if found.stopped_at:
        yield from paragraph("explored up to task ", found.stopped_at, "red")
    if found.was_interrupted:
        yield Line("Interrupted: this is what was found before", "yellow")
    counts = Counter(each.verdict for each in found.rows)
    verdicts = ", ".join(f"{counts[each]} {each}" for each in Verdict if counts[each]) or "none tried"
    fields = len({name for row in found.rows for name in row.fields})
    edits = f"{counted(found.edits, 'edit')} of {counted(fields, 'field')} in {format_duration(round(found.seconds))}"
    more = f" Seed {found.seed}." + (f" Shortest examples in {directory}/" if found.findings else "")
    yield Line(f"{found.title}: {edits}: {verdicts}.{more}", "bold")


def document_of(found: Exploration) -> dict[str, Any]:
    """Return an exploration as a JSON document."""
    return {
        "format": FORMAT,
        "rolecall": version("rolecall"),
        "object": found.title,
        "seed": found.seed,
        "result": found.exit_code.result,
        "edits": [
            {"number": row.number, "edit": row.edit, "verdict": str(row.verdict), "message": row.message}
            | {"findings": [*(each.number for each in row.new), *row.again]}
            for row in found.rows
        ],
        "findings": [_finding_to_json(each) for each in found.findings],
        "rejectedByApiServer": found.rejected,
        "kept": found.kept,
        "stoppedAt": found.stopped_at,
        "withheld": [task_to_json(task) for task in found.withheld],
        "notes": list(found.notes),
        "interrupted": found.was_interrupted,
        "seconds": round(found.seconds, 1),
    }


def _finding_to_json(found: Finding) -> dict[str, Any]:
    symptom = found.symptom
    task = task_to_json(symptom.task) if symptom.task else None
    texts = {"place": symptom.place, "text": symptom.text, "remedy": symptom.remedy, "edit": found.edit}
    head = {"number": found.number, "rule": str(symptom.rule), "task": task}
    return head | texts | {"count": found.count, "example": str(found.example or "")}


def write_example(found: Finding, start: Any, directory: Path, seed: int) -> None:
    """Write the specs that show a finding to a file of the directory. Raises OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{found.number}-{found.symptom.rule}.json"
    processes = {"seed": seed, "process": found.process}
    content = {"format": FORMAT, "finding": found.symptom.text, **processes, "deletes": found.deletes, "from": start}
    path.write_text(json.dumps({**content, "specs": list(found.walk)}, indent=2, ensure_ascii=False) + "\n")
    found.example = path


@dataclass(frozen=True, slots=True)
class Example:
    """The content of an example: the first spec, the ones that follow, and whether the object is deleted then.

    ``seed`` and ``process`` decide the hash seeds of its processes.
    """

    start: dict[str, Any]
    walk: Walk
    deletes: bool
    seed: int = 0
    process: int = 0

    @classmethod
    def read(cls, path: Path) -> "Example":
        """Return the example in a file. Raises PlanError."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                raise PlanError(f"{path}: expected format {FORMAT}, found {content['format']!r}")
            specs = [content["from"], *content["specs"]]
            processes = int(content["seed"]), int(content["process"])
            return cls(dict(specs[0]), tuple(map(dict, specs[1:])), bool(content["deletes"]), *processes)
        except OSError as error:
            raise PlanError(f"{path}: cannot be read: {error.strerror}") from error
        except (ValueError, LookupError, TypeError) as error:
            raise PlanError(f"{path}: expected an example written by rolecall explore, found {error}") from error
