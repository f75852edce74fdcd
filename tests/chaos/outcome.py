"""What came of disturbances: how long each took to recover from, and what was violated."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

COLUMNS = ("lost", "doubled", "overlapping", "left", "other")
"""What can be violated: an object that does not come to its state, a word that is said twice, two runs of one object at
one time, something that stays behind, and anything else, such as an operator that ends by itself."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that must not be; ``column`` is one of ``COLUMNS``."""

    column: str
    text: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one disturbance; without seconds, it was not recovered from."""

    name: str
    seconds: float | None
    violations: Sequence[Violation] = ()


@dataclass(slots=True)
class Result:
    """What came of all."""

    seed: int
    outcomes: list[Outcome] = field(default_factory=list)
    at_the_end: list[Violation] = field(default_factory=list)
    """What was found when everything had been stopped."""
    remarks: list[str] = field(default_factory=list)

    @property
    def violations(self) -> list[str]:
        """Everything that was violated, each with where."""
        found = [f"{each.name}: {v.column}: {v.text}" for each in self.outcomes for v in each.violations]
        return [*found, *(f"at the end: {v.column}: {v.text}" for v in self.at_the_end)]

    def table(self, names: Sequence[str]) -> str:
        """Return the table in Markdown, with a row for each of these disturbances that happened."""
        head = ("disturbance", "times", "recovery: median (s)", "worst (s)", *COLUMNS)
        rows = [head, ("---",) * len(head), *(self._row(name) for name in names if self._of(name))]
        total = Counter(v.column for each in self.outcomes for v in each.violations)
        total.update(v.column for v in self.at_the_end)
        rows.append(("all, and at the end", str(len(self.outcomes)), "", "", *(str(total[name]) for name in COLUMNS)))
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)

    def _row(self, name: str) -> tuple[str, ...]:
        found = self._of(name)
        seconds = [each.seconds for each in found if each.seconds is not None]
        counts = Counter(v.column for each in found for v in each.violations)
        middle, worst = (f"{median(seconds):.1f}", f"{max(seconds):.1f}") if seconds else ("none", "none")
        return name, str(len(found)), middle, worst, *(str(counts[column]) for column in COLUMNS)

    def _of(self, name: str) -> list[Outcome]:
        return [each for each in self.outcomes if each.name == name]
