"""The report: rows with what was measured, the goal where there is one, and whether it is met; as Markdown.

Pure. A row keeps all its samples, so that a reader sees the spread behind a median and no reader can pick the best of
five. Goals are upper limits.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report: what was measured, the value, its unit, the limit it should keep, and remarks."""

    what: str
    value: float
    unit: str
    goal: float | None = None
    remark: str = ""

    @property
    def verdict(self) -> str:
        """Return whether the goal is met; nothing without a goal."""
        if self.goal is None:
            return ""
        return "met" if self.value <= self.goal else "**missed**"


@dataclass(frozen=True, slots=True)
class Samples:
    """Repeated measurements of one thing."""

    values: Sequence[float] = field(default_factory=tuple)

    @property
    def median(self) -> float:
        """The middle value. Raises StatisticsError without any."""
        return statistics.median(self.values)

    def percentile(self, percent: float) -> float:
        """Return the smallest value that so many per cent of all do not exceed. Raises ValueError without any."""
        if not self.values:
            raise ValueError("percentile of no samples")
        ordered = sorted(self.values)
        return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]

    @property
    def spread(self) -> str:
        """The smallest and the largest value, for a remark."""
        return f"{number(min(self.values))} to {number(max(self.values))}"


def number(value: float) -> str:
    """Write a number with three significant digits at most, and whole from a hundred on."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits are enough


def head(machine: Mapping[str, str]) -> str:
    """Write what the numbers were measured with."""
    return "".join(f"- {name}: {text}\n" for name, text in machine.items())


def markdown(rows: Sequence[Row]) -> str:
    """Write the table."""
    lines = ["| what | measured | goal | | remark |", "|---|---|---|---|---|"]
    lines += [_line(row) for row in rows]
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    goal = "" if row.goal is None else f"≤ {row.goal:g} {row.unit}"
    return f"| {row.what} | {number(row.value)} {row.unit} | {goal} | {row.verdict} | {row.remark} |"
