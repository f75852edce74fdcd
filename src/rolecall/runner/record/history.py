"""One line about each of the last runs of every object: when, how long, why, and how it ended.

A line takes a few hundred bytes where a record takes many thousands, so there are lines of all objects when memory has
records of only some. The lines have no values of objects. The last line of an object stays for as long as the object.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.record.run_record import RunRecord

_Object = tuple[GVK, ObjectKey]
MOST_RUNS: Final = 20
"""How many lines there are of one object."""

MOST_EARLIER: Final = 20_000
"""How many lines there are, of all objects, besides their last ones."""


@dataclass(frozen=True, slots=True)
class RunLine:
    """What is said about a run; ``started`` is in seconds since the epoch."""

    ident: str
    started: float
    seconds: float
    outcome: str
    causes: tuple[str, ...]
    tasks: int
    requests: int

    @classmethod
    def of(cls, record: RunRecord) -> "RunLine":
        """Return the line for a run that has ended."""
        ending = record.ending
        summary = ending.summary if ending else None
        return cls(
            ident=record.ident,
            started=record.started.timestamp(),
            seconds=round(summary.duration_seconds, 3) if summary else 0.0,
            outcome=ending.outcome if ending else "unknown",
            causes=record.causes,
            tasks=len(record.tasks),
            requests=len(record.exchanges),
        )


@dataclass(slots=True)
class RunHistory:
    """The lines about the last runs."""

    most_earlier: int = MOST_EARLIER
    _lines: dict[_Object, deque[RunLine]] = field(default_factory=dict)
    _with_earlier: deque[_Object] = field(default_factory=deque)
    """An object for each line that is not its last one, in their order; some of the lines may be gone already."""

    def add(self, record: RunRecord) -> None:
        """Add the line for a run that has ended."""
        obj = record.gvk, record.key
        lines = self._lines.setdefault(obj, deque(maxlen=MOST_RUNS))
        if lines:
            self._with_earlier.append(obj)
        lines.append(RunLine.of(record))
        while len(self._with_earlier) > self.most_earlier:
            oldest = self._lines.get(self._with_earlier.popleft())
            if oldest is not None and len(oldest) > 1:
                oldest.popleft()

    def last(self, gvk: GVK, key: ObjectKey) -> RunLine | None:
        """Return the line about the last run of an object, None if it had none."""
        lines = self._lines.get((gvk, key))
        return lines[-1] if lines else None

    def of(self, gvk: GVK, key: ObjectKey) -> tuple[RunLine, ...]:
        """Return the lines about an object, the newest first."""
        return tuple(reversed(self._lines.get((gvk, key), ())))

    def forget(self, gvk: GVK, key: ObjectKey) -> None:
        """Drop the lines about an object that is gone."""
        self._lines.pop((gvk, key), None)
