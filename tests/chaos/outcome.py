"""Outcomes of faults: recovery times and violations."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

COLUMNS = ("unconverged", "duplicated", "overlapping", "leaked", "other")
"""Kinds of violations: an object that does not converge, a repeated word, concurrent runs of one object, leftover
processes, files, or objects, and anything else, such as an operator that exits by itself."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One violation; ``column`` is one of ``COLUMNS``."""

    column: str
    text: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one fault; ``seconds`` is None without recovery."""

    name: str
    seconds: float | None
    violations: Sequence[Violation] = ()


@dataclass(slots=True)
class Result:
    """The outcomes of all faults."""

    seed: int
    outcomes: list[Outcome] = field(default_factory=list)
    after_stop: list[Violation] = field(default_factory=list)
    """Violations found after everything had stopped."""
    remarks: list[str] = field(default_factory=list)

    @property
    def violations(self) -> list[str]:
        """All violations, each with its fault."""
        found = [f"{each.name}: {v.column}: {v.text}" for each in self.outcomes for v in each.violations]
        return [*found, *(f"after stop: {v.column}: {v.text}" for v in self.after_stop)]

    def table(self, names: Sequence[str]) -> str:
        """Return the Markdown table, with a row for each of these faults that happened."""
        head = ("fault", "times", "recovery: median (s)", "worst (s)", *COLUMNS)
        rows = [head, ("---",) * len(head), *(self._row(name) for name in names if self._of(name))]
        total = Counter(v.column for each in self.outcomes for v in each.violations)
        total.update(v.column for v in self.after_stop)
        rows.append(("all, and after stop", str(len(self.outcomes)), "", "", *(str(total[name]) for name in COLUMNS)))
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)

    def _row(self, name: str) -> tuple[str, ...]:
        found = self._of(name)
        seconds = [each.seconds for each in found if each.seconds is not None]
        counts = Counter(v.column for each in found for v in each.violations)
        median_seconds, worst = (f"{median(seconds):.1f}", f"{max(seconds):.1f}") if seconds else ("none", "none")
        return name, str(len(found)), median_seconds, worst, *(str(counts[column]) for column in COLUMNS)

    def _of(self, name: str) -> list[Outcome]:
        return [each for each in self.outcomes if each.name == name]
