"""Results of a judge's cases in each column, their classification, and the table.

A case that fails directly isn't possible here (no real pods, no internet), so it doesn't count. A case that passes
directly must pass through the operator, cold and warm, except where an exception documents the difference and names
the task that fails.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

DIRECT, COLD, WARM = "direct", "cold", "warm"
COLUMNS: Final = (DIRECT, COLD, WARM)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether a case passed; the task and message of its failure."""

    passed: bool
    seconds: float = 0.0
    task: str = ""
    message: str = ""


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


@dataclass(frozen=True, slots=True)
class Judged:
    """The outcomes of one judge: for each case, the outcome in each column where it ran."""

    judge: str
    outcomes: Mapping[str, Mapping[str, Outcome]]
    exceptions: Mapping[str, DocumentedDifference] = field(default_factory=dict)
    error: str = ""
    through: Sequence[str] = (COLD, WARM)

    def verdict(self, case: str) -> Verdict:
        """Classify a case; a missing column counts as a failure, but a judge may lack the direct one."""
        found = self.outcomes[case]
        if DIRECT in found and not found[DIRECT].passed:
            return Verdict.NOT_POSSIBLE
        exception = self.exceptions.get(case)
        through = [found.get(column, Outcome(passed=False, message="not run")) for column in self.through]
        if all(each.passed for each in through):
            return Verdict.OUTDATED if exception else Verdict.PASSES
        if exception and all(not each.passed and each.task == exception.task for each in through):
            return Verdict.DOCUMENTED
        return Verdict.DIFFERS

    def cases(self, verdict: Verdict) -> list[str]:
        """Return the cases with a verdict."""
        return [case for case in self.outcomes if self.verdict(case) is verdict]

    @property
    def fails(self) -> bool:
        """Whether a case differs without an exception, or the judge itself couldn't run or had no case."""
        return bool(self.error or not self.outcomes or self.cases(Verdict.DIFFERS))


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
    columns = [[each[column].passed for each in judged.outcomes.values() if column in each] for column in COLUMNS]
    differing, documented = len(judged.cases(Verdict.DIFFERS)), len(judged.cases(Verdict.DOCUMENTED))
    differences = f"{differing}, and {documented} documented" if documented else str(differing)
    counts = [f"{sum(column)} of {len(column)}" if column else "" for column in columns]
    return [judged.judge, str(len(judged.outcomes)), *counts, differences]


def _details(judged: Judged) -> list[str]:
    if judged.error:
        return [f"- {judged.judge}: {judged.error}"]
    found = []
    for case, outcomes in judged.outcomes.items():
        verdict = judged.verdict(case)
        if verdict is Verdict.PASSES:
            continue
        line = f"- {judged.judge}, {case}: {verdict}"
        if verdict in (Verdict.DOCUMENTED, Verdict.OUTDATED):
            line += f" ({judged.exceptions[case].reason})"
        failed = {column: outcomes[column] for column in COLUMNS if column in outcomes and not outcomes[column].passed}
        for column, outcome in failed.items():
            where = f" in *{outcome.task}*" if outcome.task else ""
            line += f"; {column} failed{where}: {outcome.message}" if verdict is not Verdict.DOCUMENTED else ""
        found.append(line)
    return found
