"""Results of a judge's cases in each column, their classification, and the table.

A case that fails directly isn't possible here (no real pods, no internet), so it doesn't count. A case that passes
directly must pass through the operator, cold and warm, except where an exception documents the difference and names
the task that fails. A case that a column couldn't start, or skipped, has judged nothing: it never counts as passed.

The report is Markdown, so each message of another program is one short line there, in a code span.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

DIRECT, COLD, WARM = "direct", "cold", "warm"
COLUMNS: Final = (DIRECT, COLD, WARM)
MAX_MESSAGE: Final = 300


class State(StrEnum):
    """Whether a case passed in a column; SKIPPED is the case's own decision, NOT_RUN is this command's failure."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The state of a case in a column; the task and message of its failure."""

    state: State
    seconds: float = 0.0
    task: str = ""
    message: str = ""

    @property
    def passed(self) -> bool:
        """Whether the case passed."""
        return self.state is State.PASSED


@dataclass(frozen=True, slots=True)
class DocumentedDifference:
    """A documented difference: the task that fails through the operator, and why."""

    task: str
    reason: str


class Verdict(StrEnum):
    """The meaning of a case's outcomes."""

    PASSES = "passes"
    NOT_POSSIBLE = "not possible here"
    DOCUMENTED = "documented difference"
    OUTDATED = "passes in spite of a documented difference"
    DIFFERS = "differs"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Judged:
    """The outcomes of one judge: for each case, the outcome in each column where it ran."""

    judge: str
    outcomes: Mapping[str, Mapping[str, Outcome]]
    exceptions: Mapping[str, DocumentedDifference] = field(default_factory=dict)
    error: str = ""
    through: Sequence[str] = (COLD, WARM)

    def verdict(self, case: str) -> Verdict:
        """Classify a case; a missing column counts as not run, but a judge may lack the direct one."""
        direct = self.outcome(case, DIRECT)
        if self.has_direct and not direct.passed:
            return Verdict.NOT_RUN if direct.state is State.NOT_RUN else Verdict.NOT_POSSIBLE
        exception = self.exceptions.get(case)
        through = [self.outcome(case, column) for column in self.through]
        if all(each.passed for each in through):
            return Verdict.OUTDATED if exception else Verdict.PASSES
        if exception and all(each.state is State.FAILED and each.task == exception.task for each in through):
            return Verdict.DOCUMENTED
        return Verdict.NOT_RUN if State.NOT_RUN in {each.state for each in through} else Verdict.DIFFERS

    @property
    def has_direct(self) -> bool:
        """Whether the judge has a direct column."""
        return any(DIRECT in each for each in self.outcomes.values())

    def outcome(self, case: str, column: str) -> Outcome:
        """Return the outcome of a case in a column."""
        return self.outcomes[case].get(column, Outcome(State.NOT_RUN, message="no outcome"))

    def cases(self, verdict: Verdict) -> list[str]:
        """Return the cases with a verdict."""
        return [case for case in self.outcomes if self.verdict(case) is verdict]

    @property
    def fails(self) -> bool:
        """Whether a case differs without an exception, or the judge or one of its cases couldn't run."""
        return bool(self.error or not self.outcomes or self.cases(Verdict.DIFFERS) or self.cases(Verdict.NOT_RUN))


def report(judged: Sequence[Judged]) -> str:
    """Return the table, in Markdown, and below it each case that doesn't pass in every column."""
    head = ["judge", "cases", *(f"passed {column}" for column in COLUMNS), "differences"]
    lines = [head, ["---"] * len(head), *map(_row, judged)]
    details = [text for each in judged for text in _details(each)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([table, "", *details, ""]) if details else f"{table}\n"


def _row(judged: Judged) -> list[str]:
    if judged.error:
        return [judged.judge, "0", "", "", "", "not run"]
    counts = [_count([each[column] for each in judged.outcomes.values() if column in each]) for column in COLUMNS]
    numbers = {verdict: len(judged.cases(verdict)) for verdict in Verdict}
    differences = [str(numbers[Verdict.DIFFERS])]
    differences += [f"{numbers[Verdict.DOCUMENTED]} documented"] if numbers[Verdict.DOCUMENTED] else []
    differences += [f"{numbers[Verdict.NOT_RUN]} not run"] if numbers[Verdict.NOT_RUN] else []
    return [judged.judge, str(len(judged.outcomes)), *counts, ", and ".join(differences)]


def _count(column: Sequence[Outcome]) -> str:
    """Return how many cases of a column passed and were skipped."""
    states = [each.state for each in column]
    skipped = f", {states.count(State.SKIPPED)} skipped" if State.SKIPPED in states else ""
    return f"{states.count(State.PASSED)} of {len(column)}{skipped}" if column else ""


def _details(judged: Judged) -> list[str]:
    if judged.error:
        return [f"- {judged.judge}: {_plain(judged.error)}"]
    found = []
    for case, outcomes in judged.outcomes.items():
        verdict = judged.verdict(case)
        if verdict is Verdict.PASSES:
            continue
        line = f"- {judged.judge}, {case}: {verdict}"
        if verdict in (Verdict.DOCUMENTED, Verdict.OUTDATED):
            line += f" ({judged.exceptions[case].reason})"
        expected = (
            () if verdict is Verdict.NOT_POSSIBLE else (*judged.through, *([DIRECT] if judged.has_direct else ()))
        )
        for column in COLUMNS if verdict is not Verdict.DOCUMENTED else ():
            if column in outcomes or column in expected:
                outcome = judged.outcome(case, column)
                where = f" in {_plain(outcome.task)}" if outcome.task else ""
                line += "" if outcome.passed else f"; {column} {outcome.state}{where}: {_plain(outcome.message)}"
        found.append(line)
    return found


def _plain(message: str) -> str:
    """Return a message of another program as one short line, in a code span."""
    text = "".join(filter(str.isprintable, " ".join(message.split()))).replace("`", "'") or "no message"
    return f"`{text if len(text) <= MAX_MESSAGE else f'{text[:MAX_MESSAGE]}…'}`"
