"""The last records of each object, in memory, within a budget.

What does not fit any more goes: first the earlier records of objects that have a newer one, then the record that was
stored longest ago. A record that is larger than the budget is not kept.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from rolecall.kube.references import GVK, ObjectKey
from rolecall.runner.record.bodies import Bodies
from rolecall.runner.record.run_record import RunRecord

_Object = tuple[GVK, ObjectKey]


@dataclass(slots=True)
class RecordMemory:
    """The last records, ``most_runs`` of each object; with a budget of 0 bytes none is kept."""

    budget_bytes: int
    bodies: Bodies = field(default_factory=Bodies)
    most_runs: int = 1
    _last: OrderedDict[_Object, RunRecord] = field(default_factory=OrderedDict)
    _earlier: OrderedDict[tuple[_Object, str], RunRecord] = field(default_factory=OrderedDict)
    _runs: dict[_Object, list[RunRecord]] = field(default_factory=dict)
    """The records of each object, the oldest first."""
    _entries_bytes: int = 0

    def add(self, record: RunRecord) -> None:
        """Keep a record of a run that has ended."""
        obj = record.gvk, record.key
        before = self._last.pop(obj, None)
        if before is not None:
            self._earlier[obj, before.ident] = before
        self._last[obj] = record
        runs = self._runs.setdefault(obj, [])
        runs.append(record)
        self._entries_bytes += record.size_bytes
        if len(runs) > self.most_runs:
            self._drop(runs[0])
        while self._last and self._entries_bytes + self.bodies.stored_bytes > self.budget_bytes:
            self._drop(next(iter((self._earlier or self._last).values())))

    def get(self, gvk: GVK, key: ObjectKey) -> RunRecord | None:
        """Return the last record of an object, None if there is none."""
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
