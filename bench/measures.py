"""The table of the comparison: a row for each measure, a column for each contender, goals for rolecall warm.

Pure. A measure has all samples of each contender; a cell shows their median and their spread, and the ratios are of
medians. A goal is a range; the issue that set them has a first and a second one for most measures.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench.contenders import COLD, PEER, WARM
from bench.report import Samples, number


@dataclass(frozen=True, slots=True)
class Goal:
    """A range in which a value should lie."""

    least: float = -math.inf
    most: float = math.inf

    def __str__(self) -> str:
        """Write it as a reader would say it."""
        if math.isinf(self.least):
            return f"≤ {number(self.most)}"
        return f"≥ {number(self.least)}" if math.isinf(self.most) else f"{number(self.least)} to {number(self.most)}"

    def is_met(self, value: float) -> bool:
        """Return whether a value lies in the range."""
        return self.least <= value <= self.most


def at_most(*limits: float) -> tuple[Goal, ...]:
    """Return goals that are upper limits, the easiest first."""
    return tuple(Goal(most=limit) for limit in limits)


@dataclass(frozen=True, slots=True)
class Measure:
    """One line: what is measured, in which unit, the samples by contender, the goals of rolecall warm, and a remark."""

    what: str
    unit: str
    samples: Mapping[str, Sequence[float]]
    goals: tuple[Goal, ...] = ()
    remark: str = ""

    @property
    def verdict(self) -> str:
        """Return how many of the goals rolecall warm meets; nothing without goals or without it."""
        if not self.goals or not self.samples.get(WARM):
            return ""
        value = Samples(self.samples[WARM]).median
        met = sum(goal.is_met(value) for goal in self.goals)
        if met == len(self.goals):
            return "met"
        return "first met" if met else "**missed**"

    def ratio(self, contender: str) -> str:
        """Return how many times as much as rolecall warm another contender has."""
        if not self.samples.get(contender) or not self.samples.get(WARM):
            return ""
        warm = Samples(self.samples[WARM]).median
        return number(Samples(self.samples[contender]).median / warm) if warm else ""


@dataclass(slots=True)
class Collection:
    """Samples of one measure while they are taken."""

    samples: dict[str, list[float]] = field(default_factory=dict)

    def add(self, contender: str, value: float) -> None:
        """Add one sample."""
        self.samples.setdefault(contender, []).append(value)


def table(measures: Sequence[Measure], names: Sequence[str]) -> str:
    """Write the table with a column for each of these contenders."""
    others = [name for name in (COLD, PEER) if name in names]
    head = ["measure", "goal", "", *names, *(f"{name} / {WARM}" for name in others), "remark"]
    lines = [_line(head), "|---" * len(head) + "|"]
    for each in measures:
        goals = ", then ".join(map(str, each.goals))
        cells = [_cell(each.samples.get(name, ())) for name in names]
        ratios = [each.ratio(name) for name in others]
        lines.append(_line([f"{each.what} ({each.unit})", goals, each.verdict, *cells, *ratios, each.remark]))
    return "\n".join(lines) + "\n"


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "none"
    samples = Samples(values)
    spread = f" ({samples.spread})" if len(values) > 1 else ""
    return f"{number(samples.median)}{spread}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
