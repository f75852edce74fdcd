"""The tables of the report: a row for each measure, a column for each contender, goals for rolecall warm; as Markdown.

Pure. A measure has all samples of each contender; a cell shows their median and their spread, so that a reader sees the
spread and no reader can pick the best of five. Ratios are of medians. Most measures have a first and a second goal.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench.contenders import COLD, PEER, WARM


@dataclass(frozen=True, slots=True)
class Measure:
    """One line: what is measured, in which unit, the samples by contender, the goals of rolecall warm, and a remark.

    Goals are the most that a value should be, or the least; the easiest comes first.
    """

    what: str
    unit: str
    samples: Mapping[str, Sequence[float]]
    goals: tuple[float, ...] = ()
    remark: str = ""
    are_goals_least: bool = False

    @property
    def verdict(self) -> str:
        """Return how many of the goals rolecall warm meets; nothing without goals or without it."""
        if not self.goals or not self.samples.get(WARM):
            return ""
        value = statistics.median(self.samples[WARM])
        met = [value >= goal if self.are_goals_least else value <= goal for goal in self.goals]
        return "met" if all(met) else "first met" if any(met) else "**missed**"

    def ratio(self, contender: str) -> str:
        """Return how many times as much as rolecall warm another contender has."""
        if not self.samples.get(contender) or not self.samples.get(WARM):
            return ""
        warm = statistics.median(self.samples[WARM])
        return number(statistics.median(self.samples[contender]) / warm) if warm else ""


def of_warm(what: str, value: float, unit: str, goal: float | None = None, remark: str = "") -> Measure:
    """Return a measure with one value, that of rolecall warm, and the most that it should be."""
    return Measure(what, unit, {WARM: [value]}, () if goal is None else (goal,), remark)


@dataclass(slots=True)
class Collection:
    """Samples of one measure while they are taken."""

    samples: dict[str, list[float]] = field(default_factory=dict)

    def add(self, contender: str, value: float) -> None:
        """Add one sample."""
        self.samples.setdefault(contender, []).append(value)

    def __str__(self) -> str:
        """Return the median of each contender, for a line of progress."""
        return ", ".join(f"{name} {statistics.median(values):.2f}" for name, values in self.samples.items())


def number(value: float) -> str:
    """Write a number with three significant digits at most, and whole from a hundred on."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits are enough


def head(machine: Mapping[str, str]) -> str:
    """Write what the numbers were measured with."""
    return "".join(f"- {name}: {text}\n" for name, text in machine.items())


def table(measures: Sequence[Measure], names: Sequence[str]) -> str:
    """Write the table with a column for each of these contenders."""
    others = [name for name in (COLD, PEER) if name in names]
    columns = ["measure", "goal", "", *names, *(f"{name} / {WARM}" for name in others), "remark"]
    lines = [_line(columns), "|---" * len(columns) + "|"]
    for each in measures:
        sign = "≥" if each.are_goals_least else "≤"
        goals = ", then ".join(f"{sign} {number(goal)}" for goal in each.goals)
        cells = [_cell(each.samples.get(name, ())) for name in names]
        ratios = [each.ratio(name) for name in others]
        lines.append(_line([f"{each.what} ({each.unit})", goals, each.verdict, *cells, *ratios, each.remark]))
    return "\n".join(lines) + "\n"


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "none"
    spread = f" ({number(min(values))} to {number(max(values))})" if len(values) > 1 else ""
    return f"{number(statistics.median(values))}{spread}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
