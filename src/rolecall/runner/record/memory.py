"""The last runs of each object in memory: their records within a budget, and one line about each.

A record takes many thousand bytes and a line a few hundred, so there are lines of all objects when memory has records
of only some.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.record.run_record import Bodies, RunRecord

MAX_LINES: Final = 20
"""The maximum number of lines of one object."""

MAX_EARLIER_LINES: Final = 20_000
"""The maximum number of lines of all objects, excluding their last ones."""

_Object = tuple[GVK, ObjectKey]


@dataclass(slots=True)
class RecordMemory:
    """The last records, at most ``max_runs`` of each object.

    To stay within the budget, it drops the earlier records of objects with a newer one, then the record stored longest
    ago. It doesn't keep a record larger than the budget.
    """

    budget_bytes: int
    bodies: Bodies = field(default_factory=Bodies)
    max_runs: int = 1
    _last: OrderedDict[_Object, RunRecord] = field(default_factory=OrderedDict)
    _earlier: OrderedDict[tuple[_Object, str], RunRecord] = field(default_factory=OrderedDict)
    _runs: dict[_Object, list[RunRecord]] = field(default_factory=dict)
    """The records of each object, the oldest first."""
    _entries_bytes: int = 0

    def add(self, record: RunRecord) -> None:
        """Store the record of a run that has ended."""
        obj = record.gvk, record.key
        before = self._last.pop(obj, None)
        if before is not None:
            self._earlier[obj, before.ident] = before
        self._last[obj] = record
        runs = self._runs.setdefault(obj, [])
        runs.append(record)
        self._entries_bytes += record.size_bytes
        if len(runs) > self.max_runs:
            self._drop(runs[0])
        while self._last and self._entries_bytes + self.bodies.stored_bytes > self.budget_bytes:
            self._drop(next(iter((self._earlier or self._last).values())))

    def get(self, gvk: GVK, key: ObjectKey) -> RunRecord | None:
        """Return the last record of an object, or None."""
        return self._last.get((gvk, key))

    def runs(self, gvk: GVK, key: ObjectKey) -> tuple[RunRecord, ...]:
        """Return the records of an object, the oldest first."""
        return tuple(self._runs.get((gvk, key), ()))

    def forget(self, gvk: GVK, key: ObjectKey) -> None:
        """Drop the records of an object."""
        for record in self.runs(gvk, key):
            self._drop(record)

    def _drop(self, record: RunRecord) -> None:
        obj = record.gvk, record.key
        if self._earlier.pop((obj, record.ident), None) is None:
            del self._last[obj]
        runs = self._runs[obj]
        runs.remove(record)
        if not runs:
            del self._runs[obj]
        self._entries_bytes -= record.size_bytes
        record.drop()


@dataclass(frozen=True, slots=True)
class RunLine:
    """When a run started (seconds since the epoch), how long it took, its causes, and how it ended."""

    ident: str
    started: float
    seconds: float
    outcome: str
    causes: tuple[str, ...]
    tasks: int
    requests: int


@dataclass(slots=True)
class RunHistory:
    """The lines about the last runs. The last line of an object stays as long as the object; none has its values."""

    max_earlier: int = MAX_EARLIER_LINES
    _lines: dict[_Object, deque[RunLine]] = field(default_factory=dict)
    _with_earlier: deque[_Object] = field(default_factory=deque)
    """An object for each line that isn't its last one, in their order; some of the lines may have been dropped."""

    def add(self, record: RunRecord) -> None:
        """Add the line for a run that has ended."""
        obj, ending = (record.gvk, record.key), record.ending
        lines = self._lines.setdefault(obj, deque(maxlen=MAX_LINES))
        if lines:
            self._with_earlier.append(obj)
        line = RunLine(
            ident=record.ident,
            started=record.started.timestamp(),
            seconds=round(ending.summary.duration_seconds, 3) if ending and ending.summary else 0.0,
            outcome=ending.outcome if ending else "unknown",
            causes=record.causes,
            tasks=len(record.tasks),
            requests=len(record.exchanges),
        )
        lines.append(line)
        while len(self._with_earlier) > self.max_earlier:
            oldest = self._lines.get(self._with_earlier.popleft())
            if oldest is not None and len(oldest) > 1:
                oldest.popleft()

    def last(self, gvk: GVK, key: ObjectKey) -> RunLine | None:
        """Return the line about the last run of an object, or None."""
        lines = self._lines.get((gvk, key))
        return lines[-1] if lines else None

    def of(self, gvk: GVK, key: ObjectKey) -> tuple[RunLine, ...]:
        """Return the lines about an object, the newest first."""
        return tuple(reversed(self._lines.get((gvk, key), ())))

    def forget(self, gvk: GVK, key: ObjectKey) -> None:
        """Drop the lines about a deleted object."""
        self._lines.pop((gvk, key), None)
